"""What the default of each method's settings loses to the best value of the same axis, on public test records.

Every value is trained through the command line, at the noise of one run alone at one epsilon; settings in
defaults.yaml. The axes of steps and of batch sizes are factors of each data set's own number, at the noise that each
then needs.

    python benchmarks/defaults.py run FOLDER [DATA or METHOD ...]
    python benchmarks/defaults.py table
    python benchmarks/defaults.py --toy

FOLDER holds the official files. defaults.jsonl gets a line for each plan, so that a run that was stopped goes on.
`--toy` trains on a few generated images of MNIST's format.
"""

from __future__ import annotations

import ast
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from measuring.sweeps import accuracies, asked, one_run_noise, swept, workers, write_as_they_come

SETTINGS, RESULTS = (Path(__file__).with_suffix(suffix) for suffix in (".yaml", ".jsonl"))
BUDGET = "budget."
LIGHT = "accountant=rdp accountant.witnesses=[] score.noise_std=5 tuning=composition"
PUBLIC = "dataset.public=true score=training"
"""What a method without noise is given in place of a budget and of `LIGHT`."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a method on a data set: a line of the results. A factor is one value of an axis of lengths."""

    data: str
    method: str
    key: str
    round: int
    factor: float | None = None


def axes(settings: Mapping[str, Any]) -> Iterator[Axis]:
    """All axes, round after round."""
    for turn in range(settings["rounds"]):
        for data in settings["data"]:
            for method, own in settings["methods"].items():
                for key, values in own.items():
                    if len(values) > 1:
                        yield Axis(data=data, method=method, key=key, round=turn)
            for method in settings["lengths_of"]:
                for key, factors in settings["lengths"].items():
                    for factor in factors:
                        yield Axis(data=data, method=method, key=key, round=turn, factor=factor)


def trained(axis: Axis, settings: Mapping[str, Any], noise: float, folder: str) -> dict[str, Any]:
    """The accuracy of each value of an axis."""
    own = settings["methods"][axis.method]
    noiseless = axis.method in settings["without_noise"]
    words = [word for word in asked(axis.data, folder, settings) if not (noiseless and word.startswith(BUDGET))]
    words += [*(PUBLIC if noiseless else LIGHT).split(), f"trainer={axis.method.partition(',')[0]}"]
    words += [f"{key}={','.join(map(str, values if key == axis.key else values[:1]))}" for key, values in own.items()]
    if axis.factor is None and not noiseless:
        words.append(f"privacy.noise_multiplier={noise}")
    if axis.factor is not None:
        number = max(1, round(axis.factor * length(axis.data, axis.key)))
        words += [f"{axis.key}={number}", f"privacy.epsilon={settings['epsilon']:g}"]
    with tempfile.TemporaryDirectory() as place:
        found = accuracies(swept(words, Path(place)), folder, every=True)
    values = {point: dict(ast.literal_eval(point)).get(axis.key, axis.factor) for point in found}
    return asdict(axis) | {"accuracy": {str(values[point]): round(value, 4) for point, value in found.items()}}


def length(data: str, key: str) -> int:
    """The data set's own number of steps, or batch size."""
    declared = yaml.safe_load((Path(__file__).parents[1] / "conf" / "dataset" / f"{data}.yaml").read_text())
    return int(declared["steps"] if key == "steps" else declared["sampler"]["batch_size"])


def configured() -> dict[str, Any]:
    """The settings."""
    return dict(yaml.safe_load(SETTINGS.read_text()))


def run(folder: str, only: Sequence[str], settings: Mapping[str, Any], results: Path) -> None:
    """Trains what the results do not have yet."""
    known = {Axis(**{key: value for key, value in line.items() if key != "accuracy"}) for line in lines(results)}
    due = [axis for axis in axes(settings) if axis not in known and (not only or {axis.data, axis.method} & set(only))]
    with workers() as pool:
        names = sorted({axis.data for axis in due})
        common = [asked(name, folder, settings) for name in names]
        noises = pool.map(one_run_noise, common, [settings["epsilon"]] * len(names))
        noise = dict(zip(names, noises, strict=True))
        write_as_they_come([pool.submit(trained, axis, settings, noise[axis.data], folder) for axis in due], results)


def lines(results: Path) -> list[dict[str, Any]]:
    """The axes that were trained."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


Losses = dict[tuple[str, str], dict[str, tuple[float, float, str]]]


def losses(settings: Mapping[str, Any], axes_trained: Sequence[dict[str, Any]]) -> Losses:
    """For each method and key: by data set, the default's accuracy, the best one's, and the best value."""
    means: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for line in axes_trained:
        for value, accuracy in line["accuracy"].items():
            means.setdefault((line["method"], line["key"], line["data"]), {}).setdefault(value, []).append(accuracy)
    found: Losses = {}
    for (method, key, data), values in means.items():
        default = str((settings["methods"][method].get(key) or settings["lengths"][key])[0])
        mean = {value: statistics.fmean(one) for value, one in values.items()}
        if default in mean:
            best = max(mean, key=lambda value: mean[value])
            found.setdefault((method, key), {})[data] = (mean[default], mean[best], best)
    return found


def table(settings: Mapping[str, Any], axes_trained: Sequence[dict[str, Any]]) -> str:
    """The points that each default loses by data set, with the best value where it loses more than the limit."""
    names, written = settings["data"], []
    written.append(f"{'points lost':<36}{'default':>8}" + "".join(f"{name:>16}" for name in names))
    for (method, key), by_data in losses(settings, axes_trained).items():
        default = (settings["methods"][method].get(key) or settings["lengths"][key])[0]
        cells = []
        for name in names:
            own, most, best = by_data.get(name, (0.0, 0.0, ""))
            lost = 100 * (most - own)
            cells.append(
                "" if name not in by_data else f"{lost:.1f}" + (f" ({best})" if lost > settings["most"] else "")
            )
        written.append(f"{f'{method} {key}':<36}{default:>8g}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(written)


def toy() -> None:
    """One round of an axis of a private method, of one without noise, and of one length, on generated images."""
    from measuring.generated_mnist import study_folder

    with study_folder() as (folder, words):
        methods = {
            "dpsgd": {"trainer.lr": [2.0, 1.0], "trainer.clip_norm": [1.6]},
            "sgd": {"trainer.lr": [2.0, 1.0]},
        }
        lengths = {"lengths": {"sampler.batch_size": [0.01]}, "lengths_of": ["dpsgd"], "without_noise": ["sgd"]}
        few = {"rounds": 1, "epsilon": 8.0, "most": 2.0, "data": ["mnist"], "words": {"mnist": words}}
        settings, results = {**few, **lengths, "methods": methods}, Path(folder, "results.jsonl")
        run(folder, [], settings, results)
        found = lines(results)
        print(table(settings, found))
    if len(found) != 3:
        sys.exit(f"3 axes were asked for, {len(found)} have a result")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--toy"]:
            toy()
        case ["run", folder, *only]:
            run(str(Path(folder).resolve()), only, configured(), RESULTS)
        case _:
            print(table(configured(), lines(RESULTS)))
