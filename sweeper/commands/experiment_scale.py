"""`experiment=` and `scale=`: an experiment of a paper in one of its sizes, as Hydra finds it.

`conf/experiment/NAME.yaml` is an experiment at its paper's size. Its key `scales` has the smaller ones by name: each is
a configuration that includes the whole experiment and overrides parts of it, or names an experiment whose changes are
its own. All sizes are put into Hydra's store, so that `experiment=SCALE/NAME` is an ordinary choice, and no composed
configuration has the key `scales`. A `${scale}` in the defaults list does not work: a configuration that is included by
a reference cannot override groups, and the data set is a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.readable_files import UNREADABLE

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS, FIGURES = ROOT / "conf" / "experiment", ROOT / "reports" / "reproduction" / "figures"
FULL, REDUCED = "full", ("small", "smoke")
SCALES = "scales"
"""The key of an experiment's file under which its smaller sizes are."""


def merge_scale_into_experiment(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line with `scale=` merged into `experiment=`; raises `BadInput` if they do not fit.

    >>> scaled(["experiment=a_fig3", "scale=small", "steps=5"])
    ['experiment=small/a_fig3', 'steps=5']
    >>> scaled(["experiment=a_fig3"]), scaled(["experiment=my_own"])
    (['experiment=full/a_fig3'], ['experiment=my_own'])
    """
    for word in arguments:
        _refuse_what_trains_nothing(word)
    scales = [word.partition("=")[2] for word in arguments if word.startswith("scale=")]
    scale = scales[-1] if scales else FULL
    if scale not in (FULL, *REDUCED):
        raise BadInput(f"Expected scale={scale} to be one of {', '.join((FULL, *REDUCED))}.")
    if scales and not any(word.startswith("experiment=") for word in arguments):
        raise BadInput(f"Expected scale={scale} to come with an experiment, as in experiment=a_fig3.")
    return [_with_scale(word, scale) for word in arguments if not word.startswith("scale=")]


def _refuse_what_trains_nothing(word: str) -> None:
    """Refuses the name of a figure that accountants compute without training: it is not a sweep."""
    key, _, name = word.partition("=")
    if key == "experiment" and (FIGURES / f"{name}.py").is_file() and not (EXPERIMENTS / f"{name}.yaml").is_file():
        raise BadInput(
            f"Expected experiment={name} to be a sweep: this figure trains nothing. "
            f"python -m dpsweep.reports.reproduction {name} (make reproduce FIGURE={name}) computes it."
        )


def _with_scale(word: str, scale: str) -> str:
    """`experiment=NAME` as `experiment=SCALE/NAME`, which is in the store then; any other word as it is."""
    key, _, choice = word.partition("=")
    typed, _, name = choice.rpartition("/")
    if key != "experiment":
        return word
    if _stored(name):
        return f"{key}={typed or scale}/{name}"
    return word if scale == FULL else f"{key}={scale}/{choice}"


def _stored(name: str) -> bool:
    """Puts all sizes of an experiment into Hydra's store; False if it has one size alone, or is the user's own."""
    form = _form(name)
    scales = form.pop(SCALES, None)
    if scales is None:
        return False
    for scale, own in {FULL: form, **scales}.items():
        changes = _form(own)[SCALES][scale] if isinstance(own, str) else own
        included = [] if scale == FULL else [f"/experiment/{FULL}/{name}", "_self_"]
        node = {**changes, "defaults": [*included, *changes.get("defaults", ())]}
        ConfigStore.instance().store(group=f"experiment/{scale}", name=name, node=node, package="_global_")
    return True


def _form(name: str) -> DictConfig:
    """What an experiment's file holds; nothing where Hydra is left to say that it cannot be read."""
    try:
        form = OmegaConf.load(EXPERIMENTS / f"{name}.yaml")
    except (OSError, *UNREADABLE):
        return OmegaConf.create()
    return form if isinstance(form, DictConfig) else OmegaConf.create()
