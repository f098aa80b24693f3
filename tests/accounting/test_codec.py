"""A stored class is its annotations: what is added here is written, read and refused without another line of code."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest

from dpsweep.accounting.codec import (
    BESIDE,
    OMITTED,
    Amount,
    Checked,
    Count,
    PositiveInt,
    Share,
    Stored,
    Tagged,
    from_json,
    positive,
    to_json,
)
from dpsweep.accounting.errors import BadInput, turn_read_errors_into_refusal


class Shade(StrEnum):
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True, kw_only=True)
class Shape(Tagged):
    pass


@dataclass(frozen=True, kw_only=True)
class Circle(Shape):
    radius: Annotated[float, positive]


@dataclass(frozen=True, kw_only=True)
class Square(Shape):
    side: float


@dataclass(frozen=True, kw_only=True)
class Corner(Stored):
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Picture(Stored):
    """Every kind of field."""

    name: str
    copies: Count
    width: Annotated[float, positive]
    share: Share | None
    framed: bool
    shade: Shade
    price: Amount
    paid: Decimal
    layers: tuple[PositiveInt, ...]
    weights: Mapping[str, Share]
    shape: Circle | Square
    other: Shape
    centre: Corner
    medium: Literal["paper"] = "paper"
    origin: Annotated[Corner, BESIDE]
    title: Annotated[str, OMITTED] = ""


@dataclass(frozen=True, kw_only=True)
class Frame(Stored):
    """Says exactly what it has fields for."""

    width: Annotated[float, positive]
    colours: tuple[str, ...]
    hooks: Count = 2


PICTURE = Picture(
    name="a",
    copies=3,
    width=2,
    share=None,
    framed=True,
    shade=Shade.DARK,
    price=math.inf,
    paid=Decimal("0.10"),
    layers=(1, 2),
    weights={"red": 0.5},
    shape=Circle(radius=1.5),
    other=Square(side=2.0),
    centre=Corner(x=0.0, y=-1.0),
    origin=Corner(x=1.0, y=2.0),
)
FRAME = Frame(width=0.5, colours=("red",))


def test_a_class_round_trips_by_its_annotations() -> None:
    form = json.loads(json.dumps(PICTURE.to_json(), allow_nan=False))
    assert Picture.from_json(form) == PICTURE
    assert Picture.from_json(form).to_json() == PICTURE.to_json()
    assert form == {
        **{"name": "a", "copies": 3, "width": 2, "share": None, "framed": True, "shade": "dark"},
        **{"price": "infinity", "paid": "0.10", "layers": [1, 2], "weights": {"red": 0.5}},
        **{"shape": {"type": "Circle", "radius": 1.5}, "other": {"type": "Square", "side": 2.0}},
        **{"centre": {"x": 0.0, "y": -1.0}, "medium": "paper"},
        **{"x": 1.0, "y": 2.0},
    }
    assert type(Picture.from_json(form).width) is int, (
        "a number keeps its type: identities are hashes of what was stored"
    )


def test_a_field_that_a_class_gains_changes_no_earlier_form() -> None:
    form = PICTURE.to_json()
    assert "title" not in form
    assert Picture.from_json(form | {"title": "b"}).to_json()["title"] == "b"


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        ({"name": 1}, "Expected name=1 to be text."),
        ({"copies": 3.0}, "Expected copies=3.0 to be an integer."),
        ({"copies": True}, "Expected copies=True to be an integer."),
        ({"copies": -1}, "Expected copies=-1 >= 0."),
        ({"width": "2"}, "Expected width='2' to be a number."),
        ({"width": math.nan}, "Expected width=nan to be finite."),
        ({"width": math.inf}, "Expected width=inf to be finite."),
        ({"width": 10**400}, "Expected width=1"),
        ({"width": 0}, "Expected width=0 > 0."),
        ({"width": None}, "Expected width=None to be a number."),
        ({"share": 1.5}, "Expected 0 < share=1.5 <= 1."),
        ({"framed": 1}, "Expected framed=1 to be true or false."),
        ({"shade": "red"}, "Expected shade='red' to be one of light, dark."),
        ({"shade": ["light"]}, "Expected shade=['light'] to be one of light, dark."),
        ({"price": -1.0}, "Expected price=-1.0 to be a number >= 0."),
        ({"price": math.nan}, "Expected price=nan to be a number >= 0."),
        ({"paid": True}, "Expected paid=True to be a number >= 0."),
        ({"layers": [1, 0]}, "Expected layers=0 >= 1."),
        ({"layers": {"0": 1}}, "Expected layers={'0': 1} to be a list."),
        ({"weights": {"red": 2}}, "Expected 0 < weights=2 <= 1."),
        ({"weights": [["red", 0.5]]}, "Expected weights=[['red', 0.5]] to be an object."),
        ({"shape": {"type": "os.system", "radius": 1}}, "Expected shape='os.system' to be one of Circle, Square."),
        ({"other": {"type": "Picture"}}, "Expected Shape='Picture' to be one of Circle, Square."),
        ({"shape": {"type": "Circle", "radius": -1.0}}, "Expected radius=-1.0 > 0."),
        ({"shape": {"type": "Circle", "side": 1.0}}, "Expected radius of Circle to be there."),
        ({"centre": {"x": 0.0}}, "Expected y of Corner to be there."),
        ({"centre": {"x": 0.0, "y": 0.0, "z": 0.0}}, "Expected z to be left out: a stored Corner has no such field."),
        ({"medium": "stone"}, "Expected medium='stone' to be one of paper."),
        ({"x": "1"}, "Expected x='1' to be a number."),
    ],
    ids=str,
)
def test_what_no_field_admits_is_refused_in_one_sentence(edit: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, TypeError)) as refusal:
        Picture.from_json(PICTURE.to_json() | edit)
    assert str(refusal.value).startswith(sentence)
    with (
        pytest.raises(BadInput, match=r"^Expected picture\.json to be as dpsweep wrote it, got .*\.$"),
        turn_read_errors_into_refusal("picture.json"),
    ):
        Picture.from_json(PICTURE.to_json() | edit)


@pytest.mark.parametrize("form", [[], None, "a", 1.5])
def test_what_is_no_object_is_refused(form: Any) -> None:
    with pytest.raises(ValueError, match="to be an object"):
        Frame.from_json(form)


def test_the_rest_of_the_keys_is_one_fields() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Album(Stored):
        name: str
        notes: Annotated[Mapping[str, Any], BESIDE] = field(default_factory=dict)

    form = {"by": ["someone"], "name": "a"}
    assert Album.from_json(form) == Album(name="a", notes={"by": ["someone"]})
    assert Album.from_json(form).to_json() == form


@pytest.mark.parametrize("name", [one.name for one in fields(Frame)])
def test_a_missing_field_is_refused_also_one_with_a_default(name: str) -> None:
    form = {key: value for key, value in FRAME.to_json().items() if key != name}
    with pytest.raises(ValueError, match=f"^Expected {name} of Frame to be there.$"):
        Frame.from_json(form)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Expected sold to be left out: a stored Frame has no such field"):
        Frame.from_json(FRAME.to_json() | {"sold": True})


@pytest.mark.parametrize("edit", [{"width": -1.0}, {"width": math.nan}, {"width": "2"}, {"hooks": -1}, {"hooks": 0.5}])
def test_a_value_that_no_field_admits_cannot_be_made(edit: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=r"^Expected "):
        Frame(**{**vars(FRAME), **edit})


def test_what_a_class_forgets_to_check_is_checked_when_it_is_read() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Forgetful(Checked):
        width: Annotated[float, positive]

        def __post_init__(self) -> None:
            pass

    assert to_json(Forgetful(width=-1.0)) == {"width": -1.0}
    with pytest.raises(ValueError, match=r"Expected width=-1\.0 > 0"):
        from_json(Forgetful, {"width": -1.0})
