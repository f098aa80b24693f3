"""Correlated noise beside independent noise at equal epsilon, with learning rates tuned alike: what bands gain.

Every axis of learning rates is one `dpsweep sweep` at the noise of one run alone; settings in correlated_noise.yaml.
Accuracies are exact, on public test records.

    python benchmarks/correlated_noise.py run FOLDER [DATA ...]
    python benchmarks/correlated_noise.py table
    python benchmarks/correlated_noise.py --toy

FOLDER holds the official files. correlated_noise.jsonl gets a line for each axis; a run that was stopped goes on.
The table has the accuracy of each cell with independent noise, the gain of each number of bands, and their means.
"""

from __future__ import annotations

import ast
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from learning_rates import LIGHT, RATE, numbers_of_law
from measuring.study import start_study
from measuring.sweeps import accuracies, margin, one_run_noise, swept, workers, write_as_they_come

SETTINGS, RESULTS = (Path(__file__).with_suffix(suffix) for suffix in (".yaml", ".jsonl"))


@dataclass(frozen=True, kw_only=True, order=True)
class Axis:
    """The learning rates of a method at one epsilon, for so many epochs with so many bands: a line of the results."""

    epochs: int
    data: str
    bands: int
    epsilon: float
    method: str


def axes(settings: Mapping[str, Any]) -> list[Axis]:
    """All axes, those of few epochs first."""
    return sorted(
        Axis(epochs=epochs, data=data, bands=bands, epsilon=epsilon, method=method)
        for data, own in settings["data"].items()
        for epochs in settings["epochs"]
        if epochs <= own["most_epochs"]
        for bands in settings["bands"]
        for epsilon in settings["epsilons"]
        for method in settings["methods"]
    )


def common_words(axis: Axis, settings: Mapping[str, Any], folder: str) -> tuple[str, ...]:
    """What the runs of an axis share with those of other methods and epsilons."""
    own = settings["data"][axis.data]
    words = [
        *own["words"].split(),
        "budget.epsilon=1e6",
        "budget.delta=1e-3",
        f"sampler.batch_size={own['batch_size']}",
    ]
    if own["words"] != "dataset=mnist_5k":
        words.append(f"data='{folder}'")
    if axis.bands > 1:
        words += ["sampler=cyclic_poisson", "noise=band_mf", f"noise.bands={axis.bands}"]
    return (*words, f"steps={axis.epochs * settings['steps_per_epoch']}")


def rates(default: float, octaves: int) -> list[float]:
    """The axis around a default."""
    return [default * 2.0**k for k in range(-octaves, octaves + 1)]


def trained(axis: Axis, settings: Mapping[str, Any], noise: float, folder: str) -> dict[str, Any]:
    """The results line of an axis: the accuracy of each run of each learning rate."""
    own = dict(settings["methods"][axis.method])
    values = rates(own.pop(RATE), settings["data"][axis.data]["octaves"])
    words = [*common_words(axis, settings, folder), *LIGHT.split(), f"trainer={axis.method}"]
    words += [f"{key}={value}" for key, value in own.items()]
    words += [f"{RATE}={','.join(f'{value:g}' for value in values)}", f"privacy.noise_multiplier={noise}"]
    with tempfile.TemporaryDirectory() as place:
        root = swept([*words, f"repeats={settings['data'][axis.data]['repeats']}"], Path(place))
        found = accuracies(root, folder, every=True)
        sizes = numbers_of_law(root)
    by_rate: dict[str, list[float]] = {f"{value:g}": [] for value in values}
    for point, accuracy in found.items():
        by_rate[f"{dict(ast.literal_eval(point))[RATE]:g}"].append(round(accuracy, 4))
    return asdict(axis) | {"noise": noise, **sizes, "accuracy": by_rate}


def configured() -> dict[str, Any]:
    """The settings."""
    return dict(yaml.safe_load(SETTINGS.read_text()))


def run(folder: str, only: Sequence[str], settings: Mapping[str, Any], results: Path) -> None:
    """Trains what the results do not have yet."""
    known = {Axis(**{key: line[key] for key in Axis.__dataclass_fields__}) for line in lines(results)}
    due = [axis for axis in axes(settings) if axis not in known and (not only or axis.data in only)]
    with workers() as pool:
        common = [common_words(axis, settings, folder) for axis in due]
        cells = dict.fromkeys(zip(common, [axis.epsilon for axis in due], strict=True))
        noises = dict(zip(cells, pool.map(one_run_noise, *zip(*cells, strict=True)), strict=True))
        waiting = [
            pool.submit(trained, axis, settings, noises[words, axis.epsilon], folder)
            for axis, words in zip(due, common, strict=True)
        ]
        write_as_they_come(waiting, results)


def lines(results: Path = RESULTS) -> list[dict[str, Any]]:
    """The axes that were trained."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


Cell = tuple[str, int, float]
"""A data set, a number of epochs, and an epsilon."""

BEST = "best of three methods"


def runs_of_rates(found: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], dict[Cell, np.ndarray]]:
    """By method and bands: the accuracies [runs, rates] of each cell in percent; `BEST` has all methods' rates."""
    own: dict[tuple[str, int], dict[Cell, np.ndarray]] = {}
    for line in found:
        cell = (line["data"], line["epochs"], line["epsilon"])
        own.setdefault((line["method"], line["bands"]), {})[cell] = 100 * np.array([*line["accuracy"].values()]).T
    methods = dict.fromkeys(method for method, _ in own)
    for count in list(dict.fromkeys(bands for _, bands in own)):
        shared = [own.get((method, count), {}) for method in methods]
        cells = [cell for cell in shared[0] if all(cell in one for one in shared)]
        own[BEST, count] = {cell: np.hstack([one[cell] for one in shared]) for cell in cells}
    return own


def accuracy_at_best_rate(runs: np.ndarray) -> float:
    """The accuracy of the rate that one half of the runs [runs, rates] chose, on the other half; both ways."""
    halves = (runs[::2].mean(axis=0), runs[1::2].mean(axis=0))
    return statistics.fmean(float(other[one.argmax()]) for one, other in (halves, halves[::-1]))


def gains(found: Sequence[Mapping[str, Any]], method: str) -> dict[int, dict[Cell, float]]:
    """By number of bands: what each cell gains over one band, in points."""
    own = {bands: cells for (name, bands), cells in runs_of_rates(found).items() if name == method}
    return {
        bands: {
            cell: accuracy_at_best_rate(runs) - accuracy_at_best_rate(own[1][cell])
            for cell, runs in sorted(cells.items())
            if cell in own[1]
        }
        for bands, cells in sorted(own.items())
        if bands > 1
    }


def table() -> str:
    """The table of the results."""
    return table_of_gains(lines())


def table_of_gains(found: Sequence[Mapping[str, Any]]) -> str:
    """The accuracy of each cell with one band and what more bands gain, for the best method; then means by method."""
    plain, more = runs_of_rates(found)[BEST, 1], gains(found, BEST)
    written = [f"{BEST:<36}{'1 band':>8}" + "".join(f"{f'{bands} bands':>10}" for bands in more)]
    for data, epochs, epsilon in sorted(plain):
        cell = (data, epochs, epsilon)
        shown = "".join(f"{own[cell]:>+10.1f}" if cell in own else f"{'':>10}" for own in more.values())
        name = f"  {data}, {epochs} epoch{'s' if epochs > 1 else ''}, epsilon {epsilon:g}"
        written.append(f"{name:<36}{accuracy_at_best_rate(plain[cell]):>8.1f}{shown}")
    written += ["", f"{'mean gain, by method and data':<36}" + "".join(f"{f'{bands} bands':>22}" for bands in more)]
    for method in (*dict.fromkeys(line["method"] for line in found), BEST):
        own = gains(found, method)
        for data in dict.fromkeys(line["data"] for line in found):
            values = [[gain for cell, gain in cells.items() if cell[0] == data] for cells in own.values()]
            shown = "".join(f"{_mean_with_interval(one):>22}" for one in values)
            written.append(f"{f'  {method}, {data}':<36}{shown}")
    return "\n".join(line.rstrip() for line in written)


def _mean_with_interval(values: Sequence[float]) -> str:
    if len(values) < 3:
        return ""
    mean, half = statistics.fmean(values), margin(values)
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


def toy() -> None:
    """Two numbers of bands on generated images."""
    from measuring.generated_mnist import study_folder

    with study_folder() as (folder, words):
        own = {"words": f"dataset=mnist {words}", "batch_size": 16, "most_epochs": 1, "octaves": 1, "repeats": 2}
        few = {"epsilons": [8.0], "epochs": [1], "bands": [1, 2], "steps_per_epoch": 4, "data": {"mnist": own}}
        methods = {"dpsgd": {RATE: 2.0, "trainer.clip_norm": 1.6}}
        results = Path(folder, "results.jsonl")
        run(folder, [], {**few, "methods": methods}, results)
        found = lines(results)
        print(table_of_gains(found))
    if [len(line["accuracy"]["2"]) for line in found] != [2, 2]:
        sys.exit(f"2 axes of 2 runs were asked for, found: {found}")


if __name__ == "__main__":
    start_study(lambda folder, only: run(folder, only, configured(), RESULTS), table, toy, __doc__)
