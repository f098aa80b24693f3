"""What jobs are told reaches them unchanged."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from sweeper.runner import overrides, wave_size


@pytest.mark.parametrize(
    "name", ["488993726622", "12e45678", "00000001", "1_000", "null", "true", "a b", "it's", "a\\b"]
)
def test_names_that_look_like_something_else_stay_names(name: str) -> None:
    (parsed,) = OverridesParser.create().parse_overrides(overrides({"block": name}))
    value = parsed.value()
    assert isinstance(value, str)
    assert value == name


@given(st.from_regex(r"[0-9a-f]{12}", fullmatch=True))
def test_every_identity_survives(identity: str) -> None:
    (parsed,) = OverridesParser.create().parse_overrides(overrides({"plan": identity}))
    assert parsed.value() == identity


def test_numbers_and_nothing_keep_their_types() -> None:
    parsed = OverridesParser.create().parse_overrides(overrides({"compute.threads": 2, "data": None}))
    assert [override.value() for override in parsed] == [2, None]


@pytest.mark.parametrize(
    ("launcher", "given_size", "size"),
    [({}, None, 1), ({"n_jobs": 2}, None, 2), ({"n_jobs": 2}, 5, 5), ({"n_jobs": 3}, 0, 1)],
)
def test_a_wave_is_as_large_as_the_launcher(launcher: dict[str, int], given_size: int | None, size: int) -> None:
    """What is launched counts as started, so no more is launched than runs at once."""
    assert wave_size(OmegaConf.create({"hydra": {"launcher": launcher}}), given_size) == size
