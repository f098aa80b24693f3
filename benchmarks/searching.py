"""What a total epsilon buys under ten rules, by the number of points: the accuracy of the model that is handed over.

Every search is one `dpsweep sweep` of the settings in searching.yaml, with a ledger of its own: the real program, whose
winner is chosen by its declared noisy scores. Accuracies are exact, on the data set's public test records; for
mnist_5k, whose images are training images of MNIST, on MNIST's; without any, on records that no run trained on. Each
round is an independent search.

    python benchmarks/searching.py run FOLDER [DATA[:EPSILON] ...]
    python benchmarks/searching.py table
    python benchmarks/searching.py evidence
    python benchmarks/searching.py --toy

FOLDER holds the official files. searching.jsonl gets a line for each search, so that a run that was stopped goes on.
The table has the mean of each cell with its 95 % interval (Student's t), as docs/search.md shows it; `evidence` writes
the numbers that `dpsweep advise` reads. `--toy` searches on a few generated images of MNIST's format.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from measuring.sweeps import accuracies, lines, margin, one_run_noise, swept, workers, write_as_they_come

SETTINGS, RESULTS = (Path(__file__).with_suffix(suffix) for suffix in (".yaml", ".jsonl"))
LEAST = 3
"""The fewest searches of a cell that a mean is given for."""

ONE_POINT = "one point, no search"
ORACLE = "the oracle's point (dishonest)"


@dataclass(frozen=True, kw_only=True)
class Search:
    """One search: a line of the results. `points` is the number of points of its rule; 1 for no search."""

    data: str
    epsilon: float
    rule: str
    points: int
    round: int

    @property
    def cell(self) -> str:
        return f"{self.data}:{self.epsilon:g}"


def searches(settings: Mapping[str, Any]) -> Iterator[Search]:
    """All searches, round after round, so that all rules have about as many when a run is stopped."""
    for turn, points in ((turn, points) for group in settings["order"] for turn in range(settings["rounds"]) for points in group):
        for rule in [ONE_POINT, ORACLE] if points == 1 else settings["rules"]:
            for data in settings["data"]:
                if rule not in settings["without"].get(data, ()):
                    for epsilon in settings["epsilons"]:
                        yield Search(data=data, epsilon=epsilon, rule=rule, points=points, round=turn)


def rule_words(rule: str, points: int, settings: Mapping[str, Any]) -> str:
    """The overrides of a rule over so many points, where {1} stands for the noise multiplier of one run."""
    grid = max(settings["points"]) if rule in {ORACLE, *settings["proposers"]} else points
    own = {ONE_POINT: "", ORACLE: settings["oracle"]} | settings["rules"]
    words = str(own[rule]).replace("{points}", str(points))
    return f"{words} trainer=dpsgd {settings['points'][grid]}".lstrip()


def common_words(data: str, folder: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What all searches on a data set have in common."""
    words = str(settings["data"][data]).split()
    own = () if "dataset=mnist_5k" in words else (f"data='{folder}'",)
    return (*words, *own, "budget.epsilon=1e6", "budget.delta=1e-3")


def searched(search: Search, words: Sequence[str], folder: str) -> dict[str, Any]:
    """The results line of one search."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        root = swept(words, Path(place))
        found = accuracies(root, folder, search.rule == ORACLE)
    told = {point: round(value, 5) for point, value in found.items()}
    return {**asdict(search), "accuracy": told, "seconds": round(time.perf_counter() - started, 2)}


def words_of(search: Search, settings: Mapping[str, Any], noise: float) -> list[str]:
    """The overrides of a search, with its multiples of the noise of one run."""
    from dpsweep.reports.advice.advice import Way

    line = rule_words(search.rule, search.points, settings)
    if search.rule != ORACLE:
        line = f"privacy.epsilon={search.epsilon:g} {line}"
    return Way(name=search.rule, words=line, shows_map=False).overrides_for_noise(noise).split()


def run(folder: str, only: Sequence[str], settings: Mapping[str, Any], results: Path) -> None:
    """Makes all searches that the results do not have yet."""
    known = {Search(**{name: line[name] for name in Search.__dataclass_fields__}) for line in lines(results)}
    due = [one for one in searches(settings) if one not in known and (not only or {one.data, one.cell} & set(only))]
    with workers() as pool:
        cells = sorted({(one.data, one.epsilon) for one in due})
        common = {data: common_words(data, folder, settings) for data, _ in cells}
        one_run = pool.map(one_run_noise, [common[data] for data, _ in cells], [epsilon for _, epsilon in cells])
        noises = dict(zip(cells, one_run, strict=True))
        waiting = [
            pool.submit(
                searched, one, [*common[one.data], *words_of(one, settings, noises[one.data, one.epsilon])], folder
            )
            for one in due
        ]
        write_as_they_come(waiting, results)


if __name__ == "__main__":
    run(str(Path(sys.argv[2]).resolve()), sys.argv[3:], yaml.safe_load(SETTINGS.read_text()), Path(sys.argv[1]))
