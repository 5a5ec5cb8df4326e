"""The numbers behind what ``solve`` chooses for itself, all in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from oneproj.arguments import check_count, check_number


@dataclass(frozen=True)
class Defaults:
    """Numbers that ``solve`` uses where the caller gives none.

    Each was chosen on benchmark problems; ``benchmarks/NOTES.md`` says which and how,
    and ``python -m benchmarks.train_battery`` measures a change. All are positive.

    Example:
        >>> import dataclasses, oneproj
        >>> careful = dataclasses.replace(oneproj.Defaults(), longest_lr=0.01)
        >>> careful.changed()
        {'longest_lr': 0.01}
    """

    steps: int = 500
    """Updates of a run."""
    inner_steps: int = 10
    """Inner updates between two proximal centres, K."""

    longest_lr: float = 0.1
    """Longest first step of Adam. Source: robust rows, the paper's six problems."""
    lr_halvings: int = 14
    """Halvings of it down to the shortest. Source: the battery's fine-tuning family."""
    lr_bend: float = 1.9
    """Largest bend of a term along the first step: the difference of its changes in
    both halves, over the change in the first. Below 2, which is that of a parabola far
    beyond its minimum. Source: the battery's trained models."""
    far_start_parameters: int = 1000
    """Parameters up to which a start far from feasible lengthens the steps."""
    far_start_path: float = 12.0
    """Length of all steps together, in distances to the bounds. Source: far_linear."""
    far_start_share: float = 0.05
    """Longest step, as a share of that distance."""

    strength_over_multiplier: float = 2.0
    """Strength of a hinge over its estimated multiplier. Source: rates."""
    strength_decay: float = 0.4
    """Least share of a strength that is kept at the next anchor. Source: raw_cancer."""
    strength_floor: float = 0.01
    """Least strength near a bound, in strengths that would balance the objective alone.
    Source: low_rank, tied_layers."""
    hinge_width: float = 0.3
    """Half-width of a rounded hinge, in changes of its constraint between two anchors.
    Source: rate_under_rate_digits, credit."""
    patience: int = 7
    """Anchors in a row at which a constraint is violated before its strength rises.
    Source: largest_row_norm, spectral_layers."""
    patience_fall: float = 0.9
    """Share of the largest of these residuals above which the last has not improved."""
    push_limit: float = 32.0
    """Largest planned push of a penalty, in norms of the objective's mean gradient.
    Source: rate_under_rate_digits, asleep_by_5."""
    far_moves: float = 3.0
    """Moves between two anchors beyond which a bound is far, by the gradient at hand.
    Source: asleep_by_5, asleep_by_12."""
    least_push: float = 1e-4
    """Norm of a push that is always allowed: Adam ignores gradients near its 1e-8."""

    batch_size: int = 64
    """Examples of a minibatch."""
    largest_batch_size: int = 256
    """Examples of a minibatch of a table where more cost next to nothing. Source:
    low_rank."""
    free_work: int = 2_500_000
    """Parameters times examples up to which that is so."""
    whole_data_batches: int = 2
    """Minibatches that cost what one anchored minibatch costs: a constraint with no
    more examples is seen as a whole."""
    whole_data_work: int = 1_250_000
    """Parameters times examples up to which a constraint of a table is seen as a whole.
    Source: false_positive_rate_saturated."""
    anchor_work: int = 50_000_000
    """Parameters times examples whose values an anchor may take, on average. Source:
    many_rows."""
    anchor_share: float = 0.4
    """Examples whose gradients an anchor takes, as a share of those that the updates
    between two anchors see. Source: NASA, credit."""

    def __post_init__(self) -> None:
        """Check the numbers, and keep Python's own."""
        why = "Its meaning is in the documentation of oneproj.Defaults."
        for field in fields(self):
            check = check_count if isinstance(field.default, int) else check_number
            number = check(f"{field.name} of Defaults", vars(self)[field.name], why)
            object.__setattr__(self, field.name, number)

    def changed(self) -> dict[str, float]:
        """The fields that differ from the library's own, by name."""
        own = {field.name: field.default for field in fields(self)}
        return {k: v for k, v in asdict(self).items() if v != own[k]}
