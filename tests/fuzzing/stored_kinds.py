"""Each kind of file that the program stores: examples of it, how it is read, and how what was read is written again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from dpsweep.accounting.chain.hash_chain import Entry
from dpsweep.accounting.errors import turn_read_errors_into_refusal
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.files import FORMAT
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.book import read_body
from dpsweep.accounting.ledger.mirror import KnownPlace
from dpsweep.accounting.ledger.permit import LAUNCH_FILE, RECEIPT_FILE, PrivateStore, Receipt
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.released_files import WINNER_FILE, ReleasedWinner
from dpsweep.accounting.records.sweep_folder import LAST_FOLDER_FILE, LIVE_PAGE, LastFolder
from dpsweep.accounting.records.trial_result import RESULT_FILE, TrialResult
from dpsweep.accounting.searches.proposed_points import read_proposed_point_indices
from dpsweep.accounting.searches.stored_draw import SearchOutcome, StoredDraw
from dpsweep.accounting.selection.interface import Draw
from dpsweep.sweeper.progress.live_page import LiveFile
from dpsweep.sweeper.progress.running_sweep import CellState, DoneOfAll, LiveCell, LivePanel, RunningSweep, SweepPhase

TESTS = Path(__file__).resolve().parents[1]
FROZEN = TESTS / "frozen" / "format_1"


@dataclass(frozen=True, kw_only=True)
class StoredKind:
    """A kind of file, by the name that it has in its folder.

    `write` gives the JSON form of what was read. With `strict`, a key that nobody reads is refused; elsewhere it is
    left out, as it only says what follows from the keys that are read, or what the file is for.
    """

    file: str
    examples: Callable[[], tuple[Any, ...]]
    read: Callable[[Path], Any]
    write: Callable[[Any], Any]
    strict: bool = False


def _json(*paths: Path) -> tuple[Any, ...]:
    return tuple(json.loads(path.read_text()) for path in paths)


@cache
def event_forms() -> tuple[Any, ...]:
    """An event of each type, as it is stored."""
    add, step = Adjacency.ADD_OR_REMOVE_ONE, events.poisson_gaussian(sample_rate=0.1, noise_multiplier=2.0)
    many = [events.repeat(events.gaussian(noise_multiplier=1 + 0.01 * place), 1 + place % 3) for place in range(102)]
    searches = [
        events.best_of_tries(step, NegativeBinomial(eta=1.0, gamma=0.3)),
        events.best_of_tries(step, Poisson(mean=3.0), limit=5),
        events.random_stopping(step, gamma=0.5, delta2=1e-6),
        events.above_threshold(step, gamma=0.5, limit=7),
    ]
    ours = [
        events.no_access(),
        events.non_private(),
        events.repeat(step, 12),
        events.compose([step, events.noisy_count(noise_std=3.0)]),
        events.output_perturbation(noise_std=3.0, sensitivity=1.0, adjacency=add),
        events.shuffled_gaussian(epochs=2, steps=5, noise_multiplier=1.5),
        events.shuffled_gaussian(epochs=2, steps=5, noise_multiplier=1.5, sample_rate=0.25),
        events.random_allocation(epochs=2, steps=5, noise_multiplier=1.5),
        events.without_replacement_gaussian(records=100, batch_size=7, noise_multiplier=1.5),
        events.truncated_poisson_gaussian(records=100, sample_rate=0.1, largest_batch=20, noise_multiplier=1.5),
        events.black_box(epsilon=1.0, delta=1e-6, adjacency=add),
        events.noisy_max(noise_scale=2.0),
        events.worst_of_events([step, events.gaussian(noise_multiplier=1.0)]),
        events.mixture([step, events.gaussian(noise_multiplier=1.0)]),
        events.compose(many),
        *searches,
    ]
    return tuple(events.to_json(event) for event in ours)


def _read_event(path: Path) -> Any:
    with turn_read_errors_into_refusal("an event"):
        return events.from_json(json.loads(path.read_text()))


@cache
def _plans() -> tuple[Any, ...]:
    """Plans of two kinds of search, as they are stored."""
    return tuple(_plan_form(Plan.read(FROZEN / sweep / "plan.json")) for sweep in ("composition", "private_selection"))


def _plan_form(plan: Plan) -> Mapping[str, Any]:
    return {"id": plan.id} | plan.to_json()


def _draws() -> tuple[Any, ...]:
    stored = {"plan": "0" * 12, "attempt": 1, "salt": "1" * 32}
    draws = (Draw(tries=(0, 1, 1), threshold=0.5), Draw(tries=(0, 1), handicaps=(0.5, -2.0)))
    return tuple(stored | {"coins": "2" * 64} | draw.to_json() for draw in draws)


@cache
def _bodies() -> tuple[Any, ...]:
    """A body of each kind, with the kind."""
    return tuple(_entries())


def _entries() -> Iterator[Any]:
    stored = json.loads((TESTS / "frozen" / "bodies.json").read_text())
    for kind, _, body, _ in (entry for entries in stored.values() for entry in entries):
        yield {"kind": kind, "body": json.loads(body)}


def _read_entry(path: Path) -> Any:
    with turn_read_errors_into_refusal("an entry"):
        form = json.loads(path.read_text())
        if form.keys() != {"kind", "body"} or not isinstance(form["kind"], str) or not isinstance(form["body"], dict):
            raise TypeError("Expected a kind and a body, as the chain stores them.")
        blank = Entry(seq=1, account="a", kind=form["kind"], plan="p", body={}, balance={}, who="", at="", digest="")
        return form["kind"], read_body(replace(blank, body=form["body"]))


def _entry_form(read: tuple[str, Any]) -> Any:
    kind, body = read
    return {"kind": kind, "body": body.to_json()}


def _live_files() -> tuple[Any, ...]:
    """A page of a sweep that shows its map, and one of a search that hides its losers."""
    cell = LiveCell(state=CellState.FINISHED, text="62.5", shade=0.5)
    panel = LivePanel(name="DP-SGD", across="lr", columns=("1",), down="", rows=("",), cells=((cell,),))
    counts = {name: DoneOfAll(done=1, total=2) for name in ("runs", "steps", "features")}
    shown = RunningSweep(
        phase=SweepPhase.TRAINING, activity="a", remarks=("b",), share=0.5, seconds=2.0, panels=(panel,), **counts
    )
    hidden = RunningSweep(phase=SweepPhase.SEARCHING, activity="searching", remarks=())
    frame = {"account": "digits", "plan": "p", "hides": False, "command": "c", "page": "", "began": 1.0, "written": 2.0}
    return tuple(frame | {"sweep": sweep.to_json()} for sweep in (shown, hidden))


def _read_live_file(path: Path) -> LiveFile:
    """The page around a stored form, which is read as `dpsweep watch` reads it."""
    path.write_bytes(b'<script type="application/json" id="sweep">' + path.read_bytes() + b"</script>")
    return LiveFile.read(path.parent)


KINDS: Mapping[str, StoredKind] = {
    "event": StoredKind(file="event.json", examples=event_forms, read=_read_event, write=events.to_json, strict=True),
    "plan": StoredKind(
        file="plan.json",
        examples=_plans,
        read=Plan.read,
        write=_plan_form,
        strict=True,
    ),
    "result": StoredKind(
        file=RESULT_FILE,
        examples=lambda: _json(*sorted((FROZEN / "composition").glob(f"trials/*/{RESULT_FILE}"))[:1]),
        read=lambda path: TrialResult.read(path.parent),
        write=lambda result: {"format": FORMAT} | vars(result),
        strict=True,
    ),
    "receipt": StoredKind(
        file=RECEIPT_FILE,
        examples=lambda: _json(*sorted((FROZEN / "composition").glob(f"trials/*/{RECEIPT_FILE}"))[:1]),
        read=lambda path: Receipt.read(path.parent),
        write=asdict,
        strict=True,
    ),
    "draw": StoredKind(file="draw.json", examples=_draws, read=StoredDraw.read, write=StoredDraw.to_json, strict=True),
    "outcome": StoredKind(
        file="outcome.json",
        examples=lambda: ({"attempt": 1, "winner": 2}, {"attempt": 1, "winner": None}),
        read=SearchOutcome.read,
        write=asdict,
        strict=True,
    ),
    "winner": StoredKind(
        file=WINNER_FILE,
        examples=lambda: ({"salt": "1" * 64},),
        read=lambda path: ReleasedWinner.read_from_release(path.parent),
        write=asdict,
    ),
    "last folder": StoredKind(
        file=LAST_FOLDER_FILE,
        examples=lambda: ({"folder": "/sweeps/digits/p", "finished": True},),
        read=lambda path: LastFolder.read(PrivateStore(root=path.parent)),
        write=asdict,
        strict=True,
    ),
    "launch": StoredKind(
        file=LAUNCH_FILE,
        examples=lambda: ({"nonce": "1" * 32, "next": "2" * 32},),
        read=lambda path: PrivateStore(root=path.parent).nonces(),
        write=dict,
    ),
    "proposals": StoredKind(
        file="proposals.json",
        examples=lambda: ({"plan": "7beb1ecff388", "proposals": [1, 0]},),
        read=lambda path: read_proposed_point_indices(Plan.read(FROZEN / "composition" / "plan.json"), path),
        write=lambda proposals: {"plan": "7beb1ecff388", "proposals": list(proposals)},
        strict=True,
    ),
    "place": StoredKind(
        file="ledger.place",
        examples=lambda: ({"place": "ledger", "identity": "a" * 32},),
        read=KnownPlace.read,
        write=KnownPlace.to_json,
        strict=True,
    ),
    "live": StoredKind(file=LIVE_PAGE, examples=_live_files, read=_read_live_file, write=LiveFile.to_json, strict=True),
    "entry": StoredKind(file="entry.json", examples=_bodies, read=_read_entry, write=_entry_form, strict=True),
}
