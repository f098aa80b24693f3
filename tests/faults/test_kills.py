"""Killed at any instant, and gone on with: no look at the records that was not charged, the same report in the end."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.records.plan import Plan
from tests.faults.ground import CHECKPOINTS, FAULTS, HIDING, SHARDS, SWEEP, Ground, agree, spread
from tests.faults.instants import Stroke

pytestmark = FAULTS

Make = Callable[[tuple[str, ...]], Ground]

INSTANTS = 330
"""No fewer than an undisturbed sweep of two trials has, and no more than that by a fifth."""

ENDS = (ExitCode.DONE, ExitCode.DONE_WITH_FAILURES)
"""How a run ends that was not struck; tries that were killed before are failures."""


def strike(ground: Ground, at: int) -> bool:
    """Kills the command at this instant; False where it ended before."""
    done = ground.run(Stroke.KILL, at)
    killed = done.code == -signal.SIGKILL
    assert killed or done.code in ENDS, f"instant {at}: {done.err}"
    try:
        ground.check()
    except Exception as broken:
        broken.add_note(f"killed at instant {ground.instants()[-1]}; the ground: {ground.root}")
        raise
    return killed


def strike_at_random(ground: Ground, kills: int, chance: Random) -> None:
    """Kills the command so often, each time where the one before it had left it."""
    latest = INSTANTS
    while kills:
        if strike(ground, chance.randrange(1, latest)):
            kills -= 1
        else:
            latest = 1 + len(ground.instants())


def verbs_agree(ground: Ground) -> None:
    """The commands that look at a sweep find nothing wrong with it."""
    folder = str(ground.folder.root)
    verified, *others = (
        ground.verb(*words) for words in (("verify", folder), ("budget", "dataset=digits"), ("report", folder))
    )
    for done in (verified, *others):
        assert done.code == 0, done.err
    assert "all paid" in verified.out


def test_an_undisturbed_sweep_looks_exactly_as_often_as_it_was_charged_for_without_crashes(undisturbed: Ground) -> None:
    plan = Plan.read(undisturbed.folder.plan)
    assert undisturbed.looks == {
        (trial.id, 1, look): times for trial in plan.trials for look, times in (("step", 4), ("score", 1))
    }
    assert len(undisturbed.ledger.statement("digits").charges) == 1
    assert len(undisturbed.instants()) < INSTANTS


@pytest.mark.parametrize(
    ("words", "kills"),
    [
        pytest.param(CHECKPOINTS, 6, id="checkpoints"),
        pytest.param((*CHECKPOINTS, "plan.spare_attempts=2"), 4, id="spares", marks=pytest.mark.long),
        pytest.param((), 4, id="nothing", marks=pytest.mark.long),
    ],
)
def test_random_kills_lose_no_charge_and_change_no_report(
    ground: Make, reference: Make, chance: Random, words: tuple[str, ...], kills: int
) -> None:
    struck = ground((*SWEEP, *words))
    strike_at_random(struck, kills, chance)
    struck.finish()
    verbs_agree(struck)
    agree(struck, reference((*SWEEP, *(CHECKPOINTS if words else ()))))


def test_random_kills_of_a_hiding_search_replace_no_try_and_let_out_the_winner_alone(
    ground: Make, chance: Random
) -> None:
    struck = ground((*SWEEP, *CHECKPOINTS, *HIDING))
    strike_at_random(struck, 6, chance)
    finish_search(struck)


def finish_search(ground: Ground) -> None:
    """Ends a search that was struck, and looks for its winner where its draw says, and for losers in its release."""
    for _ in range(2):
        done = ground.run()
        ground.check()
        assert done.code in ENDS, done.err
    (charge,) = ground.ledger.statement("digits").charges
    draw, outcome = (json.loads(path.read_text()) for path in (ground.folder.draw, ground.folder.outcome))
    plan = Plan.read(ground.folder.plan)
    tries = [trial.id for trial in ground.folder.runs(plan)]
    assert len(tries) == len(draw["tries"])
    scores = {
        place: score for place, trial in enumerate(tries) if (score := _score(ground.folder.trial(trial))) is not None
    }
    best = max(scores.values(), default=None)
    assert outcome["winner"] == next((place for place, score in scores.items() if score == best), None)
    for trial in tries:
        claims = {path.name for path in ground.folder.trial(trial).glob("claim-*")}
        assert "claim-2" not in claims
    assert "dpsweep" not in charge.body
    released = ground.verb("release", str(ground.folder.root))
    assert released.code == 0, released.err
    out = b"".join(path.read_bytes() for path in (ground.folder.root / "release").rglob("*") if path.is_file())
    for trial in tries:
        assert trial.encode() not in out
    for place, score in scores.items():
        assert place == outcome["winner"] or repr(score).encode() not in out


def _score(place: Path) -> float | None:
    path = place / "result.json"
    if not path.exists():
        return None
    score: float = json.loads(path.read_text())["score"]["value"]
    return score


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize(
    ("words", "every"),
    [pytest.param(CHECKPOINTS, 2, id="points"), pytest.param((*CHECKPOINTS, *HIDING), 4, id="search")],
)
def test_a_kill_at_instants_all_over_the_sweep(
    tmp_path: Path, undisturbed: Ground, chance: Random, words: tuple[str, ...], every: int, shard: int
) -> None:
    """About every other one of a sweep, and every fourth of a search; another choice each time."""
    for at in spread(chance, 1, INSTANTS, every, shard):
        struck = Ground.at(tmp_path / str(at), (*SWEEP, *words))
        strike(struck, at)
        if HIDING[0] in words:
            finish_search(struck)
        else:
            struck.finish()
            agree(struck, undisturbed)


@pytest.mark.long
@pytest.mark.parametrize("session", range(6))
def test_many_kills_of_one_sweep_at_random_times(
    ground: Make, undisturbed: Ground, chance: Random, session: int
) -> None:
    """By the clock, which also strikes where nothing is written."""
    struck = ground((*SWEEP, *CHECKPOINTS))
    for _ in range(10):
        run = struck.begin()
        run.kill_after(chance.uniform(0.1, 4))
        assert run.wait().code in (-signal.SIGKILL, 0)
        struck.check()
    struck.finish()
    agree(struck, undisturbed)
