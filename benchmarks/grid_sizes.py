"""What a total epsilon buys under ten rules, by the number of points: the accuracy of the model that is handed over.

Every search is one `dpsweep sweep` of the settings in grid_sizes.yaml, with a ledger of its own, whose winner is chosen
by its declared noisy scores. Accuracies are exact, on the data set's public test records; for mnist_5k, whose images
are training images of MNIST, on MNIST's; without any, on records that no run trained on. Each round is an independent
search.

    python benchmarks/grid_sizes.py run FOLDER [DATA[:EPSILON] ...]
    python benchmarks/grid_sizes.py table
    python benchmarks/grid_sizes.py evidence
    python benchmarks/grid_sizes.py --toy

FOLDER holds the official files. grid_sizes.jsonl gets a line for each search, so that a run that was stopped goes on.
The table has the mean of each cell with its 95 % interval (Student's t), as docs/search.md shows it. `evidence` writes
the numbers that `dpsweep advise` reads. `--toy` searches on a few generated images of MNIST's format.
"""

from __future__ import annotations

import itertools
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
from measuring.study import start_study
from measuring.sweeps import accuracies, lines, margin, one_run_noise, swept, workers, write_as_they_come

SETTINGS, RESULTS = (Path(__file__).with_suffix(suffix) for suffix in (".yaml", ".jsonl"))
LEAST = 3
"""The fewest searches of a cell that a mean is given for."""

ON_FEATURES = {"cifar10": "efficientnet_lite0", "sst2": "minilm"}
"""The data sets whose inputs are frozen features."""

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
    ways = [(rule, own["points"]) for rule, own in settings["own"].items()]
    ways += itertools.product(settings["rules"], settings["searched"])
    for turn in range(max(settings["rounds"].values())):
        for data, (rule, points), epsilon in itertools.product(settings["data"], ways, settings["epsilons"]):
            if turn < settings["rounds"][data] and rule not in settings["without"].get(data, ()):
                yield Search(data=data, epsilon=epsilon, rule=rule, points=points, round=turn)


def rule_words(rule: str, points: int, settings: Mapping[str, Any]) -> str:
    """The overrides of a rule over so many points, where {1} stands for the noise multiplier of one run."""
    own, largest = settings["own"].get(rule), max(settings["points"])
    if own is not None and rule != ORACLE:
        return str(own["words"])
    grid = largest if rule in {ORACLE, *settings["proposers"]} else points
    words = str(settings["rules"][rule] if own is None else own["words"]).replace("{points}", str(points))
    return f"{words} trainer=dpsgd {settings['points'][grid]}"


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
    shared = sorted(way for way in own[0] if all(way in ways for ways in own))
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


def written_evidence() -> str:
    """The means and ranks of all honest ways on every data set, as `dpsweep advise` reads them."""
    settings, cells = configured(), cells_of(lines(RESULTS))
    cells = {place: ways for place, ways in sorted(cells.items()) if place[0] not in settings["beside"]}
    ways = sorted({way for own in cells.values() for way in own if way.rule != ORACLE})
    told = {
        "data": {data: declared_sizes(data, settings) for data in dict.fromkeys(data for data, _ in cells)},
        "ways": {
            str(way): {
                "words": rule_words(way.rule, way.points, settings),
                "shows_map": way.rule in settings["shows_map"],
                "points": way.points,
            }
            for way in ways
        },
        "cells": [
            {
                "data": data,
                "epsilon": epsilon,
                "outcomes": {
                    str(row.way): {
                        "mean": round(statistics.fmean(own[row.way]) / 100, 4),
                        "margin": round(margin(own[row.way]) / 100, 4),
                        "searches": len(own[row.way]),
                        "best_rank": row.ranks[0],
                    }
                    for row in ranked_ways(cells, epsilon, [data])
                },
            }
            for (data, epsilon), own in cells.items()
        ],
    }
    return json.dumps(told, indent=1) + "\n"


def declared_sizes(data: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The nominal sizes that the data set's configuration declares, and what its searches were given beside a way."""
    from dpsweep.sweeper.commands.hydra_app import CONF

    declared = yaml.safe_load((CONF / "dataset" / f"{data}.yaml").read_text())["dataset"]
    inputs, features = math.prod(declared["shape"]), ON_FEATURES.get(data)
    if features is not None:
        inputs = yaml.safe_load((CONF / "features" / f"{features}.yaml").read_text())["size"]
    _, *words = str(settings["data"][data]).split()
    sizes = {"records": declared["records"], "inputs": inputs, "classes": declared["classes"]}
    return {**sizes, "features": features is not None, "words": " ".join(words)}


def configured() -> dict[str, Any]:
    """The settings."""
    return dict(yaml.safe_load(SETTINGS.read_text()))


def toy() -> None:
    """One round of one rule and of the oracle, on generated images."""
    from measuring.generated_mnist import study_folder

    with study_folder() as (folder, words):
        few = {"rounds": {"mnist": 1}, "epsilons": [8.0], "data": {"mnist": f"dataset=mnist {words}"}, "without": {}}
        rules = {"rules": {"composition": "tuning=composition"}, "proposers": [], "searched": [2]}
        points = {2: "trainer.lr=1,2 trainer.clip_norm=1"}
        results = Path(folder, "results.jsonl")
        run(folder, [], {**configured(), **few, **rules, "points": points}, results)
        found = lines(results)
    print(*found, sep="\n")
    if len(found) != 4:
        sys.exit(f"4 searches were asked for, {len(found)} have a result")


if __name__ == "__main__":
    if sys.argv[1:] == ["evidence"]:
        from dpsweep.reports.advice.advice import FILE

        sys.exit(FILE.write_text(written_evidence()) == 0)
    start_study(lambda folder, only: run(folder, only, configured(), RESULTS), table, toy, __doc__)
