"""What the model that is handed over loses if its account sets units aside in sealed parts: on public test records.

Every search is one `dpsweep sweep` of the settings in sealing.yaml, with a ledger of its own, with sealed parts and
without.

    python benchmarks/sealing.py run FOLDER [DATA ...]
    python benchmarks/sealing.py table
    python benchmarks/sealing.py --toy

FOLDER holds the official files. sealing.jsonl gets a line for each search, so that a run that was stopped goes on. The
table prints the difference of the means in points, with its 95 % interval (Welch's t), and how many of the intervals
that the cards told hold the accuracy on the test records. `--toy` searches on a few generated images of MNIST's format.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from measuring.study import start_study
from measuring.sweeps import accuracies, asked, lines, swept, workers, write_as_they_come
from scipy import stats

SETTINGS, RESULTS = (Path(__file__).with_suffix(suffix) for suffix in (".yaml", ".jsonl"))
WITHOUT, WITH = "nothing sealed", "a tenth sealed"


def searches(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All searches, round after round."""
    for turn in range(settings["rounds"]):
        for data in settings["data"]:
            for way in settings["ways"]:
                for arm in settings["arms"]:
                    yield {"data": data, "way": way, "arm": arm, "round": turn}


def searched(search: Mapping[str, Any], words: Sequence[str], folder: str) -> dict[str, Any]:
    """The results line of one search; `card` is what the card told, None without one."""
    from dpsweep.accounting.records.sweep_folder import SweepFolder

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        root = swept(words, Path(place))
        (accuracy,) = accuracies(root, folder, every=False).values()
        answer = SweepFolder(root=root).card_files(1).answer
    first = None if answer is None else answer.numbers[0]
    card = None if first is None else [round(end, 5) for end in (first.value, first.low, first.high)]
    return {**search, "accuracy": accuracy, "card": card, "seconds": round(time.perf_counter() - started, 2)}


def run(folder: str, only: Sequence[str], settings: Mapping[str, Any], results: Path) -> None:
    """Makes all searches that the results do not have yet."""
    known = [{name: line[name] for name in ("data", "way", "arm", "round")} for line in lines(results)]
    due = [one for one in searches(settings) if one not in known and (not only or one["data"] in only)]
    epsilon = settings["epsilons"][0]
    with workers() as pool:
        waiting = []
        for one in due:
            way = str(settings["ways"][one["way"]]).split()
            arm = [word.strip("'") for word in str(settings["arms"][one["arm"]]).split()]
            words = [*asked(one["data"], folder, settings), f"privacy.epsilon={epsilon:g}", *way, *arm]
            waiting.append(pool.submit(searched, one, words, folder))
        write_as_they_come(waiting, results)


def table() -> str:
    """A line for each data set and way: both means, their difference, and how many cards' intervals held."""
    found = lines(RESULTS)
    written = []
    for data, way in dict.fromkeys((line["data"], line["way"]) for line in found):
        own = [line for line in found if (line["data"], line["way"]) == (data, way)]
        without, sealed = ([100 * one["accuracy"] for one in own if one["arm"] == arm] for arm in (WITHOUT, WITH))
        if min(len(without), len(sealed)) < 2:
            continue
        low, high = stats.ttest_ind(sealed, without, equal_var=False).confidence_interval()
        cards = [one for one in own if one["card"] is not None]
        held = sum(one["card"][1] <= one["accuracy"] <= one["card"][2] for one in cards)
        width = 50 * statistics.fmean(one["card"][2] - one["card"][1] for one in cards)
        written.append(
            f"{data:<14}{way:<34}{statistics.fmean(without):6.2f}{statistics.fmean(sealed):7.2f}"
            f"{statistics.fmean(sealed) - statistics.fmean(without):+7.2f} [{low:+.2f}, {high:+.2f}]"
            f"  {len(without)}+{len(sealed)} searches; cards ±{width:.1f}, {held} of {len(cards)} hold"
        )
    return "\n".join(written)


def toy() -> None:
    """One round of one way on generated images, which are too few for a sealed part."""
    from measuring.generated_mnist import study_folder

    with study_folder() as (folder, words):
        results = Path(folder, "results.jsonl")
        settings = {
            **{"rounds": 1, "epsilons": [8.0], "data": ["mnist"], "words": {"mnist": words}},
            "ways": {"two points": "trainer=dpsgd trainer.lr=1,2 trainer.clip_norm=1"},
            "arms": {WITHOUT: "plan.card=false", WITH: "budget.sealed=auto"},
        }
        run(folder, [], settings, results)
        found = lines(results)
    print(*found, sep="\n")
    if len(found) != 2:
        sys.exit(f"2 searches were asked for, {len(found)} have a result")


if __name__ == "__main__":
    start_study(
        lambda folder, only: run(folder, only, yaml.safe_load(SETTINGS.read_text()), RESULTS), table, toy, __doc__
    )
