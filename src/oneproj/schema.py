"""The one validator for data that is read back from a file.

A schema says what plain data must look like: types, ranges, lengths, names. ``check``
returns the data if it does and raises ``SchemaError`` otherwise, before anything is
built from it. Nothing in a file can name a class or a function: which objects are made
is decided by the schema, that is, by this library's code.

The schema of tensors is in ``oneproj.tensor_schema``; this module needs no torch.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

NON_FINITE = ("nan", "inf", "-inf")
"""How JSON files write the numbers that JSON has no word for."""
DEPTH = 50
"""Containers within containers that plain data may have."""
SHOWN = 80
"""Characters of a wrong value that a message shows."""


class SchemaError(ValueError):
    """Data that does not fit its schema; the message says where and why.

    Example:
        >>> Integer(least=0).check(-5, "update")
        Traceback (most recent call last):
        oneproj.schema.SchemaError: update should be a whole number >= 0, it is -5
    """


class AbstractSchema(ABC):
    """What a piece of plain data must look like."""

    @abstractmethod
    def check(self, value: Any, where: str) -> Any:  # noqa: ANN401 - whatever a file had
        """Return the data, checked.

        Args:
            value: What the file had.
            where: How to call it in a message.

        Raises:
            SchemaError: It does not fit.
        """


@dataclass(frozen=True)
class Flag(AbstractSchema):
    """True or False.

    Example:
        >>> Flag().check(True, "touched")
        True
    """

    def check(self, value: Any, where: str) -> bool:  # noqa: ANN401 - as above
        require(isinstance(value, bool), value, where, "true or false")
        return bool(value)


@dataclass(frozen=True)
class Integer(AbstractSchema):
    """A whole number within limits.

    Example:
        >>> Integer(least=0, most=9).check(3, "update")
        3
    """

    least: int | None = None
    most: int | None = None

    def check(self, value: Any, where: str) -> int:  # noqa: ANN401 - as above
        wanted = f"a whole number{_limits(self.least, self.most)}"
        fits = type(value) is int and _is_within(value, self.least, self.most)
        require(fits, value, where, wanted)
        return int(value)


@dataclass(frozen=True)
class Number(AbstractSchema):
    """A real number within limits.

    Args:
        least: The smallest that is allowed.
        most: The largest.
        finite: Whether NaN and infinity are refused.
        words: Whether the strings of ``NON_FINITE`` count as the numbers they name.

    Example:
        >>> Number(least=0.0).check(2, "seconds"), Number(words=True).check("inf", "x")
        (2.0, inf)
    """

    least: float | None = None
    most: float | None = None
    finite: bool = False
    words: bool = False

    def check(self, value: Any, where: str) -> float:  # noqa: ANN401 - as above
        if self.words and isinstance(value, str) and value in NON_FINITE:
            value = float(value)
        kind = "a finite number" if self.finite else "a number"
        fits = type(value) in (int, float) and _is_within(value, self.least, self.most)
        try:
            fits = fits and (not self.finite or math.isfinite(value))
            require(fits, value, where, kind + _limits(self.least, self.most))
            return float(value)
        except OverflowError as error:
            message = f"{where} should be {kind}, it is too large"
            raise SchemaError(message) from error


@dataclass(frozen=True)
class Text(AbstractSchema):
    """A string; one of some, if those are given.

    Example:
        >>> Text(("x", "selected")).check("x", "shown")
        'x'
    """

    among: Collection[str] | None = None

    def check(self, value: Any, where: str) -> str:  # noqa: ANN401 - as above
        wanted = "a string"
        if self.among is not None:
            wanted = f"one of {', '.join(self.among)}"
        fits = type(value) is str and (self.among is None or value in self.among)
        require(fits, value, where, wanted)
        return str(value)


@dataclass(frozen=True)
class Equal(AbstractSchema):
    """One given value and no other.

    Example:
        >>> Equal(None).check(None, "anchor") is None
        True
    """

    to: Any

    def check(self, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
        require(_are_equal(value, self.to), value, where, repr(self.to))
        return value


@dataclass(frozen=True)
class Maybe(AbstractSchema):
    """None, or data of another schema.

    Example:
        >>> Maybe(Integer()).check(None, "outer") is None
        True
    """

    schema: AbstractSchema

    def check(self, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
        return None if value is None else self.schema.check(value, where)


@dataclass(frozen=True)
class AsIs(AbstractSchema):
    """Data of another schema, returned unchanged: tuples as tuples, 1 as 1.

    Example:
        >>> AsIs(Number()).check(1, "update")
        1
    """

    schema: AbstractSchema

    def check(self, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
        self.schema.check(value, where)
        return value


@dataclass(frozen=True)
class EmptyOr(AbstractSchema):
    """An empty list or mapping, or data of another schema.

    Example:
        >>> EmptyOr(Items(Integer(), least=2)).check([], "kept")
        []
    """

    schema: AbstractSchema

    def check(self, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
        empty = type(value) in (list, dict) and not value
        return value if empty else self.schema.check(value, where)


@dataclass(frozen=True)
class Items(AbstractSchema):
    """A list whose entries share one schema.

    Args:
        schema: Of each entry.
        least: The shortest length.
        most: The longest.
        make: What the list becomes.

    Example:
        >>> Items(Integer(), least=2, most=2).check([3, 4], "counts")
        [3, 4]
    """

    schema: AbstractSchema
    least: int = 0
    most: int | None = None
    make: Callable[[list[Any]], Any] = list

    def check(self, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
        require(type(value) in (list, tuple), value, where, "a list")
        if self.least == self.most:
            fits = len(value) == self.least
            require(fits, value, where, f"a list of {self.least}")
        fits = _is_within(len(value), self.least, self.most)
        require(fits, value, where, f"a list of length{_limits(self.least, self.most)}")
        return self.make(
            [self.schema.check(item, f"{where}[{i}]") for i, item in enumerate(value)]
        )


@dataclass(frozen=True)
class Row(AbstractSchema):
    """A list of fixed length whose entries have a schema each.

    Example:
        >>> Row((Integer(), Flag())).check((3, True), "pair")
        [3, True]
    """

    schemas: tuple[AbstractSchema, ...]

    def check(self, value: Any, where: str) -> list[Any]:  # noqa: ANN401 - as above
        n = len(self.schemas)
        fits = type(value) in (list, tuple) and len(value) == n
        require(fits, value, where, f"a list of {n}")
        pairs = zip(self.schemas, value, strict=True)
        return [s.check(item, f"{where}[{i}]") for i, (s, item) in enumerate(pairs)]


@dataclass(frozen=True)
class Named(AbstractSchema):
    """A mapping from names to data of one schema.

    Args:
        schema: Of each value.
        among: The names that may occur; None for any.
        complete: Whether each of them must.

    Example:
        >>> Named(Number(), among=("cap",), complete=True).check({"cap": 1.5}, "values")
        {'cap': 1.5}
    """

    schema: AbstractSchema
    among: Collection[str] | None = None
    complete: bool = False

    def check(self, value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 - as above
        require_names(value, where)
        if self.among is not None:
            check_names(value, where, self.among if self.complete else (), self.among)
        items = value.items()
        return {name: self.schema.check(v, f"{where}.{name}") for name, v in items}


@dataclass(frozen=True)
class Fields(AbstractSchema):
    """A mapping with the given names, each of which has a schema of its own.

    Args:
        needed: The schemas of the names that must be there.
        optional: Of those that may be.
        make: Builds an object from the checked values.

    Example:
        >>> sampler = Fields({"used": Integer(least=0)})
        >>> sampler.check({"used": 8}, "sampler")
        {'used': 8}
        >>> sampler.check({}, "sampler")
        Traceback (most recent call last):
        oneproj.schema.SchemaError: sampler has no used
    """

    needed: Mapping[str, AbstractSchema]
    optional: Mapping[str, AbstractSchema] = field(default_factory=dict)
    make: Callable[..., Any] = dict

    def check(self, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
        schemas = {**self.needed, **self.optional}
        require_names(value, where)
        check_names(value, where, self.needed, schemas)
        items = value.items()
        return self.make(
            **{name: schemas[name].check(v, f"{where}.{name}") for name, v in items}
        )


@dataclass(frozen=True)
class Plain(AbstractSchema):
    """Numbers, strings, tensors and containers of them: data without behaviour.

    Args:
        leaves: Types beside those of JSON that count as plain.

    Example:
        >>> Plain().check({"a": [1, None]}, "state")
        {'a': [1, None]}
        >>> Plain().check({"a": [print]}, "state")
        Traceback (most recent call last):
        oneproj.schema.SchemaError: state['a'][0] is a builtin_function_or_method
    """

    leaves: tuple[type, ...] = ()

    def check(self, value: Any, where: str, depth: int = 0) -> Any:  # noqa: ANN401 - as above
        if depth > DEPTH:
            message = f"{where} has more than {DEPTH} containers within each other"
            raise SchemaError(message)
        if isinstance(value, Mapping):
            for key, item in value.items():
                self.check(key, f"a name in {where}", depth + 1)
                self.check(item, f"{where}[{key!r}]", depth + 1)
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                self.check(item, f"{where}[{i}]", depth + 1)
        elif not (
            value is None
            or type(value) in (bool, int, float, str)
            or isinstance(value, self.leaves)
        ):
            message = f"{where} is a {type(value).__name__}"
            raise SchemaError(message)
        return value


def schema_of(hint: Any) -> AbstractSchema:  # noqa: ANN401 - a type hint
    """The schema that a type hint stands for, as JSON writes such data.

    Hints may be dataclasses, enums by the names of their members, ``Mapping``,
    ``tuple``, ``X | None``, ``Literal`` and the types of JSON. ``Annotated[float,
    Number(least=0.0)]`` has the schema that it names.

    Example:
        >>> schema_of(tuple[float, ...]).check([1, "inf"], "seconds")
        (1.0, inf)
        >>> schema_of(int).check("three", "seed")
        Traceback (most recent call last):
        oneproj.schema.SchemaError: seed should be a whole number, it is 'three'
    """
    if hint is Any:
        return Plain()
    if dataclasses.is_dataclass(hint):
        kind: Any = hint
        return _of_dataclass(kind)
    if get_origin(hint) is not None:
        return _of_generic(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _Member(hint)
    simple: dict[Any, AbstractSchema] = {
        bool: Flag(),
        int: Integer(),
        str: Text(),
        float: Number(words=True),
    }
    return simple[hint]


@dataclass(frozen=True)
class _Member(AbstractSchema):
    """A member of an enum, written as its name."""

    members: type[enum.Enum]

    def check(self, value: Any, where: str) -> enum.Enum:  # noqa: ANN401 - as above
        name = Text([member.name for member in self.members]).check(value, where)
        return self.members[name]


@cache
def _of_dataclass(kind: Any) -> Fields:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    needed = {
        f.name for f in fields if f.default is missing and f.default_factory is missing
    }
    return Fields(
        {f.name: schema_of(hints[f.name]) for f in fields if f.name in needed},
        {f.name: schema_of(hints[f.name]) for f in fields if f.name not in needed},
        make=kind,
    )


def _of_generic(hint: Any) -> AbstractSchema:  # noqa: ANN401 - a type hint
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        (own,) = (extra for extra in arguments if isinstance(extra, AbstractSchema))
        return own
    if origin in (Union, types.UnionType):
        (other,) = (each for each in arguments if each is not types.NoneType)
        return Maybe(schema_of(other))
    if origin is Literal:
        return Text(arguments)
    inner = schema_of(arguments[-1] if origin is Mapping else arguments[0])
    if origin is Mapping:
        return Named(inner)
    if arguments[-1] is Ellipsis:
        return Items(inner, make=tuple)
    return Items(inner, least=len(arguments), most=len(arguments), make=tuple)


def require(fits: bool, value: object, where: str, wanted: str) -> None:  # noqa: FBT001 - a test's outcome
    """Raise unless a value fits.

    Raises:
        SchemaError: It does not; the message shows what was wanted and what there is.

    Example:
        >>> require(1 == 1, 1, "x", "one")
    """
    if fits:
        return
    try:
        found = repr(value)
    except Exception:  # noqa: BLE001 - a value that cannot even be shown
        found = f"a {type(value).__name__}"
    if len(found) > SHOWN:
        found = f"a {type(value).__name__} that begins with {found[:SHOWN]}"
    message = f"{where} should be {wanted}, it is {found}"
    raise SchemaError(message)


def require_names(value: object, where: str) -> None:
    """Raise unless a value is a mapping whose keys are strings."""
    fits = isinstance(value, dict) and all(type(name) is str for name in value)
    require(fits, value, where, "a mapping from names")


def check_names(
    value: Mapping[str, Any],
    where: str,
    needed: Collection[str],
    known: Collection[str],
) -> None:
    """Raise unless a mapping has all names that are needed, and only known ones."""
    if missing := sorted(set(needed) - value.keys()):
        message = f"{where} has no {', '.join(missing)}"
        raise SchemaError(message)
    if strange := sorted(value.keys() - set(known)):
        message = f"{where} has an unknown {', '.join(strange)}"
        raise SchemaError(message)


def _are_equal(a: Any, b: Any) -> bool:  # noqa: ANN401 - plain data
    """Whether two pieces of plain data are of the same types and equal."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_are_equal, a, b))
    return bool(a == b)


def _limits(least: float | None, most: float | None) -> str:
    words = [f">= {least}"] if least is not None else []
    words += [f"<= {most}"] if most is not None else []
    return f" {' and '.join(words)}" if words else ""


def _is_within(value: float, least: float | None, most: float | None) -> bool:
    """Whether a number is within limits; NaN is in none."""
    return (least is None or value >= least) and (most is None or value <= most)
