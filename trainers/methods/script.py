"""A training script of the user's own, with any library: dpsweep hands it the records and checks its account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpsweep.accounting.codec import positive, require_text
from dpsweep.accounting.stored_names.format_defaults import Place
from dpsweep.accounting.stored_names.stored_classes import SCRIPT, tag_or_path_of_class
from dpsweep.trainers.declarations.lr_schedules import Constant, LearningRate
from dpsweep.trainers.methods.method import Trainer
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.methods.updates import Sgd

Hyperparameter = float | int | str | bool | None

SAMPLERS = ("poisson", "fixed_size")
"""The samplers whose steps a foreign accountant can report."""

NEXT_TOKEN = "next_token"
"""The tag of the loss of sequences, which are not handed over."""

_CHOSEN_BY_THE_SCRIPT: Mapping[str, tuple[Any, ...]] = {
    "model": ({},),
    "adapter": (None, {}),
    "features": (None, {}),
    "augmentation": (None, {}),
    "clip_schedule": (None, {"kind": "constant_clip_norm"}),
    "engine": ({"kind": "auto_engine"},),
    "ema": (None,),
    "subsample": (None, "independent"),
    "noise": (None, {}),
}
"""Parts of a configuration that mean nothing to a script, each with the values that leave it out."""


@dataclass(frozen=True, kw_only=True)
class Script(Trainer):
    """The program `script`, with the SHA-256 of its content, that trains one model by clipped and noised gradients.

    `lr`, `clip_norm` and the named `hyperparameters` are handed to the script, which does with them what it likes.

    *Guarantee*: none by dpsweep. The sampler, the noise and the clip norm are declared and charged as for every
    method; of the script's run the account that its own accountant keeps is compared with the declaration.
    """

    label = "a DP script of your own"
    update = Sgd()
    """A placeholder: the script makes the steps."""

    script: Place
    lr: float
    clip_norm: float
    sha256: str | None = None
    hyperparameters: Mapping[str, Hyperparameter] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        require_text("script", self.script)
        positive("lr", self.lr)
        positive("clip_norm", self.clip_norm)
        object.__setattr__(self, "transform", Clip(clip_norm=self.clip_norm))
        if not isinstance(self.hyperparameters, Mapping):
            raise TypeError(f"Expected trainer.hyperparameters={self.hyperparameters!r} to be names with values.")
        for name, value in self.hyperparameters.items():
            if not str(name).isidentifier() or name in ("lr", "clip_norm"):
                raise ValueError(f"Expected trainer.hyperparameters.{name} to be a name other than lr and clip_norm.")
            if not isinstance(value, Hyperparameter):
                raise ValueError(f"Expected trainer.hyperparameters.{name}={value!r} to be a number or a text.")

    @property
    def script_hyperparameters(self) -> dict[str, Hyperparameter]:
        """The hyperparameters by name, as the script reads them."""
        return {"lr": self.lr, "clip_norm": self.clip_norm, **self.hyperparameters}

    def check(self, steps: int, schedule: LearningRate) -> None:
        """Raises ValueError unless the schedule is constant: the script has its own."""
        if not isinstance(schedule, Constant):
            raise ValueError("Expected lr_schedule=constant with trainer=script: the script has its own.")

    def check_settings(self, config: Mapping[str, Any]) -> None:
        """Raises ValueError, in one sentence, for a setting that the script would not see."""
        if self.sha256 is None:
            raise ValueError("Expected trainer.sha256 to be the checksum of the script, which the command computes.")
        for part, absent in _CHOSEN_BY_THE_SCRIPT.items():
            if config.get(part) not in absent:
                raise ValueError(f"Expected {part} to be left out with trainer=script, or none: the script chooses it.")
        if tag_or_path_of_class(config.get("loss", {})) == NEXT_TOKEN:
            raise ValueError("Expected loss=next_token to be left out with trainer=script: it hands over no sequences.")
        if config.get("loss", {}).get("class_weights") is not None:
            raise ValueError("Expected loss.class_weights to be null with trainer=script: the script weighs its own.")
        if config["score"].get("every") is not None:
            raise ValueError("Expected score.every to be null with trainer=script: dpsweep sees its last model alone.")
        if (sampler := tag_or_path_of_class(config["sampler"])) not in SAMPLERS:
            raise ValueError(
                f"Expected sampler={sampler} to be {' or '.join(SAMPLERS)} with trainer=script: accountants of other "
                "libraries report no other."
            )


def is_script_config(config: Mapping[str, Any]) -> bool:
    """Whether a trial's configuration names a script of the user's."""
    return tag_or_path_of_class(config["trainer"]) == SCRIPT
