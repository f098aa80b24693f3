"""What a total epsilon buys under ten rules, by the number of points: the accuracy of the model that is handed over.

Every search is one `dpsweep sweep` of the settings in grid_sizes.yaml, with a ledger of its own, whose winner is chosen
by its declared noisy scores. Accuracies are exact, on the data set's public test records; for mnist_5k, whose images
are training images of MNIST, on MNIST's; without any, on records that no run trained on. Each round is an independent
search.

    python benchmarks/grid_sizes.py run FOLDER [DATA[:EPSILON] ...]
    python benchmarks/grid_sizes.py table
    python benchmarks/grid_sizes.py --toy

FOLDER holds the official files. grid_sizes.jsonl gets a line for each search, so that a run that was stopped goes on.
The table has the mean of each cell with its 95 % interval (Student's t), as docs/search.md shows it. `--toy` searches
on a few generated images of MNIST's format.
"""

from __future__ import annotations

import itertools
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
from measuring.study import start_study
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
    for group in settings["order"]:
        for turn, points in itertools.product(range(max(settings["rounds"].values())), group):
            rules = [ONE_POINT, ORACLE] if points == 1 else settings["rules"]
            for data, rule, epsilon in itertools.product(settings["data"], rules, settings["epsilons"]):
                if turn < settings["rounds"][data] and rule not in settings["without"].get(data, ()):
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
    words = rule_words(search.rule, search.points, settings).replace("{1}", str(noise)).split()
    return words if search.rule == ORACLE else [f"privacy.epsilon={search.epsilon:g}", *words]


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


@dataclass(frozen=True, kw_only=True, order=True)
class Way:
    """A rule over so many points."""

    points: int
    rule: str

    def __str__(self) -> str:
        return self.rule if self.points == 1 else f"{self.rule}, {self.points} points"


Cells = Mapping[tuple[str, float], Mapping[Way, Sequence[float]]]
"""By data set and epsilon: the accuracies of the searches of each way, in percent."""


def cells_of(found: Sequence[Mapping[str, Any]]) -> Cells:
    """The accuracies of each way that was searched often enough; those of the oracle are of its best point.

    A search without a winner hands nothing over and counts as 0.
    """
    cells: dict[tuple[str, float], dict[Way, list[float]]] = {}
    oracle: dict[tuple[str, float], dict[str, list[float]]] = {}
    for line in found:
        place = (line["data"], line["epsilon"])
        if line["rule"] == ORACLE:
            for point, value in line["accuracy"].items():
                oracle.setdefault(place, {}).setdefault(point, []).append(100 * value)
        else:
            way = Way(rule=line["rule"], points=line["points"])
            own = cells.setdefault(place, {}).setdefault(way, [])
            own.append(100 * next(iter(line["accuracy"].values()), 0.0))
    for place, points in oracle.items():
        best = max(points.values(), key=statistics.fmean)
        cells.setdefault(place, {})[Way(rule=ORACLE, points=1)] = best
    kept = {
        place: {way: values for way, values in ways.items() if len(values) >= LEAST} for place, ways in cells.items()
    }
    return {place: ways for place, ways in kept.items() if len(ways) > 2}


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A way's mean accuracy over data sets in points below the oracle's, and the ranks that it may have."""

    way: Way
    below_oracle: float
    ranks: tuple[int, int]


def ranked_ways(cells: Cells, epsilon: float, data: Sequence[str]) -> list[Ranked]:
    """All ways that every one of these data sets was searched in, best mean first, with joint intervals of ranks.

    A way is behind another if the mean over data sets of the difference of their means is above 0 by Welch's test on
    the searches, at 5 % divided by the number of ordered pairs. With 95 % confidence all ranks are right at once, for
    these data sets: as many ways as it is behind are better, as many as are behind it are worse (Mogstad, Romano,
    Shaikh and Wilhelm 2024).
    """
    own = [cells[one, epsilon] for one in data]
    shared = [way for way in own[0] if all(way in ways for ways in own)]
    oracle, ways = Way(rule=ORACLE, points=1), [way for way in shared if way.rule != ORACLE]
    level = 0.05 / max(1, len(ways) * (len(ways) - 1))
    behind = {
        (worse, better)
        for worse, better in itertools.permutations(ways, 2)
        if _is_mean_difference_positive([(place[better], place[worse]) for place in own], level)
    }
    means = {way: statistics.fmean(statistics.fmean(place[way]) for place in own) for way in (*ways, oracle)}
    return [
        Ranked(
            way=way,
            below_oracle=means[oracle] - means[way],
            ranks=(
                1 + sum((way, other) in behind for other in ways),
                len(ways) - sum((other, way) in behind for other in ways),
            ),
        )
        for way in sorted(ways, key=lambda way: -means[way])
    ]


def _is_mean_difference_positive(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], level: float) -> bool:
    """Whether the mean over cells of the difference of two means is above 0, by Welch's test of one side."""
    from scipy.stats import t as student

    parts = [(statistics.variance(values) / len(values), len(values) - 1) for pair in pairs for values in pair]
    variance = sum(part for part, _ in parts)
    difference = sum(statistics.fmean(one) - statistics.fmean(other) for one, other in pairs)
    if variance == 0:
        return difference > 0
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    return bool(student.sf(difference / variance**0.5, freedom) < level)


def table() -> str:
    """By data set: each rule's mean ± half of its 95 % interval, in percent, by epsilon and number of points."""
    cells, written = cells_of(lines(RESULTS)), []
    for data in dict.fromkeys(data for data, _ in cells):
        epsilons = sorted(epsilon for name, epsilon in cells if name == data)
        columns = sorted({way.points for epsilon in epsilons for way in cells[data, epsilon]} - {1})
        heads = [f"{points} points" for _ in epsilons for points in columns]
        width = 13 * len(columns)
        written.append(f"{data:<31}" + "".join(f"{f'epsilon {epsilon:g}':>{width}}" for epsilon in epsilons))
        written.append(" " * 31 + "".join(f"{head:>13}" for head in heads))
        for rule in dict.fromkeys(way.rule for epsilon in epsilons for way in sorted(cells[data, epsilon])):
            shown = ""
            for epsilon in epsilons:
                own = cells[data, epsilon]
                if alone := own.get(Way(rule=rule, points=1)):
                    shown += f"{_shown(alone):>{width}}"
                else:
                    best = max((way for way in own if way.points > 1), key=lambda way: statistics.fmean(own[way]))
                    for way in (Way(rule=rule, points=points) for points in columns):
                        shown += f"{_shown(own[way], is_best=way == best) if way in own else '':>13}"
            written.append(f"{rule:<31}{shown}".rstrip())
        written.append("")
    return "\n".join(written).rstrip()


def _shown(values: Sequence[float], *, is_best: bool = False) -> str:
    return f"{'*' if is_best else ''}{statistics.fmean(values):.1f} ±{margin(values):4.1f}"


def configured() -> dict[str, Any]:
    """The settings."""
    return dict(yaml.safe_load(SETTINGS.read_text()))


def toy() -> None:
    """One round of one rule and of the oracle, on generated images."""
    from measuring.generated_mnist import study_folder

    with study_folder() as (folder, words):
        points = {1: "trainer.lr=1 trainer.clip_norm=1", 2: "trainer.lr=1,2 trainer.clip_norm=1"}
        few = {"rounds": {"mnist": 1}, "epsilons": [8.0], "data": {"mnist": f"dataset=mnist {words}"}, "without": {}}
        rules = {"rules": {"composition": "tuning=composition"}, "proposers": []}
        results = Path(folder, "results.jsonl")
        run(folder, [], {**configured(), **few, **rules, "points": points, "order": [[1, 2]]}, results)
        found = lines(results)
    print(*found, sep="\n")
    if len(found) != 3:
        sys.exit(f"3 searches were asked for, {len(found)} have a result")


if __name__ == "__main__":
    start_study(lambda folder, only: run(folder, only, configured(), RESULTS), table, toy, __doc__)
