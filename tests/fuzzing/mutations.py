"""Changes of stored files: bytes that are cut or changed, and JSON values, keys and types that are others."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Protocol

from hypothesis import strategies as st

from tests.hostile import VALUES, dumped, places, put

Change = Callable[[Any], Any]
"""Makes another value of a value."""


class Damage(Protocol):
    """Makes other bytes of a file's bytes, None for a file that goes; without `forge` it only takes bytes away."""

    def __call__(self, content: bytes, *, forge: bool = True) -> bytes | None: ...


def near(value: Any) -> Any:
    """Another value of the same type, as near as possible."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    if isinstance(value, str):
        return value[:-1] + ("1" if value[-1] == "0" else "0") if value else "0"
    if isinstance(value, list):
        return value[::-1] if value[::-1] != value else [*value, *value]
    return value | {"another": 1} if isinstance(value, dict) else 0


def of_another_type(value: Any) -> Any:
    """The value in another type, which may read as the same."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return float(value) if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return str(value)
    if isinstance(value, str):
        return [value]
    return list(value.items()) if isinstance(value, dict) else {"0": value}


UNICODE = ("\u0000", "\ud800", "\u202e", "\u0663", "\ufb00", "e\u0301", "\U0001f600" * 300)
NUMBERS = (0, -1, 1, 2**31, 2**63, 10**400, 1e308, 5e-324, -0.0, math.nan, math.inf, -math.inf)


def _constant(value: Any) -> Change:
    return lambda _: value


CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.just(near), st.just(of_another_type), st.sampled_from((*VALUES, *UNICODE, *NUMBERS)).map(_constant)
)


def at(form: Any, place: tuple[Any, ...]) -> Any:
    """What lies in that place of a JSON form."""
    for key in place:
        form = form[key]
    return form


def without(form: Any, place: tuple[Any, ...]) -> Any:
    """The form without what lies in that place."""
    if not place:
        return {}
    *above, last = place
    node = at(form, tuple(above))
    kept = {k: v for k, v in node.items() if k != last} if isinstance(node, dict) else node[:last] + node[last + 1 :]
    return put(form, tuple(above), kept)


@st.composite
def changed(draw: st.DrawFn, form: Any) -> Any:
    """The JSON form with one or two values changed, taken out, or put in under a key of its own."""
    for _ in range(draw(st.integers(1, 2))):
        ways = list(places(form))
        place = draw(st.sampled_from(ways)) if ways else ()
        node = at(form, place)
        kind = draw(st.sampled_from(("change", "change", "without", "more")))
        if kind == "without":
            form = without(form, place)
        elif kind == "more" and isinstance(node, dict):
            key = draw(st.sampled_from(("kind", "type", "", "another")))
            form = put(form, place, node | {key: draw(st.sampled_from(VALUES))})
        else:
            form = put(form, place, draw(CHANGES)(node))
    return form


def written(form: Any) -> bytes:
    """The JSON of a form, also where no program would write it."""
    return dumped(form).encode("utf-8", "surrogatepass")


def cut(share: float) -> Damage:
    """The first part of a file."""
    return lambda content, *, forge=True: content[: int(share * len(content))]


def flipped(place: int, bit: int) -> Damage:
    """A file with one bit flipped."""

    def damage(content: bytes, *, forge: bool = True) -> bytes:
        if not content or not forge:
            return b""
        changed = bytearray(content)
        changed[place % len(content)] ^= 1 << bit
        return bytes(changed)

    return damage


def edited(number: int, change: Change) -> Damage:
    """A JSON file with one value changed; another file loses its last line."""

    def damage(content: bytes, *, forge: bool = True) -> bytes:
        if not forge:
            return b"{}"
        try:
            form = json.loads(content)
        except (ValueError, RecursionError):
            return b"".join(content.splitlines(keepends=True)[:-1])
        ways = list(places(form))
        place = ways[number % len(ways)]
        return written(put(form, place, change(at(form, place))))

    return damage


def gone(content: bytes, *, forge: bool = True) -> None:
    """No file."""
    return


def damages() -> st.SearchStrategy[Damage]:
    """Any of these."""
    return st.one_of(
        st.builds(edited, st.integers(0, 10_000), CHANGES),
        st.builds(edited, st.integers(0, 10_000), st.sampled_from((near, of_another_type))),
        st.builds(flipped, st.integers(0, 10_000), st.integers(0, 7)),
        st.floats(0, 0.99).map(cut),
        st.just(gone),
    )
