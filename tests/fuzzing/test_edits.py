"""`verify` finds every change of a value that a page shows: each value of each file of a finished sweep in turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpsweep.sweeper.searches.admission import Retry
from tests.fuzzing import commands
from tests.fuzzing.mutations import at, near, of_another_type, without, written
from tests.fuzzing.sweep_machine import ENDED
from tests.fuzzing.world import PLANS, World, planned
from tests.hostile import places, put
from tests.randomized import SEARCHES

pytestmark = SEARCHES


def ways(form: Any, place: tuple[Any, ...]) -> list[Any]:
    """The form with what lies there changed as little as possible, in another type, without end, and taken out."""
    others = [put(form, place, change(at(form, place))) for change in (near, of_another_type)]
    return [*others, put(form, place, "infinity"), without(form, place)]


def _there(form: Any, place: tuple[Any, ...]) -> str:
    try:
        return repr(at(form, place))
    except (KeyError, IndexError, TypeError):
        return "taken out"


def unfound(world: World, folder: Path) -> list[str]:
    """The edits that change what a page says and that `verify` does not find."""
    before, words, missed = world.meaning(folder), world.verified(folder), []
    for path in sorted(folder.rglob("*.json")):
        content = path.read_bytes()
        form = json.loads(content)
        for place in places(form):
            for edited in ways(form, place):
                path.write_bytes(written(edited))
                if world.verified(folder) == words and world.meaning(folder) != before:
                    missed.append(f"{path.name}: {place} is {_there(edited, place)}")
        path.write_bytes(content)
    return missed


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS)
def test_verify_finds_each_edit_of_a_finished_sweep(tmp_path: Path, plan: str) -> None:
    world = World.at(tmp_path, *planned(PLANS[plan]))
    folder = world.folder("a")
    for seed in range(3):
        code = world.do(commands.sweep, folder, Retry.KILLED, seed)
    assert code in ENDED
    assert world.verified(folder)
    assert unfound(world, folder) == []
