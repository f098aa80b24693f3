"""`scale=`: the size of an experiment, translated to Hydra overrides.

An experiment is `conf/experiment/NAME.yaml`, at its paper's size. Smaller versions are `small/NAME.yaml` and
`smoke/NAME.yaml` beside it, which include the full experiment and override parts of it, so that Hydra needs only
`experiment=small/NAME`. A `${scale}` in the defaults list does not work: a configuration that is included by a
reference cannot override groups, and the data set is a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpsweep.accounting.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS, FIGURES = ROOT / "conf" / "experiment", ROOT / "reports" / "reproduction" / "figures"
FULL, REDUCED = "full", ("small", "smoke")


def scaled(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line with `scale=` merged into `experiment=`; raises `BadInput` if they do not fit.

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
    words = [word for word in arguments if not word.startswith("scale=")]
    return words if scale == FULL else [_within(scale, word) for word in words]


def _refuse_what_trains_nothing(word: str) -> None:
    """Refuses the name of a figure that accountants compute without training: it is not a sweep."""
    key, _, name = word.partition("=")
    if key == "experiment" and (FIGURES / f"{name}.py").is_file() and not (EXPERIMENTS / f"{name}.yaml").is_file():
        raise BadInput(
            f"Expected experiment={name} to be a sweep: this figure trains nothing. "
            f"python -m dpsweep.reports.reproduction {name} (make reproduce FIGURE={name}) computes it."
        )


def _within(scale: str, word: str) -> str:
    name, _, value = word.partition("=")
    return f"{name}={scale}/{value}" if name == "experiment" else word
