"""The numbers behind what ``solve`` chooses for itself, all in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from oneproj.arguments import check_count, check_number
from oneproj.errors import InvalidProblemError

LEAST = {"inner_steps": 2}
"""Counts that have to be larger than 1: the mean of one inner iterate is the centre."""
SHARES = (
    *("far_start_share", "strength_decay", "patience_fall", "anchor_share"),
    *("adam_beta2", "warm_up"),
)
"""Fields that are a part of something: 1 is all of it."""


@dataclass(frozen=True)
class Defaults:
    """Numbers that ``solve`` uses where the caller gives none.

    Each was chosen on benchmark problems; ``benchmarks/NOTES.md`` says which and how,
    and ``python -m benchmarks.train_battery`` measures a change. All are positive, and
    shares are at most 1.

    Args:
        steps: Updates of a run.
        inner_steps: Inner updates between two proximal centres, K.
        slsqp_parameters: Parameters up to which ``method="auto"`` takes SLSQP. Source:
            logistic regression with a cap on a second risk, 20 to 400 parameters and
            2,000 to 100,000 examples: up to here SLSQP was faster and more accurate.
        slsqp_examples: Examples of all terms together, likewise.
        longest_lr: Longest first step of Adam. Source: robust rows, the paper's six
            problems.
        lr_halvings: Halvings of it down to the shortest. Source: the battery's
            fine-tuning family.
        lr_rise: Largest growth of violations along half of the first step, in their
            sum at the start plus the objective's fall, each over the size of its
            gradient. Source: attention, trained_cnn_old_risk, abstention ClimSim.
        adam_beta2: Adam's second beta: it averages the last 20 squared gradients, not a
            thousand, because a penalty pushes seldom and hard. Source: asleep_by_12,
            cancer_group_caps, iris_one_class.
        warm_up: Share of the updates over which steps grow to full length. The first
            steps of Adam, at full length, can switch off every ReLU of a small
            network. Source: raw_wine_network.
        far_start_parameters: Parameters up to which a start far from feasible lengthens
            the steps.
        far_start_path: Length of all steps together, in distances to the bounds.
            Source: far_linear.
        far_start_share: Longest step, as a share of that distance.
        strength_over_multiplier: Strength of a hinge over its estimated multiplier.
            Source: rates.
        strength_decay: Least share of a strength that is kept at the next anchor.
            Source: raw_cancer.
        strength_floor: Least strength near a bound, in strengths that would balance the
            objective alone. Source: low_rank, tied_layers.
        hinge_width: Half-width of a rounded hinge, in changes of its constraint between
            two anchors. Source: rate_under_rate_digits, credit.
        patience: Anchors in a row at which a constraint is violated before its strength
            rises. Source: largest_row_norm, spectral_layers.
        patience_fall: Share of the largest of these residuals above which the last has
            not improved.
        push_limit: Largest planned push of a penalty, in norms of the objective's mean
            gradient. Source: rate_under_rate_digits, asleep_by_5.
        far_moves: Moves between two anchors beyond which a bound is far, by the
            gradient at hand. Source: asleep_by_5, asleep_by_12.
        least_push: Norm of a push that is always allowed: Adam ignores gradients near
            its 1e-8.
        batch_size: Examples of a minibatch. Source: attention, recurrent_tanh.
        largest_batch_size: Examples of a minibatch of a table where more cost next to
            nothing. Source: large_table, many_rows.
        free_work: Parameters times examples up to which that is so.
        whole_data_batches: A constraint with no more examples than in so many
            minibatches is seen as a whole.
        anchor_work: Parameters times examples whose values an anchor may take, on
            average. Source: many_rows.
        anchor_share: Examples whose gradients an anchor takes, as a share of those that
            the updates between two anchors see. Source: NASA, credit.

    Example:
        >>> import dataclasses, oneproj
        >>> careful = dataclasses.replace(oneproj.Defaults(), longest_lr=0.01)
        >>> careful.changed()
        {'longest_lr': 0.01}
    """

    steps: int = 500
    inner_steps: int = 10
    slsqp_parameters: int = 200
    slsqp_examples: int = 20_000

    longest_lr: float = 0.1
    lr_halvings: int = 14
    lr_rise: float = 2.0
    adam_beta2: float = 0.95
    warm_up: float = 0.05
    far_start_parameters: int = 1000
    far_start_path: float = 12.0
    far_start_share: float = 0.05

    strength_over_multiplier: float = 2.0
    strength_decay: float = 0.4
    strength_floor: float = 0.01
    hinge_width: float = 0.3
    patience: int = 7
    patience_fall: float = 0.9
    push_limit: float = 32.0
    far_moves: float = 3.0
    least_push: float = 1e-4

    batch_size: int = 128
    largest_batch_size: int = 1024
    free_work: int = 10_000_000
    whole_data_batches: int = 2
    anchor_work: int = 50_000_000
    anchor_share: float = 0.4

    def __post_init__(self) -> None:
        """Check the numbers, and keep Python's own."""
        why = "Its meaning is in the documentation of oneproj.Defaults."
        for field in fields(self):
            name, given = f"{field.name} of Defaults", vars(self)[field.name]
            number: float
            if isinstance(field.default, int):
                least = LEAST.get(field.name, 1)
                number = check_count(name, given, why, least=least)
            else:
                number = check_number(name, given, why)
            if field.name in SHARES and number > 1:
                message = f"{name} must be a share, at most 1, got {given!r}. {why}"
                raise InvalidProblemError(message)
            object.__setattr__(self, field.name, number)

    def changed(self) -> dict[str, float]:
        """The fields that differ from the library's own, by name."""
        original = {field.name: field.default for field in fields(self)}
        return {k: v for k, v in asdict(self).items() if v != original[k]}


OWN = Defaults()
"""The library's own."""
