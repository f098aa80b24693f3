"""`scale=`: how large an experiment is, as the words that Hydra knows.

An experiment is `conf/experiment/NAME.yaml`, in its paper's size. What is smaller of it stands in `small/NAME.yaml` and
`smoke/NAME.yaml` beside it, each of which begins with the whole and then overrides; so `experiment=small/NAME` is all
that Hydra needs. It cannot be put together by `${scale}` in the list of defaults: what is found by such a reference may
override no group, and another data set is a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpsweep.accounting.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS, FIGURES = ROOT / "conf" / "experiment", ROOT / "reports" / "reproduction" / "figures"
FULL, REDUCED = "full", ("small", "smoke")


def scaled(arguments: Sequence[str]) -> list[str]:
    """The words of a command line with `scale=` worked into `experiment=`; raises `BadInput` where they do not fit.

    >>> scaled(["experiment=a_fig3", "scale=small", "steps=5"])
    ['experiment=small/a_fig3', 'steps=5']
    >>> scaled(["scale=full", "experiment=a_fig3"])
    ['experiment=a_fig3']
    """
    for word in arguments:
        _refuse_what_trains_nothing(word)
    scales = [word.partition("=")[2] for word in arguments if word.startswith("scale=")]
    if not scales:
        return list(arguments)
    scale = scales[-1]
    if scale not in (FULL, *REDUCED):
        raise BadInput(f"Expected scale={scale} to be one of {', '.join((FULL, *REDUCED))}.")
    if not any(word.startswith("experiment=") for word in arguments):
        raise BadInput(f"Expected scale={scale} to come with an experiment, as in experiment=a_fig3.")
    kept = [word for word in arguments if not word.startswith("scale=")]
    return kept if scale == FULL else [_within(scale, word) for word in kept]


def _refuse_what_trains_nothing(word: str) -> None:
    """A figure that the accountants alone make is no sweep, but has a name like one."""
    key, _, name = word.partition("=")
    if key == "experiment" and (FIGURES / f"{name}.py").is_file() and not (EXPERIMENTS / f"{name}.yaml").is_file():
        raise BadInput(
            f"Expected experiment={name} to be a sweep: this figure trains nothing. "
            f"python -m dpsweep.reports.reproduction {name} (make reproduce FIGURE={name}) computes it."
        )


def _within(scale: str, word: str) -> str:
    name, _, value = word.partition("=")
    return f"{name}={scale}/{value}" if name == "experiment" else word
