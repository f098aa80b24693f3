"""Stored values: frozen dataclasses and their JSON form, in both directions, by the annotations of their fields.

A stored class is a frozen dataclass below `Stored`; its annotations say all that there is to say. The form is an object
with a key for each field. A type says what is read: `int`, `float` (finite, kept in its own type, as identities are
hashes of what was stored), `str`, `bool`, `None`, `Decimal` (an amount), an enum, a `Literal`, `tuple[X, ...]` and
`Mapping[str, X]`, another dataclass, or a union of dataclasses, told apart by the key `type` with the class's name.
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
from functools import cache, partial
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
Found = TypeVar("Found")
Check = Callable[[str, Any], object]

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

    UNSTORED = auto()
    """Nowhere; a value that was read has the default."""


OMITTED, INLINE, REST, UNSTORED = KeyPlace.OMITTED, KeyPlace.INLINE, KeyPlace.REST, KeyPlace.UNSTORED


@dataclass(frozen=True, kw_only=True)
class StoredForm:
    """How a value is stored: `read` takes its name and its form, `write` gives its form.

    `keys` are those of the form of an `INLINE` value.
    """

    read: Callable[[str, Any], Any]
    write: Callable[[Any], Any]
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
    for field in _stored_fields_of_class(value.__class__):
        own = getattr(value, field.name)
        if field.place is INLINE:
            form |= field.form.write(own)
        elif field.place is REST:
            form = field.form.write(own) | form
        elif field.place is not UNSTORED and (field.place is not OMITTED or own != field.default):
            form[field.name] = field.form.write(own)
    return form


def from_json(kind: type[Value], form: Any) -> Value:
    """The value of a class in a form; raises ValueError or TypeError unless the form says exactly that."""
    form = require_json_object(kind.__name__, form)
    own = _stored_fields_of_class(kind)
    known = _json_keys_of_class(kind)
    others = {} if form.keys() <= known else {key: value for key, value in form.items() if key not in known}
    values: dict[str, Any] = {}
    for field in own:
        if field.place is REST:
            values[field.name], others = field.form.read(field.name, others), {}
        elif field.place is INLINE:
            values[field.name] = field.form.read(field.name, {key: form[key] for key in field.json_keys if key in form})
        elif field.name in form and field.place is not UNSTORED:
            values[field.name] = field.form.read(field.name, form[field.name])
        elif field.place is not OMITTED and field.place is not UNSTORED:
            raise ValueError(f"Expected {field.name} of {kind.__name__} to be there.")
    if others:
        names = ", ".join(sorted(known)) or "nothing"
        raise ValueError(f"Expected {min(others)} to be left out: a stored {kind.__name__} has only {names}.")
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
    for name, check in _checks_by_field_name(type(value)):
        check(name, getattr(value, name))


def names_of_checked_fields(kind: type) -> frozenset[str]:
    """The names of the fields that a check asks about."""
    return frozenset(name for name, _ in _checks_by_field_name(kind))


def _cache_by_class(find: Callable[[Any], Found]) -> Callable[[Any], Found]:
    """Finds each class's value once."""
    return cache(find)


@dataclass(frozen=True, kw_only=True)
class _Field:
    name: str
    form: StoredForm
    place: KeyPlace | None
    default: Any

    @property
    def json_keys(self) -> tuple[str, ...]:
        """The keys that hold the field."""
        if self.place is INLINE:
            return self.form.keys()
        return () if self.place in (REST, UNSTORED) else (self.name,)


@_cache_by_class
def _stored_fields_of_class(kind: Any) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_stored_field_from_annotation(one, hints[one.name]) for one in fields(kind))


def _stored_field_from_annotation(one: Field[Any], annotation: Any) -> _Field:
    place = next((extra for extra in _extras_of_annotated_type(annotation) if isinstance(extra, KeyPlace)), None)
    return _Field(
        name=one.name,
        form=_FORMS[Any] if place is UNSTORED else _codec_for_annotation(annotation),
        place=place,
        default=one.default if one.default_factory is MISSING else one.default_factory(),
    )


@_cache_by_class
def _json_keys_of_class(kind: Any) -> frozenset[str]:
    return frozenset(key for field in _stored_fields_of_class(kind) for key in field.json_keys)


@_cache_by_class
def _checks_by_field_name(kind: Any) -> tuple[tuple[str, Check], ...]:
    """Each field's name with a check."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple((one.name, check) for one in fields(kind) for check in _checks_of_annotation(hints[one.name]))


def _checks_of_annotation(annotation: Any) -> list[Check]:
    """The checks of a value of this type, and of what it holds; none of them is asked about None."""
    plain = _type_without_annotated_extras(annotation)
    checks = [extra for extra in _extras_of_annotated_type(annotation) if callable(extra)]
    for argument in get_args(plain):
        if get_origin(plain) in (Union, UnionType):
            checks += _checks_of_annotation(argument)
        elif get_origin(plain) is not Literal:
            checks += [partial(_check_each_element, check) for check in _checks_of_annotation(argument)]
    return [partial(_run_check_unless_none, check) for check in checks] if NoneType in get_args(plain) else checks


def _run_check_unless_none(check: Check, name: str, value: Any) -> None:
    if value is not None:
        check(name, value)


def _check_each_element(check: Check, name: str, values: Any) -> None:
    for value in values.values() if isinstance(values, Mapping) else values:
        check(name, value)


def _codec_for_annotation(annotation: Any) -> StoredForm:
    """How a value of this type is stored."""
    own = next((extra for extra in _extras_of_annotated_type(annotation) if isinstance(extra, StoredForm)), None)
    return own or _codec_for_plain_type(_type_without_annotated_extras(annotation))


def _codec_for_plain_type(plain: Any) -> StoredForm:
    origin, arguments = get_origin(plain), get_args(plain)
    if plain in _FORMS:
        return _FORMS[plain]
    if origin in (Union, UnionType):
        return _codec_for_union(arguments)
    if origin in (tuple, Sequence):
        one = _codec_for_annotation(arguments[0]) if arguments else _codec_for_choices({})
        return StoredForm(
            read=lambda name, stored: tuple(one.read(name, item) for item in require_list(name, stored)),
            write=lambda value: [one.write(item) for item in value],
        )
    if isinstance(origin, type) and issubclass(origin, Mapping):
        one = _codec_for_annotation(arguments[1])
        return StoredForm(
            read=lambda name, stored: {
                key: one.read(name, item) for key, item in require_json_object(name, stored).items()
            },
            write=lambda value: {key: one.write(item) for key, item in value.items()},
        )
    if origin is Literal:
        return _codec_for_choices({one: one for one in arguments})
    if isinstance(plain, type) and issubclass(plain, Enum):
        return _codec_for_choices({one.value: one for one in plain})
    if is_dataclass(plain):  # its own halves may also say what follows from its fields
        kind: Any = plain
        read = getattr(kind, "from_json", None) or partial(from_json, kind)
        return StoredForm(
            read=lambda name, stored: read(require_json_object(name, stored)),
            write=getattr(kind, "to_json", to_json),
            keys=lambda: tuple(_json_keys_of_class(kind)),
        )
    raise TypeError(f"Expected {plain} to be a type that can be stored.")


def _codec_for_choices(choices: Mapping[Any, Any]) -> StoredForm:
    def read_choice(name: str, stored: Any) -> Any:
        for form, value in choices.items():
            if type(stored) is type(form) and stored == form:
                return value
        raise ValueError(f"Expected {name}={stored!r} to be one of {', '.join(map(str, choices))}.")

    forms = {value: form for form, value in choices.items()}
    return StoredForm(read=read_choice, write=lambda value: forms.get(value, value))


def _codec_for_union(options: tuple[Any, ...]) -> StoredForm:
    rest = [option for option in options if option is not NoneType]
    form = _codec_for_annotation(rest[0]) if len(rest) == 1 else codec_with_class_tag(*rest)
    if len(rest) == len(options):
        return form
    return StoredForm(
        read=lambda name, stored: None if stored is None else form.read(name, stored),
        write=lambda value: None if value is None else form.write(value),
    )


def codec_with_class_tag(*kinds: type) -> StoredForm:
    """How a value of one of several classes is stored: beside its fields, `type` has its class's name."""
    by_name = {kind.__name__: kind for kind in kinds}

    def read_by_class_tag(name: str, stored: Any) -> Any:
        form = require_json_object(name, stored)
        if not isinstance(tag := form.get(TYPE), str) or tag not in by_name:
            raise ValueError(f"Expected {name}={tag!r} to be one of {', '.join(sorted(by_name))}.")
        return from_json(by_name[tag], {key: value for key, value in form.items() if key != TYPE})

    return StoredForm(read=read_by_class_tag, write=lambda value: {TYPE: type(value).__name__} | to_json(value))


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


def _codec_without_conversion(check: Check) -> StoredForm:
    """A value that is its own form: what was read keeps its type, as identities are hashes of what was stored."""

    def read_unchanged(name: str, stored: Any) -> Any:
        check(name, stored)
        return stored

    return StoredForm(read=read_unchanged, write=lambda value: value)


_FORMS: Mapping[Any, StoredForm] = {
    Any: _codec_without_conversion(lambda name, stored: None),
    int: _codec_without_conversion(require_integer),
    float: _codec_without_conversion(require_finite_number),
    str: _codec_without_conversion(require_text),
    bool: _codec_without_conversion(require_bool),
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


def _extras_of_annotated_type(annotation: Any) -> tuple[Any, ...]:
    """What `Annotated` adds to a type."""
    return annotation.__metadata__ if get_origin(annotation) is Annotated else ()


def _type_without_annotated_extras(annotation: Any) -> Any:
    return annotation.__origin__ if get_origin(annotation) is Annotated else annotation
