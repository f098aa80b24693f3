"""The best learning rate against the noise: for each method and data set, the accuracy along a fine axis of rates.

Every axis is one `dpsweep sweep` at the noise of one run alone, without a search's price; settings in
learning_rates.yaml. Accuracies are exact: on the public test records, or, for a data set without any, on the records
that the runs did not train on (a figure for developers, which no release may hold).

    python benchmarks/learning_rates.py run FOLDER [DATA or METHOD ...]
    python benchmarks/learning_rates.py table
    python benchmarks/learning_rates.py --toy

FOLDER holds the official files. learning_rates.jsonl gets a line for each axis, so that a run that was stopped goes on.
The table has, for each method, the exponent of the best rate in x on each data set, and what the fixed default and the
law that all other data sets chose lose to the best rate of the axis; learning_rates.yaml defines all of it.
"""

from __future__ import annotations

import ast
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from measuring.study import start_study
from measuring.sweeps import accuracies, asked, margin, one_run_noise, swept, workers, write_as_they_come

SETTINGS, RESULTS = (Path(__file__).with_suffix(suffix) for suffix in (".yaml", ".jsonl"))
LIGHT = "accountant=rdp accountant.witnesses=[] score.noise_std=5 tuning=composition"
RATE = "trainer.lr"
PARAMETERS = 4096
"""What stands for the number of parameters in a law without it, so that both laws have numbers of one size."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The learning rates of a method on a data set, at one noise: a line of the results."""

    data: str
    method: str
    epsilon: float
    round: int


def axes(settings: Mapping[str, Any]) -> Iterator[Axis]:
    """All axes, round after round."""
    for turn in range(settings["rounds"]):
        for data in settings["data"]:
            for epsilon in settings["epsilons"]:
                for method in settings["methods"]:
                    yield Axis(data=data, method=method, epsilon=epsilon, round=turn)


def rates(default: float, half_steps: int) -> list[float]:
    """The axis around a default, three significant digits each."""
    return [float(f"{default * 2 ** (k / 2):.3g}") for k in range(-half_steps, half_steps + 1)]


def trained(axis: Axis, settings: Mapping[str, Any], noise: float, folder: str) -> dict[str, Any]:
    """The accuracy of each learning rate of an axis, with what the law of the best one is a function of."""
    own = dict(settings["methods"][axis.method])
    values = rates(own.pop(RATE), settings["half_steps"])
    words = [*asked(axis.data, folder, settings), *LIGHT.split(), f"trainer={axis.method.partition(',')[0]}"]
    words += [f"{key}={value}" for key, value in own.items()]
    words += [f"{RATE}={','.join(f'{value:g}' for value in values)}", f"privacy.noise_multiplier={noise}"]
    with tempfile.TemporaryDirectory() as place:
        root = swept(words, Path(place))
        found = accuracies(root, folder, every=True)
        sizes = numbers_of_law(root)
    by_rate = {dict(ast.literal_eval(point)).get(RATE): round(value, 4) for point, value in found.items()}
    return asdict(axis) | {"noise": noise, **sizes, "accuracy": {f"{rate:g}": by_rate[rate] for rate in values}}


def numbers_of_law(root: Path) -> dict[str, float]:
    """Steps, expected size of batches, and trainable parameters of a sweep's runs."""
    from dpsweep.accounting.records.plan import Plan
    from dpsweep.sweeper.trial.build import make_model

    trial = Plan.read(root / "plan.json").trials[0]
    parameters = make_model(trial.config, trial.id).parameters()
    return {
        "steps": trial.config["steps"],
        "batch_size": trial.config["sampler"]["batch_size"],
        "parameters": sum(one.numel() for one in parameters if one.requires_grad),
    }


def configured() -> dict[str, Any]:
    """The settings; a data set without words of its own has none."""
    return {"words": {}, **yaml.safe_load(SETTINGS.read_text())}


def run(folder: str, only: Sequence[str], settings: Mapping[str, Any], results: Path) -> None:
    """Trains what the results do not have yet."""
    fields = Axis.__dataclass_fields__
    known = {Axis(**{key: line[key] for key in fields}) for line in lines(results)}
    due = [axis for axis in axes(settings) if axis not in known and (not only or {axis.data, axis.method} & set(only))]
    with workers() as pool:
        cells = sorted({(axis.data, axis.epsilon) for axis in due})
        common = [asked(data, folder, settings) for data, _ in cells]
        noises = pool.map(one_run_noise, common, [epsilon for _, epsilon in cells])
        noise = dict(zip(cells, noises, strict=True))
        waiting = [pool.submit(trained, axis, settings, noise[axis.data, axis.epsilon], folder) for axis in due]
        write_as_they_come(waiting, results)


def lines(results: Path = RESULTS) -> list[dict[str, Any]]:
    """The axes that were trained."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


@dataclass(frozen=True, kw_only=True)
class Law:
    """The rate min(most, first * x ** exponent)."""

    first: float
    exponent: float
    most: float

    def rate(self, x: float) -> float:
        return float(min(self.most, self.first * x**self.exponent))

    def __str__(self) -> str:
        return f"min({self.most:g}, {self.first:g} x^{self.exponent:g})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """A method on a data set at one epsilon: accuracies [rounds, rates] at the logarithms of the rates."""

    data: str
    epsilon: float
    x: float
    logs: np.ndarray
    rounds: np.ndarray

    def accuracy(self, rate: float, rounds: slice = slice(None)) -> float:
        """The mean accuracy over these rounds at a rate, from the two nearest ones of the axis."""
        return float(np.interp(math.log(rate), self.logs, self.rounds[rounds].mean(axis=0)))

    def accuracy_at_best_rate(self) -> float:
        """The accuracy of the best rate of the axis, which half of the rounds chose and the other half compares."""
        halves = (slice(0, None, 2), slice(1, None, 2))
        return statistics.fmean(
            float(self.rounds[other].mean(axis=0)[self.rounds[one].mean(axis=0).argmax()])
            for one, other in (halves, halves[::-1])
        )

    def loss(self, rate: float) -> float:
        """What a rate loses to the best one of the axis; negative by chance where it is about as good."""
        return self.accuracy_at_best_rate() - self.accuracy(rate)

    def best_log_rate(self, rounds: np.ndarray) -> float:
        """The mean logarithm of the rates whose accuracy is within half a point of the best."""
        mean = self.rounds[rounds].mean(axis=0)
        return float(self.logs[mean >= mean.max() - 0.005].mean())


def cells_of_method(
    method: str, settings: Mapping[str, Any], found: Sequence[Mapping[str, Any]], *, by_parameters: bool = True
) -> list[Cell]:
    """The cells of a method that have two rounds or more; x has the number of parameters only if told."""
    bound = settings["methods"][method].get("trainer.clip_norm", 1.0)
    groups: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
    for line in found:
        if line["method"] == method:
            groups.setdefault((line["data"], line["epsilon"]), []).append(line)
    cells = []
    for (data, epsilon), own in groups.items():
        one = own[0]
        scale = one["noise"] * bound * math.sqrt(one["steps"] * (one["parameters"] if by_parameters else PARAMETERS))
        cells.append(
            Cell(
                data=data,
                epsilon=epsilon,
                x=one["batch_size"] / scale,
                logs=np.log([float(rate) for rate in one["accuracy"]]),
                rounds=np.array([list(line["accuracy"].values()) for line in own]),
            )
        )
    return [cell for cell in cells if len(cell.rounds) > 1]


def law_of_largest_accuracy(cells: Sequence[Cell], default: float, grid: Mapping[str, Sequence[float]]) -> Law:
    """The law of the grid with the largest mean accuracy on these cells."""
    laws = (
        Law(first=default * first, exponent=exponent, most=default * most)
        for exponent in grid["exponents"]
        for first in grid["first"]
        for most in grid["most"]
    )
    return max(laws, key=lambda law: statistics.fmean(cell.accuracy(law.rate(cell.x)) for cell in cells))


def exponent_with_interval(cells: Sequence[Cell]) -> tuple[float, float, float]:
    """The slope of the best rate's logarithm in that of x, and the 95 % interval of resampled noises and rounds."""
    draw = np.random.default_rng(0)
    cells = [cell for cell in cells if not _is_at_edge(cell)]
    if len(cells) < 3:
        return math.nan, math.nan, math.nan
    places = np.log([cell.x for cell in cells])
    slope = _slope(places, np.array([cell.best_log_rate(np.arange(len(cell.rounds))) for cell in cells]))
    resampled = []
    for _ in range(1000):
        rows = draw.integers(len(cells), size=len(cells))
        rounds = [draw.integers(len(cells[row].rounds), size=len(cells[row].rounds)) for row in rows]
        if np.ptp(places[rows]):
            best = [cells[row].best_log_rate(some) for row, some in zip(rows, rounds, strict=True)]
            resampled.append(_slope(places[rows], np.array(best)))
    low, high = np.quantile(resampled, (0.025, 0.975))
    return slope, float(low), float(high)


def _slope(places: np.ndarray, values: np.ndarray) -> float:
    """The slope of the least-squares line."""
    away = places - places.mean()
    return float(away @ values / (away @ away))


def _is_at_edge(cell: Cell) -> bool:
    best = int(cell.rounds.mean(axis=0).argmax())
    return best in (0, len(cell.logs) - 1)


def table(*, by_parameters: bool = True) -> str:
    """For each method: slopes by data set, losses of the fixed default and of the others' law, and their difference."""
    settings, found = configured(), lines(RESULTS)
    blocks = (_lines_of_law(method, settings, found, by_parameters=by_parameters) for method in settings["methods"])
    return "\n\n".join(map("\n".join, blocks))


def _lines_of_law(
    method: str, settings: Mapping[str, Any], found: Sequence[Mapping[str, Any]], *, by_parameters: bool
) -> Iterator[str]:
    default, grid = settings["methods"][method][RATE], settings["law"]
    cells = cells_of_method(method, settings, found, by_parameters=by_parameters)
    name = f"{method}, x {'with' if by_parameters else 'without'} d"
    yield f"{name:<26}{'exponent':>20}{'fixed rate loses':>22}{'law loses':>22}   the others' law"
    gains = []
    for data in dict.fromkeys(cell.data for cell in cells):
        own, rest = ([cell for cell in cells if (cell.data == data) is same] for same in (True, False))
        if not rest:
            continue
        law = law_of_largest_accuracy(rest, default, grid)
        judged = [cell for cell in own if cell.epsilon in settings["judged_at"]]
        fixed, lawful = (
            [100 * cell.loss(rate) for cell, rate in zip(judged, rates, strict=True)]
            for rates in ([default] * len(judged), [law.rate(cell.x) for cell in judged])
        )
        slope = "{:.2f} [{:.2f}, {:.2f}]".format(*exponent_with_interval(own))
        yield f"  {data:<24}{slope:>20}{_numbers(fixed):>22}{_numbers(lawful):>22}   {law}"
        gains.append(statistics.fmean(fixed) - statistics.fmean(lawful))
    if len(gains) > 2:
        mean, half = statistics.fmean(gains), margin(gains)
        yield f"  the law gains {mean:+.2f} points [{mean - half:+.2f}, {mean + half:+.2f}]"
        yield f"  the law of all data sets: {law_of_largest_accuracy(cells, default, grid)}"


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


def toy() -> None:
    """Two axes on generated images."""
    from measuring.generated_mnist import study_folder

    with study_folder() as (folder, words):
        methods = {"dpsgd": {RATE: 2.0, "trainer.clip_norm": 1.6}, "dpadam": {RATE: 0.03, "trainer.clip_norm": 1.6}}
        few = {"rounds": 1, "epsilons": [8.0], "half_steps": 1, "data": ["mnist"], "words": {"mnist": words}}
        results = Path(folder, "results.jsonl")
        run(folder, [], {**few, "methods": methods}, results)
        found = lines(results)
    print(*found, sep="\n")
    if [len(line["accuracy"]) for line in found] != [3, 3]:
        sys.exit(f"2 axes of 3 rates were asked for, found: {found}")


if __name__ == "__main__":
    start_study(
        lambda folder, only: run(folder, only, configured(), RESULTS),
        lambda: "\n\n".join((table(), table(by_parameters=False))),
        toy,
        __doc__,
    )
