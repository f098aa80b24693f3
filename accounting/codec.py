"""Stored values: frozen dataclasses, checked by the annotations of their fields, and their JSON form.

A field's type is `int`, `float` (finite, kept in its own type, as identities are hashes of what was stored), `str`,
`bool`, `None`, `Decimal` (an amount), an enum, a `Literal`, `tuple[X, ...]` or `Mapping[str, X]`, another dataclass, or
one of several `Tagged` ones: a union, or their common base class. `Annotated[X, ...]` adds a check, of each value that
anybody makes and each item of a tuple or mapping, but None; `Read`, for a value that is read in another way; `OMITTED`,
for a field that is left out at its default: one that a class gains later changes no earlier form; or `BESIDE`, for a
field whose own keys lie beside those of the others: it is given what they leave.

A check raises `Expected <name>=<value> <condition>.`: TypeError for a wrong type, ValueError for a wrong value. A bool
is not a number; an integer is allowed as a float. Reading refuses a missing key and an unknown one in the same way, and
calls nothing but the class and its checks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import cache, cached_property, partial
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from dpsweep.accounting.errors import DAMAGE, BadInput, DpsweepError, exception_as_short_line

Check = Callable[[str, Any], Any]
Value = TypeVar("Value")

UNIONS = (Union, UnionType)
OMITTED, BESIDE = "omitted", "beside"
TYPE, KIND = "type", "kind"  # the keys of a class's name, and of a tag, where names may change


def require_real(name: str, value: object) -> float:
    """A real number, possibly infinity or nan; a number beyond all floats becomes infinity, whatever its sign."""
    if type(value) is float:  # the abstract check takes as long as the rest, and a plan makes a hundred thousand
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"Expected {name}={value!r} to be a number.")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def number_in(interval: str) -> Check:
    """A check that a number lies in an interval, as infinity may, and nan never; it returns the number as it was."""
    low, high = map(float, interval[1:-1].split(","))
    least, most = interval[0] == "[", interval[-1] == "]"
    before = "" if high == math.inf else f"{low:g} {'<=' if least else '<'} "
    after = f"{'>=' if least else '>'} {low:g}" if high == math.inf else f"{'<=' if most else '<'} {high:g}"

    def check(name: str, value: object) -> Any:
        number = require_real(name, value)
        if low < number < high or (least and number == low) or (most and number == high):
            return value
        if math.isfinite(number) or interval.endswith("inf]"):
            raise ValueError(f"Expected {before}{name}={value} {after}.")
        raise ValueError(f"Expected {name}={value} to be finite.")

    return check


def require_integer(name: str, value: object, least: float = -math.inf) -> Any:
    """An integer, at least `least`."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise TypeError(f"Expected {name}={value!r} to be an integer.")
    if value < least:
        raise ValueError(f"Expected {name}={value} >= {least}.")
    return value


def value_of(kind: type, noun: str) -> Check:
    """A check that a value is of a type, which returns the value."""

    def check(name: str, value: object) -> Any:
        if not isinstance(value, kind):
            raise ValueError(f"Expected {name}={value!r} to be {noun}.")
        return value

    return check


require_finite_number, bound = number_in("(-inf, inf)"), number_in("[0, inf]")
positive, non_negative = number_in("(0, inf)"), number_in("[0, inf)")
fraction, below_one = number_in("(0, 1)"), number_in("[0, 1)")
probability, share = number_in("[0, 1]"), number_in("(0, 1]")
positive_int, count = partial(require_integer, least=1), partial(require_integer, least=0)
require_text, require_bool = value_of(str, "text"), value_of(bool, "true or false")
require_list, require_json_object = value_of(list, "a list"), value_of(Mapping, "an object")


def shortest_decimal_of_float(value: float) -> Decimal:
    """The shortest decimal that denotes a float: ten times 1e-5 is 1e-4."""
    return Decimal(repr(float(value)))


def require_nonnegative_amount(name: str, value: object) -> Decimal:
    """A stored amount of a charge or a balance; never negative, since no charge gives back."""
    if not isinstance(value, bool) and isinstance(value, (int, float, str)):
        amount = Decimal(value) if isinstance(value, str) else shortest_decimal_of_float(value)
        if not amount.is_nan() and amount >= 0 and (amount.is_infinite() or amount.adjusted() <= 308):
            return amount
    raise ValueError(f"Expected {name}={value!r} to be a number >= 0.")


class Read(NamedTuple):
    """How a value is read, from its name and its form."""

    read: Check


Count = Annotated[int, count]
PositiveInt = Annotated[int, positive_int]
Amount = Annotated[float, bound, Read(read=lambda name, form: float(require_nonnegative_amount(name, form)))]
Share = Annotated[float, share]
Fraction = Annotated[float, fraction]
Delta = Annotated[float, fraction]
NonNegative = Annotated[float, non_negative]
Positive = Annotated[float, positive]
Words = Annotated[Mapping[str, Any], Read(read=require_json_object)]  # any values by name


class Checked:
    """A frozen dataclass whose checks hold for whoever makes it; a `__post_init__` of its own calls this one."""

    def __post_init__(self: Any) -> None:
        for field in _fields(self.__class__):
            for check in field.checks:
                check(field.name, getattr(self, field.name))


class Stored(Checked):
    """A frozen dataclass with a JSON form."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal value."""
        return to_json(self)

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Self:
        """Reads `to_json`'s form; raises ValueError or TypeError for anything else."""
        return from_json(cls, form)


class Tagged(Stored):
    """One of several classes that a field may hold: its form has its class's name too, under the key `type`."""

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Self:
        """Reads the form of one of this class's subclasses, or, if it has none, of this class."""
        value: Self = _read_one_of(cls.__subclasses__() or [cls], cls.__name__, form)
        return value


def to_json(value: Any) -> dict[str, Any]:
    """The form of a dataclass."""
    form: dict[str, Any] = {TYPE: type(value).__name__} if isinstance(value, Tagged) else {}
    for field in _fields(value.__class__):
        own = getattr(value, field.name)
        if BESIDE in field.extras:
            form = plain(own) | form
        elif OMITTED not in field.extras or own != field.default:
            form[field.name] = plain(own)
    return form


def plain(value: Any) -> Any:
    """A value in plain JSON, with each infinity as a word, which `float` reads."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal):
        return str(value)
    if is_dataclass(value):  # its own half may also say what follows from its fields
        return value.to_json() if hasattr(value, "to_json") else to_json(value)
    return "infinity" if isinstance(value, float) and value == math.inf else value


def from_json(kind: type[Value], form: Any) -> Value:
    """The value of a class that a form says; raises ValueError or TypeError if it says less, or more."""
    rest = dict(require_json_object(kind.__name__, form))
    values: dict[str, Any] = {}
    for field in sorted(_fields(kind), key=lambda one: BESIDE in one.extras):  # type: ignore[arg-type]
        if BESIDE in field.extras:
            values[field.name], rest = field.read(field.name, rest), {}
        elif field.name in rest:
            values[field.name] = field.read(field.name, rest.pop(field.name))
        elif OMITTED not in field.extras:
            raise ValueError(f"Expected {field.name} of {kind.__name__} to be there.")
    if rest:
        raise ValueError(f"Expected {min(rest)} to be left out: a stored {kind.__name__} has no such field.")
    value: Any = kind(**values)
    if getattr(kind, "__post_init__", None) is not Checked.__post_init__:  # which has checked all
        Checked.__post_init__(value)
    return value  # type: ignore[no-any-return]


def read_kind(kinds: Mapping[str, type[Value]], name: str, form: Any, key: str = KIND) -> tuple[type[Value], Any]:
    """The class whose tag a form has under a key, and the form of its fields; raises ValueError for any other tag."""
    rest = dict(require_json_object(name, form))
    tag = rest.pop(key, None)
    if not isinstance(tag, str) or tag not in kinds:
        raise ValueError(f"Expected {name}={tag!r} to be one of {', '.join(sorted(kinds))}.")
    return kinds[tag], rest


def parse_json_file_or_none(
    path: Path, read: Callable[[Any], Value], error: type[DpsweepError] = BadInput
) -> Value | None:
    """The result of `read` on a stored JSON file, None if there is no file; a damaged file is refused by this error."""
    try:
        return read(json.loads(path.read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, *DAMAGE) as cause:
        got = exception_as_short_line(cause)
        raise error(f"Expected {path} to be whole and readable, got {got}.") from cause


class _Field:
    def __init__(self, one: Field[Any], annotation: Any) -> None:
        self.name, self.annotation, self.extras = one.name, annotation, _parts(annotation)[1]
        self.default = one.default if one.default_factory is MISSING else one.default_factory()
        self.checks = _checks(annotation)

    @cached_property
    def read(self) -> Check:  # asked for only where the value is stored
        return _reader(self.annotation)


@cache
def _fields(kind: Any) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_Field(one, hints[one.name]) for one in fields(kind))


def _parts(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    return (annotation.__origin__, annotation.__metadata__) if get_origin(annotation) is Annotated else (annotation, ())


def _checks(annotation: Any) -> list[Check]:
    kind, extras = _parts(annotation)
    checks = [extra for extra in extras if callable(extra)]
    for check in (check for argument in get_args(kind) for check in _checks(argument)):
        checks.append(check if get_origin(kind) in UNIONS else partial(_check_each, check))
    return [partial(_check_unless_none, check) for check in checks] if NoneType in get_args(kind) else checks


def _check_unless_none(check: Check, name: str, value: Any) -> None:
    if value is not None:
        check(name, value)


def _check_each(check: Check, name: str, values: Any) -> None:
    for value in values.values() if isinstance(values, Mapping) else values:
        check(name, value)


_READERS: Mapping[Any, Check] = {
    Any: lambda name, form: form,
    int: require_integer,
    float: require_finite_number,
    str: require_text,
    bool: require_bool,
    Decimal: require_nonnegative_amount,
}


def _reader(annotation: Any) -> Check:
    kind, extras = _parts(annotation)
    origin, arguments = get_origin(kind), get_args(kind)
    if stated := next((extra.read for extra in extras if isinstance(extra, Read)), _READERS.get(kind)):
        return stated
    if origin in UNIONS:
        kinds = [one for one in arguments if one is not NoneType]
        one = _reader(kinds[0]) if len(kinds) == 1 else partial(_read_one_of, kinds)
        return lambda name, form: None if form is None and NoneType in arguments else one(name, form)
    if origin is tuple:
        one = _reader(arguments[0] if arguments else Literal[()])
        return lambda name, form: tuple(one(name, item) for item in require_list(name, form))
    if origin is Mapping:
        one = _reader(arguments[1])
        return lambda name, form: {key: one(name, item) for key, item in require_json_object(name, form).items()}
    if origin is Literal:
        return partial(_read_choice, {one: one for one in arguments})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_read_choice, {one.value: one for one in kind})
    if is_dataclass(kind):
        whole: Any = getattr(kind, "from_json", None) or partial(from_json, kind)  # type: ignore[arg-type]
        return lambda name, form: whole(require_json_object(name, form))
    raise TypeError(f"Expected {kind} to be a type that can be stored.")


def _read_choice(choices: Mapping[Any, Any], name: str, form: Any) -> Any:
    for one, value in choices.items():
        if type(form) is type(one) and form == one:
            return value
    raise ValueError(f"Expected {name}={form!r} to be one of {', '.join(map(str, choices))}.")


def _read_one_of(kinds: Iterable[type[Any]], name: str, form: Any) -> Any:
    kind, rest = read_kind({kind.__name__: kind for kind in kinds}, name, form, TYPE)
    return from_json(kind, rest)
