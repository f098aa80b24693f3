"""What a total epsilon buys under each way of searching: the accuracy of the model that is handed over, on public data.

Every search is one `dpsweep sweep` of the settings in searching.yaml, with a ledger of its own: the real program, whose
winner is chosen by its declared noisy scores. Accuracies are exact, on the data set's public test records; for
mnist_5k, whose images are training images of MNIST, on MNIST's. Each round is an independent search.

    python benchmarks/searching.py run FOLDER [DATA[:EPSILON] ...]
    python benchmarks/searching.py table
    python benchmarks/searching.py evidence
    python benchmarks/searching.py --toy

FOLDER holds the official files. searching.jsonl gets a line for each search, so that a run that was stopped goes on.
The table prints the mean with its 95 % interval (Student's t) and the worst round, as docs/search.md shows them;
`evidence` writes the numbers that `dpsweep advise` reads. `--toy` searches on a few generated images of MNIST's format.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from measuring.sweeps import accuracies, asked, lines, margin, one_run_noise, swept, workers, write_as_they_come

SETTINGS, RESULTS = (Path(__file__).with_suffix(suffix) for suffix in (".yaml", ".jsonl"))
LEAST = 3
"""The fewest searches of a cell that a mean is given for."""

ON_FEATURES = {"cifar10": "efficientnet_lite0", "sst2": "minilm"}
"""The data sets whose inputs are frozen features."""

ORACLE = "the oracle's point (dishonest)"


@dataclass(frozen=True, kw_only=True)
class Search:
    """One search: a line of the results."""

    data: str
    epsilon: float
    way: str
    round: int

    @property
    def cell(self) -> str:
        return f"{self.data}:{self.epsilon:g}"

    @property
    def key(self) -> str:
        return f"{self.data} {self.epsilon:g} {self.way} {self.round}"


def searches(settings: Mapping[str, Any]) -> Iterator[Search]:
    """All searches, round after round, so that all ways have about as many when a run is stopped."""
    for turn in range(settings["rounds"]):
        for data in settings["data"]:
            for epsilon in settings["epsilons"]:
                for way in _ways(settings, data, epsilon, turn):
                    yield Search(data=data, epsilon=epsilon, way=way, round=turn)


def _ways(settings: Mapping[str, Any], data: str, epsilon: float, turn: int) -> tuple[str, ...]:
    """The ways in which a data set is searched at an epsilon in a round."""
    few = settings["pictured_alone"]
    rounds = few.get(f"{data}:{epsilon:g}", few.get(data))
    if rounds is None:
        return (*settings["ways"], ORACLE)
    return (*settings["pictured"], ORACLE) if turn < rounds else ()


def searched(search: Search, words: Sequence[str], folder: str) -> dict[str, Any]:
    """The results line of one search."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        root = swept(words, Path(place))
        found = accuracies(root, folder, search.way == ORACLE)
    about = {"data": search.data, "epsilon": search.epsilon, "way": search.way, "round": search.round}
    return about | {"accuracy": found, "seconds": round(time.perf_counter() - started, 2)}


def words_of(search: Search, settings: Mapping[str, Any], noise: float) -> list[str]:
    """The overrides of a search, with its multiples of the noise of one run."""
    from dpsweep.reports.advice.advice import Way

    if search.way == ORACLE:
        line = str(settings["oracle"])
    else:
        line = f"privacy.epsilon={search.epsilon:g} {settings['ways'][search.way]}"
    return Way(name=search.way, words=line, shows_map=False).overrides_for_noise(noise).split()


def run(folder: str, only: Sequence[str], settings: Mapping[str, Any], results: Path) -> None:
    """Makes all searches that the results do not have yet."""
    known = {
        Search(**{name: line[name] for name in ("data", "epsilon", "way", "round")}).key for line in lines(results)
    }
    due = [one for one in searches(settings) if one.key not in known and (not only or {one.data, one.cell} & set(only))]
    with workers() as pool:
        cells = sorted({(one.data, one.epsilon) for one in due})
        common = {data: asked(data, folder, settings) for data, _ in cells}
        one_run = pool.map(one_run_noise, [common[data] for data, _ in cells], [epsilon for _, epsilon in cells])
        noises = dict(zip(cells, one_run, strict=True))
        waiting = [
            pool.submit(
                searched, one, [*common[one.data], *words_of(one, settings, noises[one.data, one.epsilon])], folder
            )
            for one in due
        ]
        write_as_they_come(waiting, results)


def cells_of(found: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, float], list[float]]:
    """The accuracies of each way, data set and epsilon that was searched often enough.

    A search without a winner hands nothing over and counts as 0.
    """
    cells: dict[tuple[str, str, float], list[float]] = {}
    oracle: dict[tuple[str, float], dict[str, list[float]]] = {}
    for line in found:
        if line["way"] == ORACLE:
            for point, value in line["accuracy"].items():
                oracle.setdefault((line["data"], line["epsilon"]), {}).setdefault(point, []).append(value)
        else:
            own = cells.setdefault((line["way"], line["data"], line["epsilon"]), [])
            own.append(next(iter(line["accuracy"].values()), 0.0))
    for (data, epsilon), points in oracle.items():
        cells[ORACLE, data, epsilon] = max(points.values(), key=statistics.fmean)
    return {cell: values for cell, values in cells.items() if len(values) >= LEAST}


def table() -> str:
    """Mean ± half of the 95 % interval, and the worst round, in percent; the best at the middle epsilon first."""
    cells, written = cells_of(lines(RESULTS)), []
    for data in dict.fromkeys(data for _, data, _ in cells):
        epsilons = sorted({epsilon for _, other, epsilon in cells if other == data})
        ways = dict.fromkeys(way for way, other, _ in cells if other == data)
        middle = epsilons[len(epsilons) // 2]
        order = sorted(ways, key=lambda way: -statistics.fmean(cells[way, data, middle]))
        written.append(f"{data:<42}" + "".join(f"{f'epsilon {epsilon:g}':>22}" for epsilon in epsilons))
        written += [
            (f"{way:<42}" + "".join(f"{shown(cells.get((way, data, one), ())):>22}" for one in epsilons)).rstrip()
            for way in order
        ]
        written.append("")
    return "\n".join(written).rstrip()


def shown(values: Sequence[float]) -> str:
    """Mean, half of its interval, and the worst; empty without values."""
    if not values:
        return ""
    return f"{100 * statistics.fmean(values):.1f} ±{100 * margin(values):4.1f} ({100 * min(values):.1f})"


def evidence() -> dict[str, Any]:
    """The numbers of all honest ways, for `dpsweep advise`."""
    settings, cells = yaml.safe_load(SETTINGS.read_text()), cells_of(lines(RESULTS))
    places = sorted({(data, epsilon) for way, data, epsilon in cells if way != ORACLE})
    return {
        "data": {data: sizes(data) for data in sorted({data for data, _ in places})},
        "ways": {
            name: {"words": str(words), "shows_map": name in settings["maps"]}
            for name, words in settings["ways"].items()
        },
        "cells": [
            {
                "data": data,
                "epsilon": epsilon,
                "outcomes": {
                    way: {
                        "mean": round(statistics.fmean(values), 4),
                        "margin": round(margin(values), 4),
                        "searches": len(values),
                    }
                    for way in settings["ways"]
                    if (values := cells.get((way, data, epsilon)))
                },
            }
            for data, epsilon in places
        ],
    }


def written_evidence() -> str:
    """The evidence as a file holds it."""
    return json.dumps(evidence(), indent=1) + "\n"


def sizes(data: str) -> dict[str, Any]:
    """The nominal sizes that the data set's configuration declares, and what its searches were given beside a way."""
    from dpsweep.sweeper.commands.hydra_app import CONF

    declared = yaml.safe_load((CONF / "dataset" / f"{data}.yaml").read_text())["dataset"]
    inputs, features = math.prod(declared["shape"]), ON_FEATURES.get(data)
    if features is not None:
        inputs = yaml.safe_load((CONF / "features" / f"{features}.yaml").read_text())["size"]
    return {
        "records": declared["records"],
        "inputs": inputs,
        "features": features is not None,
        "words": yaml.safe_load(SETTINGS.read_text())["words"].get(data, ""),
    }


def toy() -> None:
    """One round of one way and of the oracle, on generated images."""
    from measuring.generated_mnist import study_folder

    with study_folder() as (folder, words):
        line = "trainer=dpsgd trainer.lr=1,2 trainer.clip_norm=1"
        few = {"rounds": 1, "epsilons": [8.0], "data": ["mnist"], "words": {"mnist": words}, "pictured_alone": {}}
        oracle = yaml.safe_load(SETTINGS.read_text())["oracle"]
        settings = {**few, "ways": {"two points": line}, "oracle": f"{oracle} {line}"}
        run(folder, [], settings, Path(folder, "results.jsonl"))
        found = lines(Path(folder, "results.jsonl"))
    print(*found, sep="\n")
    if len(found) != 2:
        sys.exit(f"2 searches were asked for, {len(found)} have a result")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--toy"]:
            toy()
        case ["run", folder, *only]:
            run(str(Path(folder).resolve()), only, yaml.safe_load(SETTINGS.read_text()), RESULTS)
        case ["table"]:
            print(table())
        case ["evidence"]:
            from dpsweep.reports.advice.advice import FILE

            FILE.write_text(written_evidence())
        case _:
            sys.exit(print(__doc__))
