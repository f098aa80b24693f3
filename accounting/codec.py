"""Stored values: frozen dataclasses and their JSON form, in both directions, by the annotations of their fields.

A stored class is a frozen dataclass below `Stored`; its annotations say all that there is to say. The form is an object
with a key for each field. A type says what is read: `int`, `float` (finite, kept in its own type, as identities are
hashes of what was stored), `str`, `bool`, `None`, `Decimal` (an amount), an enum, a `Literal`, `tuple[X, ...]` and
`Mapping[str, X]`, another dataclass, or one of several `Tagged` ones: a union of them, or their common base class.
`Annotated[X, ...]` adds to a type:

* a check, a function of a name and a value that raises (`accounting/validation.py`). It holds whenever a value is made,
  whoever makes it, and for each item of a tuple or mapping of that type; it is not asked about None;
* a `StoredForm`, for a value that is stored in another way than its type says;
* a `KeyPlace`, for a field that is stored elsewhere than under its name.

Invariants: a form says exactly what its class has fields for. A missing key, an unknown key, another type and a number
that no field admits raise ValueError or TypeError with one sentence, which `accounting/validation.py` completes with
the name of the file. Reading calls nothing but the class and its checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from decimal import Decimal
from enum import Enum, auto
from functools import cache, cached_property, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from dpsweep.accounting.durable_files import replace_infinities_by_words
from dpsweep.accounting.errors import BadInput, DpsweepError
from dpsweep.accounting.validation import (
    DAMAGE,
    bound,
    count,
    exception_as_short_line,
    fraction,
    non_negative,
    positive_int,
    require_bool,
    require_finite_number,
    require_integer,
    require_json_object,
    require_list,
    require_number_between,
    require_text,
    share,
)

Value = TypeVar("Value")
Check = Callable[[str, Any], object]

UNIONS = (Union, UnionType)

TYPE = "type"
"""The key of the class's name, where a field may hold one of several classes."""


class KeyPlace(Enum):
    """Where a field is stored, if not under its name."""

    OMITTED = auto()
    """Under its name, but left out at its default: so a field that a class gains later changes no earlier form."""

    INLINE = auto()
    """The keys of the value's own form lie beside those of the other fields."""

    REST = auto()
    """A mapping, the last field: all keys that no other field has."""


OMITTED, INLINE, REST = KeyPlace.OMITTED, KeyPlace.INLINE, KeyPlace.REST


@dataclass(frozen=True, kw_only=True)
class StoredForm:
    """How a value is stored: `read` takes its name and its form, `write` gives its form.

    `keys` are those of the form of an `INLINE` value.
    """

    read: Callable[[str, Any], Any]
    write: Callable[[Any], Any] = lambda value: value.to_json()
    keys: Callable[[], tuple[str, ...]] = tuple


class Checked:
    """A frozen dataclass whose checks hold for whoever makes it; a `__post_init__` of its own calls this one."""

    def __post_init__(self) -> None:
        check_fields(self)


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

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal value."""
        return {TYPE: type(self).__name__} | to_json(self)

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Self:
        """Reads the form of one of this class's subclasses, or, if it has none, of this class."""
        value: Self = _read_by_tag(cls.__subclasses__() or [cls], cls.__name__, form)
        return value


def to_json(value: Any) -> dict[str, Any]:
    """The form of a dataclass.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Step(Stored):
    ...     number: Count
    ...     loss: float
    >>> to_json(Step(number=3, loss=0.5)), from_json(Step, {"number": 3, "loss": 0.5})
    ({'number': 3, 'loss': 0.5}, Step(number=3, loss=0.5))
    >>> from_json(Step, {"number": -3, "loss": 0.5})
    Traceback (most recent call last):
    ValueError: Expected number=-3 >= 0.
    """
    form: dict[str, Any] = {}
    for field in _fields_of_class(value.__class__):
        own = getattr(value, field.name)
        if field.place in (INLINE, REST):
            form = field.form.write(own) | form
        elif field.place is not OMITTED or own != field.default:
            form[field.name] = field.form.write(own)
    return form


def from_json(kind: type[Value], form: Any) -> Value:
    """The value of a class in a form; raises ValueError or TypeError unless the form says exactly that."""
    rest = dict(require_json_object(kind.__name__, form))
    values: dict[str, Any] = {}
    for field in _fields_of_class(kind):  # type: ignore[arg-type]
        if field.place is REST:
            values[field.name], rest = field.form.read(field.name, rest), {}
        elif field.place is INLINE:
            inner = {key: rest.pop(key) for key in rest.keys() & field.form.keys()}
            values[field.name] = field.form.read(field.name, inner)
        elif field.name in rest:
            values[field.name] = field.form.read(field.name, rest.pop(field.name))
        elif field.place is not OMITTED:
            raise ValueError(f"Expected {field.name} of {kind.__name__} to be there.")
    if rest:
        raise ValueError(f"Expected {min(rest)} to be left out: a stored {kind.__name__} has no such field.")
    value = kind(**values)
    if getattr(kind, "__post_init__", None) is not Checked.__post_init__:  # which has checked all
        check_fields(value)
    return value


def parse_json_file_or_none(
    path: Path, read: Callable[[Any], Value], error: type[DpsweepError] = BadInput
) -> Value | None:
    """The result of `read` on a stored JSON file, None if there is no file; a damaged file is refused by this error."""
    try:
        return read(json.loads(path.read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, *DAMAGE) as cause:
        raise error(f"Expected {path} to be whole and readable, got {exception_as_short_line(cause)}.") from cause


def check_fields(value: Any) -> None:
    """Raises ValueError or TypeError unless every field may have its value."""
    for field in _fields_of_class(value.__class__):
        for check in field.checks:
            check(field.name, getattr(value, field.name))


class _Field:
    """A field of a stored class; its form is asked for only where it is stored."""

    def __init__(self, one: Field[Any], annotation: Any) -> None:
        places = (extra for extra in _type_and_extras(annotation)[1] if isinstance(extra, KeyPlace))
        self.name = one.name
        self.place = next(places, None)
        self.default = one.default if one.default_factory is MISSING else one.default_factory()
        self.checks = _checks_of_annotation(annotation)
        self.annotation = annotation

    @cached_property
    def form(self) -> StoredForm:
        """How its value is stored."""
        return _form_of_annotation(self.annotation)


@cache
def _fields_of_class(kind: Any) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_Field(one, hints[one.name]) for one in fields(kind))


def _type_and_extras(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type, and what `Annotated` adds to it."""
    return (annotation.__origin__, annotation.__metadata__) if get_origin(annotation) is Annotated else (annotation, ())


def _checks_of_annotation(annotation: Any) -> list[Check]:
    """The checks of a value of this type, and of what it holds; none of them is asked about None."""
    plain, extras = _type_and_extras(annotation)
    checks = [extra for extra in extras if callable(extra)]
    for check in (check for argument in get_args(plain) for check in _checks_of_annotation(argument)):
        checks.append(check if get_origin(plain) in UNIONS else partial(_check_each_element, check))
    return [partial(_run_check_unless_none, check) for check in checks] if NoneType in get_args(plain) else checks


def _run_check_unless_none(check: Check, name: str, value: Any) -> None:
    if value is not None:
        check(name, value)


def _check_each_element(check: Check, name: str, values: Any) -> None:
    for value in values.values() if isinstance(values, Mapping) else values:
        check(name, value)


def _form_of_annotation(annotation: Any) -> StoredForm:
    """How a value of this type is stored."""
    plain, extras = _type_and_extras(annotation)
    origin, arguments = get_origin(plain), get_args(plain)
    if stated := next((extra for extra in extras if isinstance(extra, StoredForm)), _FORMS.get(plain)):
        return stated
    if origin in UNIONS:
        kinds = [one for one in arguments if one is not NoneType]
        one = _form_of_annotation(kinds[0]) if len(kinds) == 1 else StoredForm(read=partial(_read_by_tag, kinds))
        return StoredForm(
            read=lambda name, stored: None if stored is None and NoneType in arguments else one.read(name, stored),
            write=lambda value: None if value is None else one.write(value),
        )
    if origin is tuple:
        one = _form_of_annotation(arguments[0] if arguments else Literal[()])
        return StoredForm(
            read=lambda name, stored: tuple(one.read(name, item) for item in require_list(name, stored)),
            write=lambda value: [one.write(item) for item in value],
        )
    if origin is Mapping:
        one = _form_of_annotation(arguments[1])
        return StoredForm(
            read=lambda name, stored: {
                key: one.read(name, item) for key, item in require_json_object(name, stored).items()
            },
            write=lambda value: {key: one.write(item) for key, item in value.items()},
        )
    if origin is Literal:
        return _form_of_choices({one: one for one in arguments})
    if isinstance(plain, type) and issubclass(plain, Enum):
        return _form_of_choices({one.value: one for one in plain})
    if is_dataclass(plain):  # its own halves may also say what follows from its fields
        kind: Any = plain
        read = getattr(kind, "from_json", None) or partial(from_json, kind)
        return StoredForm(
            read=lambda name, stored: read(require_json_object(name, stored)),
            write=getattr(kind, "to_json", to_json),
            keys=lambda: tuple(field.name for field in fields(kind)),
        )
    raise TypeError(f"Expected {plain} to be a type that can be stored.")


def _form_of_choices(choices: Mapping[Any, Any]) -> StoredForm:
    def read_choice(name: str, stored: Any) -> Any:
        for form, value in choices.items():
            if type(stored) is type(form) and stored == form:
                return value
        raise ValueError(f"Expected {name}={stored!r} to be one of {', '.join(map(str, choices))}.")

    forms = {value: form for form, value in choices.items()}
    return StoredForm(read=read_choice, write=lambda value: forms.get(value, value))


def _read_by_tag(kinds: Sequence[type], name: str, stored: Any) -> Any:
    form = dict(require_json_object(name, stored))
    tag = form.pop(TYPE, None)
    for kind in kinds:
        if kind.__name__ == tag:
            return from_json(kind, form)
    raise ValueError(f"Expected {name}={tag!r} to be one of {', '.join(sorted(kind.__name__ for kind in kinds))}.")


def shortest_decimal_of_float(value: float) -> Decimal:
    """The shortest decimal that denotes a float: ten times 1e-5 is 1e-4."""
    return Decimal(repr(float(value)))


def require_nonnegative_amount(name: str, value: object) -> Decimal:
    """A stored amount of a charge or a balance; never negative, since no charge gives back."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"Expected {name}={value!r} to be a number >= 0.")
    amount = Decimal(value) if isinstance(value, str) else shortest_decimal_of_float(value)
    if amount.is_nan() or not amount >= 0 or (amount.is_finite() and amount.adjusted() > 308):
        raise ValueError(f"Expected {name}={value!r} to be a number >= 0.")
    return amount


def _form_without_conversion(check: Check) -> StoredForm:
    """A value that is its own form: what was read keeps its type, as identities are hashes of what was stored."""

    def read_unchanged(name: str, stored: Any) -> Any:
        check(name, stored)
        return stored

    return StoredForm(read=read_unchanged, write=lambda value: value)


_FORMS: Mapping[Any, StoredForm] = {
    Any: _form_without_conversion(lambda name, stored: None),
    int: _form_without_conversion(require_integer),
    float: _form_without_conversion(require_finite_number),
    str: _form_without_conversion(require_text),
    bool: _form_without_conversion(require_bool),
    Decimal: StoredForm(read=require_nonnegative_amount, write=str),
}

Count = Annotated[int, count]
"""An integer, 0 or above."""

PositiveInt = Annotated[int, positive_int]
"""An integer, 1 or above."""

Amount = Annotated[
    float,
    bound,
    StoredForm(
        read=lambda name, stored: float(require_nonnegative_amount(name, stored)), write=replace_infinities_by_words
    ),
]
"""A number, 0 or above; infinity is stored as a word."""

Share = Annotated[float, share]
"""A number in (0, 1]."""

Fraction = Annotated[float, fraction]
"""A number strictly between 0 and 1."""

Delta = Annotated[float, partial(require_number_between, above=0, below=1)]
"""A failure probability."""

NonNegative = Annotated[float, non_negative]
"""A finite number, 0 or above."""

Positive = Annotated[float, partial(require_number_between, above=0)]
"""A finite number above 0."""

Words = Annotated[Mapping[str, Any], StoredForm(read=require_json_object, write=replace_infinities_by_words)]
"""Any values by name, with each infinity stored as a word."""
