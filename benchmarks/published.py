"""Published results of private training beside ours: single runs at the same epsilon, on the same public test records.

Every run is one `dpsweep sweep` of the settings in published.yaml, with a ledger of its own; the epsilon is what the
program charges for it, hyperparameters as given, no search.

    python benchmarks/published.py run FOLDER [REFERENCE ...]
    python benchmarks/published.py table
    python benchmarks/published.py --toy

FOLDER holds the official files. published.jsonl gets a line for each run, so that a benchmark that was stopped goes on.
`--toy` trains on a few generated images of MNIST's format.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from measuring.study import start_study
from measuring.sweeps import accuracies, margin, swept, workers, write_as_they_come

SETTINGS, RESULTS = (Path(__file__).with_suffix(suffix) for suffix in (".yaml", ".jsonl"))


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training: a line of the results."""

    reference: str
    settings: str
    round: int


def runs(settings: Mapping[str, Any]) -> Iterator[Run]:
    """All runs, round after round."""
    for turn in range(settings["rounds"]):
        for reference, own in settings["references"].items():
            for line in own.get("runs", ()):
                yield Run(reference=reference, settings=line, round=turn)


def trained(one: Run, words: Sequence[str], folder: str) -> dict[str, Any]:
    """The accuracy of a run, in percent, its epsilon, and the minutes of processor time that the command took."""
    from dpsweep.accounting.ledger.ledger import Ledger

    before = processor_seconds()
    with tempfile.TemporaryDirectory() as place:
        root = swept([*words, "score=public", f"data='{folder}'"], Path(place))
        (accuracy,) = accuracies(root, folder, every=True).values()
        ledger = Ledger(Path(os.environ["DPSWEEP_LEDGER"]))
        epsilon = sum(float(ledger.statement(name).balance.reserved["epsilon"]) for name in ledger.account_names())
    minutes = (processor_seconds() - before) / 60
    return asdict(one) | {"accuracy": round(100 * accuracy, 2), "epsilon": epsilon, "minutes": round(minutes, 2)}


def processor_seconds() -> float:
    """The processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(folder: str, only: Sequence[str], settings: Mapping[str, Any], results: Path) -> None:
    """Trains what the results do not have yet."""
    known = {Run(**{name: line[name] for name in ("reference", "settings", "round")}) for line in lines(results)}
    due = [one for one in runs(settings) if one not in known and (not only or one.reference in only)]
    with workers() as pool:
        waiting = []
        for one in due:
            own = settings["references"][one.reference]
            words = f"{own['common']} {own['runs'][one.settings]}".split()
            waiting.append(pool.submit(trained, one, words, folder))
        write_as_they_come(waiting, results)


def lines(results: Path) -> list[dict[str, Any]]:
    """The runs that were made."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def table() -> str:
    """The table of the settings and results that lie beside this file."""
    return table_of(yaml.safe_load(SETTINGS.read_text()), lines(RESULTS))


def table_of(settings: Mapping[str, Any], found: Sequence[dict[str, Any]]) -> str:
    """Each reference's published results, then ours: mean ± half of the 95 % interval, and the worst run."""
    written = []
    made: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in found:
        made.setdefault((line["reference"], line["settings"]), []).append(line)
    for reference, own in settings["references"].items():
        written.append(f"{reference:<72}{'epsilon':>8}{'accuracy':>20}{'minutes':>9}")
        for one in own["published"]:
            written.append(f"  published: {one['source']:<59}{one['epsilon']:>8.2f}{one['accuracy']:>13.1f}")
        if "not_run" in own:
            written.append(f"  not run: {own['not_run']}")
        for name in own.get("runs", ()):
            if own_lines := made.get((reference, name)):
                written.append(f"  {name:<70}{own_lines[0]['epsilon']:>8.2f}{shown(own_lines)}")
        written.append("")
    return "\n".join(written).rstrip()


def shown(found: Sequence[Mapping[str, Any]]) -> str:
    """The accuracies and the mean minutes of some runs of the same settings."""
    values = [line["accuracy"] for line in found]
    spread = f" ±{margin(values):4.1f} ({min(values):.1f})" if len(values) > 1 else " (one run)"
    return f"{statistics.fmean(values):>7.1f}{spread:<13}{statistics.fmean(line['minutes'] for line in found):>9.1f}"


def toy() -> None:
    """One round of one reference, on generated images."""
    from measuring.generated_mnist import study_folder

    with study_folder() as (folder, words):
        common = f"dataset=mnist {words} privacy.epsilon=8 budget.epsilon=1e6 budget.delta=1e-3"
        runs = {"DP-SGD": "trainer=dpsgd trainer.lr=1 trainer.clip_norm=1"}
        settings = {"rounds": 1, "references": {"toy": {"published": [], "common": common, "runs": runs}}}
        results = Path(folder, "results.jsonl")
        run(folder, [], settings, results)
        found = lines(results)
        print(table_of(settings, found))
    if len(found) != 1:
        sys.exit(f"1 run was asked for, {len(found)} have a result")


if __name__ == "__main__":
    start_study(
        lambda folder, only: run(folder, only, yaml.safe_load(SETTINGS.read_text()), RESULTS), table, toy, __doc__
    )
