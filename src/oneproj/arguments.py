"""Checks of arguments: numbers, counts, paths and tensors.

A function here takes the name of an argument and its value. It returns the value as a
plain number, a path or a tensor, or raises an error that says what is wrong.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError

TensorLike: TypeAlias = Tensor | np.ndarray[Any, Any] | Sequence[Any] | float
"""Numbers in any of the usual containers; ``as_tensor`` reads them."""


def is_number(value: object) -> bool:
    """Whether a value is one real number; True and False are not.

    Example:
        >>> is_number(0.5), is_number(True), is_number("0.5"), is_number([0.5])
        (True, False, False, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def plain(value: object) -> Any:  # noqa: ANN401 - whatever was given
    """Convert a number of NumPy or torch to Python's own; return others unchanged.

    Python's numbers do not overflow, do not change when a tensor does, and compare
    equal after they were saved and loaded.

    Example:
        >>> plain(np.uint8(64)), plain(torch.tensor(0.5)), plain("auto")
        (64, 0.5, 'auto')
    """
    number = value
    if isinstance(value, Tensor | np.ndarray | np.generic):
        empty = isinstance(value, Tensor) and value.is_meta
        number = value.item() if math.prod(value.shape) == 1 and not empty else None
    if isinstance(number, Real) and is_number(number):
        with suppress(OverflowError):  # a ratio that no float can hold
            return int(number) if isinstance(number, Integral) else float(number)
    return value


def check_number(
    name: str,
    value: object,
    why: str,
    *,
    zero: bool = False,
    infinite: bool = False,
) -> float:
    """Return a finite number > 0 as Python's own float; refuse anything else.

    Args:
        name: Of the argument.
        value: Of the argument; a tensor or an array of one entry is a number.
        why: What it is for, and what to try.
        zero: Whether 0 is allowed as well.
        infinite: Whether infinity is allowed as well.

    Example:
        >>> check_number("lr", -1, "It is the length of a step.", zero=True)
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: lr must be one finite number >= 0, got -1.
        It is the length of a step.
    """
    number = plain(value)
    with suppress(OverflowError):  # a whole number that no float can hold
        x = float(number) if is_number(number) else math.nan
        if (x > 0 or (zero and x == 0)) and (infinite or x < math.inf):  # so NaN is out
            return x
    kind = "" if infinite else "finite "
    sign = ">=" if zero else ">"
    message = f"{name} must be one {kind}number {sign} 0, got {value!r}. {why}"
    raise InvalidProblemError(message)


def as_number(given: object) -> float | None:
    """A finite real number as a float; None for anything else.

    Also None for a tensor that requires grad: it may move, and the float would not.

    Example:
        >>> as_number(torch.tensor(0.5)), as_number(10**400), as_number("1")
        (0.5, None, None)
    """
    if isinstance(given, Tensor | np.ndarray) and given.ndim:
        return None
    number = plain(given)
    if is_number(number) and not (isinstance(given, Tensor) and given.requires_grad):
        with suppress(OverflowError):  # a whole number that no float can hold
            return float(number) if math.isfinite(number) else None
    return None


def check_count(name: str, value: object, why: str, *, least: int = 1) -> int:
    """Return a whole number as Python's own int; refuse anything else, 2.0 included.

    Args:
        name: Of the argument.
        value: Of the argument.
        why: What it counts, and what to try.
        least: The smallest value that is allowed.

    Example:
        >>> check_count("inner_steps", 2.5, "It is K.")
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: inner_steps must be a whole number >= 1, got
        2.5. It is K.
    """
    number = plain(value)
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    if whole and number >= least:
        return int(number)
    message = f"{name} must be a whole number >= {least}, got {value!r}. {why}"
    raise InvalidProblemError(message)


def check_flag(name: str, value: object, why: str) -> None:
    """Refuse what is neither True nor False: a word such as "no" would count as True.

    Example:
        >>> check_flag("smooth", True, "It is about the objective.")
        >>> check_flag("smooth", "no", "It is about the objective.")
        Traceback (most recent call last):
        ...
        oneproj.errors.InvalidProblemError: smooth must be True or False, got 'no'. ...
    """
    if isinstance(value, bool):
        return
    message = f"{name} must be True or False, got {value!r}. {why}"
    raise InvalidProblemError(message)


def check_generator(generator: object, why: str) -> None:
    """Refuse what is neither a generator of torch nor None.

    Example:
        >>> check_generator(torch.Generator(), "It draws J.")
    """
    if isinstance(generator, torch.Generator | None):
        return
    message = (
        f"generator must be a torch.Generator or None, got {generator!r}. {why} Pass "
        "torch.Generator().manual_seed(0), for example."
    )
    raise InvalidProblemError(message)


def as_path(name: str, given: object, *, also: str = "") -> Path:
    """A path as an absolute ``Path``; ``also`` says what else may be given.

    Absolute, so that it stays the same file if the program changes its folder.

    Example:
        >>> path = as_path("checkpoint", "run.pt")
        >>> path.name, path.is_absolute()
        ('run.pt', True)
    """
    if isinstance(given, str | PathLike):
        return Path(given).absolute()
    message = (
        f"{name} must be a path{also}, got {given!r}. Name a file by a string or a "
        "pathlib.Path."
    )
    raise InvalidProblemError(message)


def as_tensor(name: str, given: object, *, finite: bool = False) -> Tensor:
    """Real numbers in a tensor, an array or lists, as a dense tensor, detached.

    Tensors and arrays keep their dtype, plain numbers become float64.

    Args:
        name: Of the argument.
        given: Its value.
        finite: Whether to refuse NaN and inf.

    Raises:
        InvalidProblemError: It holds something else, or masked entries.

    Example:
        >>> as_tensor("center", [1, 2.5])
        tensor([1.0000, 2.5000], dtype=torch.float64)
    """
    check_unmasked(name, given)
    try:
        with warnings.catch_warnings():
            # Ignored: the array is read-only, or the list holds arrays.
            warnings.simplefilter("ignore", UserWarning)
            if isinstance(given, np.ndarray):
                found = torch.as_tensor(np.ascontiguousarray(given), device="cpu")
            elif isinstance(given, Tensor):
                found = given.detach()
            else:
                found = torch.as_tensor(given, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        message = (
            f"{name} must be made of real numbers, in a tensor, an array or a list, "
            f"got {given!r}."
        )
        raise InvalidProblemError(message) from error
    check_dense(name, found)
    if found.is_complex():
        message = (
            f"{name} holds complex numbers ({found.dtype}), and only real ones have an "
            "order. Take the real part or the absolute value."
        )
        raise InvalidProblemError(message)
    if finite and not bool(torch.isfinite(found).all()):
        count = int((~torch.isfinite(found)).sum())
        message = (
            f"{name} must be finite, but {count} of its {found.numel()} entries are "
            "NaN or infinite."
        )
        raise InvalidProblemError(message)
    return found


def check_dense(name: str, tensor: Tensor) -> None:
    """Refuse tensors whose entries cannot be read one by one.

    Example:
        >>> check_dense("data", torch.ones(2))
    """
    if tensor.is_meta:
        message = (
            f"{name} is on the meta device: it has a shape and no numbers. Make it on "
            'a real one; a model by model.to_empty(device="cpu") and its weights.'
        )
        raise InvalidProblemError(message)
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout)
        message = (
            f"{name} is a tensor without a plain layout ({kind}), whose rows cannot be "
            "taken one by one. Convert it, with to_dense() or to_padded_tensor(0.0)."
        )
        raise InvalidProblemError(message)


def check_unmasked(name: str, given: object) -> None:
    """Refuse an array with masked entries: a tensor has no mask.

    Example:
        >>> check_unmasked("data", np.ma.masked_array([1.0, 2.0]))
    """
    if not isinstance(given, np.ma.MaskedArray):
        return
    hidden = int(np.ma.getmaskarray(given).sum())
    if hidden:
        message = (
            f"{name} is a masked array, {hidden} of whose entries are masked. A tensor "
            "has no mask: they would count like all others. Fill them, with .filled(), "
            "or leave out the rows."
        )
        raise InvalidProblemError(message)


BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
"""Units of memory, in capitals; "kb" is as good."""


def read_bytes(name: str, text: str) -> int:
    """Return the number of bytes that a text names.

    Raises:
        InvalidProblemError: It is not a positive number with a unit.

    Example:
        >>> read_bytes("memory", "1.5 GB"), read_bytes("memory", "200kB")
        (1500000000, 200000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B)\s*", text.upper())
    if found is None or float(found[1]) == 0:
        message = (
            f"{name} as text is a positive number and a unit, one of "
            f"{', '.join(BYTES)}; got {text!r}. Try {name}='2 GB'."
        )
        raise InvalidProblemError(message)
    return int(float(found[1]) * BYTES[found[2]])


def at_most_five(values: Sequence[object]) -> str:
    """Return the first five values as text, and how many there are if there are more.

    Example:
        >>> at_most_five([1, 2]), at_most_five(range(7))
        ('[1, 2]', '[0, 1, 2, 3, 4, ...], 7 in all')
    """
    if len(values) <= 5:  # noqa: PLR2004 - as the name says
        return f"[{', '.join(map(repr, values))}]"
    return f"[{', '.join(map(repr, values[:5]))}, ...], {len(values)} in all"
