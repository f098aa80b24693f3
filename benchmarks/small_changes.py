"""Small things that are said to help private training, each beside the method without it, with rates tuned alike.

Every axis of learning rates is one `dpsweep sweep`, as in learning_rates.py; settings in small_changes.yaml.

    python benchmarks/small_changes.py run FOLDER [DATA or METHOD ...]
    python benchmarks/small_changes.py table
    python benchmarks/small_changes.py --toy

FOLDER holds the official files. small_changes.jsonl gets a line for each axis, so that a run that was stopped goes on.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from learning_rates import cells_of_method, lines, run
from measuring.study import start_study
from measuring.sweeps import margin

SETTINGS, RESULTS = (Path(__file__).with_suffix(suffix) for suffix in (".yaml", ".jsonl"))


def configured() -> dict[str, Any]:
    """The settings; a data set without words of its own has none."""
    return {"words": {}, **yaml.safe_load(SETTINGS.read_text())}


def accuracies_at_best_rate(
    method: str, settings: Mapping[str, Any], found: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, float], float]:
    """By data set and epsilon: the accuracy in percent at the rate that the other half of the rounds found best."""
    return {
        (cell.data, cell.epsilon): 100 * cell.accuracy_at_best_rate()
        for cell in cells_of_method(method, settings, found)
    }


def table() -> str:
    """The gains in the results."""
    return table_of_gains(configured(), lines(RESULTS))


def table_of_gains(settings: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> str:
    """The gain of each change in points, by data set and epsilon, and its mean with a 95 % interval over these."""
    cells = sorted({(line["data"], line["epsilon"]) for line in found})
    written = [f"{'':<28}" + "".join(f"{f'{data} {epsilon:g}':>14}" for data, epsilon in cells) + f"{'mean':>22}"]
    for method in settings["methods"]:
        base = settings["bases"].get(method, method.partition(",")[0])
        own = accuracies_at_best_rate(method, settings, found)
        if base == method:
            written.append(
                f"{method:<28}" + "".join(f"{own[cell]:>14.1f}" if cell in own else f"{'':>14}" for cell in cells)
            )
            continue
        plain = accuracies_at_best_rate(base, settings, found)
        gained = {cell: own[cell] - plain[cell] for cell in cells if cell in own and cell in plain}
        gains = list(gained.values())
        if len(gains) > 2:
            mean, half = statistics.fmean(gains), margin(gains)
            shown = "".join(f"{gained[cell]:>+14.1f}" if cell in gained else f"{'':>14}" for cell in cells)
            written.append(f"{method:<28}{shown}{f'{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]':>22}")
    return "\n".join(written)


def toy() -> None:
    """Two changes on generated images."""
    import tempfile

    from measuring.generated_mnist import study_folder

    with study_folder() as (folder, words), tempfile.TemporaryDirectory() as place:
        methods = {
            "dpsgd": {"trainer.lr": 2.0, "trainer.clip_norm": 1.6},
            "dpsgd, cosine": {"trainer.lr": 2.0, "trainer.clip_norm": 1.6, "lr_schedule": "cosine"},
        }
        few = {"rounds": 2, "epsilons": [8.0], "half_steps": 1, "data": ["mnist"], "words": {"mnist": words}}
        settings, results = {**few, "methods": methods, "bases": {}}, Path(place, "results.jsonl")
        run(folder, [], settings, results)
        found = lines(results)
        print(table_of_gains(settings, found))
    if len(found) != 4:
        sys.exit(f"4 axes were asked for, {len(found)} have a result")


if __name__ == "__main__":
    start_study(lambda folder, only: run(folder, only, configured(), RESULTS), table, toy, __doc__)
