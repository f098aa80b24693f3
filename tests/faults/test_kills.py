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
from dpsweep.accounting.searches.interface import search_for_plan
from tests.faults.sandbox import CHECKPOINTS, FAULTS, HIDING, SHARDS, SWEEP, Sandbox, agree, spread
from tests.faults.syscalls import Stroke

pytestmark = FAULTS

Make = Callable[[tuple[str, ...]], Sandbox]

INSTANTS = 320
"""No fewer than an undisturbed sweep of two trials has, and no more than that by a fifth."""

MANY = (
    "compute.together=16",
    "trainer.lr=1,1.5,2,2.5,3,3.5",
    "sampler._target_=dpsweep.trainers.declarations.batch_sampling.Poisson",
    "score._target_=dpsweep.trainers.declarations.scores.PrivateHoldout",
)
"""Twelve points in one job, more than follow one another when files are flushed; looks at records are not logged."""

ENDS = (ExitCode.DONE, ExitCode.DONE_WITH_FAILURES)
"""How a run ends that was not killed; tries that were killed before are failures."""


def kill_at(sandbox: Sandbox, at: int) -> bool:
    """Kills the command at this instant; False where it ended before."""
    done = sandbox.run(Stroke.KILL, at)
    killed = done.code == -signal.SIGKILL
    assert killed or done.code in ENDS, f"instant {at}: {done.err}"
    try:
        sandbox.check()
    except Exception as broken:
        broken.add_note(f"killed at instant {sandbox.instants()[-1]}; the sandbox: {sandbox.root}")
        raise
    return killed


def kill_at_random(sandbox: Sandbox, kills: int, chance: Random) -> None:
    """Kills the command so often, each time where the one before it had left it."""
    latest = INSTANTS
    while kills:
        if kill_at(sandbox, chance.randrange(1, latest)):
            kills -= 1
        else:
            latest = 1 + len(sandbox.instants())


def verbs_agree(sandbox: Sandbox) -> None:
    """The commands that look at a sweep find nothing wrong with it."""
    folder = str(sandbox.folder.root)
    verified, *others = (
        sandbox.verb(*words) for words in (("verify", folder), ("budget", "dataset=digits"), ("report", folder))
    )
    for done in (verified, *others):
        assert done.code == 0, done.err
    assert "all paid" in verified.out


def test_an_undisturbed_sweep_looks_exactly_as_often_as_it_was_charged_for_without_crashes(
    undisturbed: Sandbox,
) -> None:
    plan = Plan.read(undisturbed.folder.plan_path)
    assert undisturbed.looks == {
        (trial.id, 1, look): times for trial in plan.trials for look, times in (("step", 4), ("score", 1))
    }
    assert len(undisturbed.ledger.statement("digits").charges) == 1
    assert len(undisturbed.instants()) < INSTANTS


@pytest.mark.parametrize(
    ("words", "kills"),
    [
        pytest.param(CHECKPOINTS, 3, id="checkpoints"),
        pytest.param(CHECKPOINTS, 6, id="checkpoints, more kills", marks=pytest.mark.long),
        pytest.param((*CHECKPOINTS, "plan.spare_attempts=2"), 4, id="spares", marks=pytest.mark.long),
        pytest.param((), 4, id="nothing", marks=pytest.mark.long),
    ],
)
def test_random_kills_lose_no_charge_and_change_no_report(
    sandbox: Make, reference: Make, chance: Random, words: tuple[str, ...], kills: int
) -> None:
    box = sandbox((*SWEEP, *words))
    kill_at_random(box, kills, chance)
    box.finish()
    verbs_agree(box)
    agree(box, reference((*SWEEP, *(CHECKPOINTS if words else ()))))


@pytest.mark.long
def test_random_kills_while_files_of_many_points_are_flushed_together_lose_no_charge(
    sandbox: Make, chance: Random
) -> None:
    box = sandbox((*SWEEP, *CHECKPOINTS, *MANY))
    for _ in range(8):
        kill_at(box, chance.randrange(1, 4 * INSTANTS))
    box.finish(most=6)
    verbs_agree(box)


@pytest.mark.parametrize("kills", [3, pytest.param(8, marks=pytest.mark.long)])
def test_random_kills_of_a_hiding_search_replace_no_try_and_let_out_the_winner_alone(
    sandbox: Make, chance: Random, kills: int
) -> None:
    box = sandbox((*SWEEP, *CHECKPOINTS, *HIDING))
    kill_at_random(box, kills, chance)
    finish_search(box)


def finish_search(sandbox: Sandbox) -> None:
    """Ends a search that was killed, and looks for its winner where its draw says, and for losers in its release."""
    for _ in range(2):
        done = sandbox.run()
        sandbox.check()
        assert done.code in ENDS, done.err
    (charge,) = sandbox.ledger.statement("digits").charges
    draw, outcome = (json.loads(path.read_text()) for path in (sandbox.folder.draw_path, sandbox.folder.outcome_path))
    plan = Plan.read(sandbox.folder.plan_path)
    tries = [trial.id for trial in search_for_plan(plan, sandbox.folder).search_and_final_runs()]
    assert len(tries) == len(draw["tries"])
    scores = {
        place: score
        for place, trial in enumerate(tries)
        if (score := _score(sandbox.folder.trial_folder(trial))) is not None
    }
    best = max(scores.values(), default=None)
    assert outcome["winner"] == next((place for place, score in scores.items() if score == best), None)
    for trial in tries:
        claims = {path.name for path in sandbox.folder.trial_folder(trial).glob("claim-*")}
        assert "claim-2" not in claims
    assert "dpsweep" not in charge.body
    released = sandbox.verb("release", str(sandbox.folder.root))
    assert released.code == 0, released.err
    out = b"".join(path.read_bytes() for path in (sandbox.folder.root / "release").rglob("*") if path.is_file())
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
    tmp_path: Path, undisturbed: Sandbox, chance: Random, words: tuple[str, ...], every: int, shard: int
) -> None:
    """About every other one of a sweep, and every fourth of a search; another choice each time."""
    for at in spread(chance, 1, INSTANTS, every, shard):
        box = Sandbox.at(tmp_path / str(at), (*SWEEP, *words))
        kill_at(box, at)
        if HIDING[0] in words:
            finish_search(box)
        else:
            box.finish()
            agree(box, undisturbed)


@pytest.mark.long
@pytest.mark.parametrize("session", range(6))
def test_many_kills_of_one_sweep_at_random_times(
    sandbox: Make, undisturbed: Sandbox, chance: Random, session: int
) -> None:
    """By the clock, which also strikes where nothing is written."""
    box = sandbox((*SWEEP, *CHECKPOINTS))
    for _ in range(10):
        run = box.begin()
        run.kill_after(chance.uniform(0.1, 4))
        assert run.wait().code in (-signal.SIGKILL, 0)
        box.check()
    box.finish()
    agree(box, undisturbed)


SEALED = ("budget.sealed={share:0.2,parts:1}", "sampler.batch_size=1150")


def kill_around_card(sandbox: Sandbox, at: int) -> None:
    """Kills a sweep at this instant, and goes on with it: its part is read once at most, and an answer stays."""
    kill_at(sandbox, at)
    store = next(sandbox.root.glob("books/*.private/*/"), sandbox.root)
    before = {path: path.read_bytes() for path in store.glob("card-1*")}
    done = sandbox.run()
    sandbox.check()
    assert done.code in ENDS, done.err
    after = {path: path.read_bytes() for path in store.glob("card-1*")}
    assert {path: after[path] for path in before} == before, "claim, mark and answer stay as they were"
    names = {path.name for path in after}
    was_read = "card-1-read" in {path.name for path in before}
    marked = was_read or any(sandbox.folder.root.glob("card-1-read"))
    assert ("card-1.json" in names) or marked, "without a kill between mark and answer there is an answer"
    if was_read and "card-1.json" not in {path.name for path in before}:
        assert "card-1.json" not in names, "a part that was about to be read is never read again"
        assert "The card has no answer and never will have one" in done.err
    again = sandbox.run()
    assert {path: path.read_bytes() for path in store.glob("card-1*")} == after
    assert again.code in ENDS, again.err


@pytest.mark.parametrize("kills", [1, pytest.param(25, marks=pytest.mark.long)])
@pytest.mark.parametrize("words", [(), HIDING], ids=["points", "search"])
def test_kills_around_the_card_read_its_part_once_at_most(
    tmp_path: Path, reference: Make, chance: Random, words: tuple[str, ...], kills: int
) -> None:
    whole = (*SWEEP, *SEALED, *words)
    calm = reference(whole)
    first, last = calm.when("card-1-claim"), calm.when("card-1.json", 0)
    for number, at in enumerate(sorted(chance.sample(range(first - 5, last + 5), kills))):
        kill_around_card(Sandbox.at(tmp_path / str(number), whole), at)
