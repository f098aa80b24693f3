"""Published methods by name: each is a transform, an update, and the hyperparameters of both.

Plans store and hash a method's name beside its hyperparameters, `{"kind": "dp_sgd", "lr": 0.5, "clip_norm": 1.0}`. So
the names in this module never change, nor do the names of their hyperparameters. A combination without a name needs
neither a row here nor Python: it is a `Method` in a YAML file (docs/contributing.md). Projected DP-SGD also projects
the weights onto a ball, which is post-processing, at no privacy cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar

from dpsweep.accounting.codec import positive
from dpsweep.trainers.methods.method import Method, Trainer
from dpsweep.trainers.methods.rate_laws import RateLaw
from dpsweep.trainers.methods.transforms import Clip, Normalize, Unbounded
from dpsweep.trainers.methods.updates import (
    Adam,
    AdamWithoutNoiseBias,
    AdamWithoutSecondMoments,
    HalfSteps,
    Momentum,
    Sgd,
)

if TYPE_CHECKING:
    from torch import Tensor

LR = "lr"
WEIGHT_DECAY = "weight_decay"


@dataclass(frozen=True, kw_only=True)
class NamedMethod:
    """Makes a `Method` from the hyperparameters of its transform and its update, which are dataclasses of numbers.

    `rate_law` is what `trainer.lr=auto` stands for, `averaged_rate_law` where the weights are averaged; None for a
    method whose rate was not measured.
    """

    label: str
    transform: type[Any]
    update: type[Any]
    noiseless: bool = False
    works: tuple[str, ...] = ()
    rate_law: RateLaw | None = None
    averaged_rate_law: RateLaw | None = None

    def __post_init__(self) -> None:
        numbers = [one for part in (self.transform, self.update) for one in fields(part) if one.name != LR]
        parameters = [Parameter(LR, Parameter.KEYWORD_ONLY), *_signature_parameters_from_fields(numbers)]
        if not self.update.moves_weights_alone:
            parameters.append(Parameter(WEIGHT_DECAY, Parameter.KEYWORD_ONLY, default=Trainer.weight_decay))
        object.__setattr__(self, "__signature__", Signature(parameters))

    def __call__(self, **numbers: float) -> Method:
        """The method with these hyperparameters; TypeError if one is missing or unknown."""
        bound = signature(self).bind(**numbers)
        bound.apply_defaults()
        return Method(
            lr=bound.arguments[LR],
            transform=_dataclass_from_named_numbers(self.transform, bound.arguments),
            update=_dataclass_from_named_numbers(self.update, bound.arguments),
            noiseless=self.noiseless,
            label=self.label,
            weight_decay=bound.arguments.get(WEIGHT_DECAY, Trainer.weight_decay),
        )


def _signature_parameters_from_fields(numbers: list[Field[Any]]) -> Iterator[Parameter]:
    for one in numbers:
        default = Parameter.empty if one.default is MISSING else one.default
        yield Parameter(one.name, Parameter.KEYWORD_ONLY, default=default)


def _dataclass_from_named_numbers(part: type[Any], numbers: dict[str, Any]) -> Any:
    return part(**{one.name: numbers[one.name] for one in fields(part)})


AVERAGED = RateLaw(first=76.0, exponent=1.0, weights_exponent=-0.5)
"""The rate of bounded gradients along half a cosine, by `benchmarks/recipes.py`."""

_KINGMA, _MOHAPATRA, _YANG = "kingma2015adam", "mohapatra2022role", "yang2022normalized"

DpSgd = NamedMethod(
    label="DP-SGD",
    transform=Clip,
    update=Sgd,
    works=("abadi2016deep",),
    rate_law=RateLaw(first=2.0),
    averaged_rate_law=AVERAGED,
)
"""Source: Abadi et al. 2016, Algorithm 1."""

DpNsgd = NamedMethod(
    label="DP-NSGD",
    transform=Normalize,
    update=Sgd,
    works=(_YANG, "bu2023automatic"),
    rate_law=RateLaw(first=8.0),
    averaged_rate_law=AVERAGED,
)
"""Automatic clipping, AUTO-S, is this method with a regularizer of 0.01, which AUTO-S calls gamma and does not tune.

Source: Yang, Zhang, Chen, Liu 2022, Algorithm 1; Bu, Wang, Zha, Karypis 2023 (AUTO-S).
"""

DpMomentum = NamedMethod(
    label="DP-Momentum", transform=Clip, update=Momentum, works=(_MOHAPATRA,), rate_law=RateLaw(first=0.4)
)
"""The noise in a velocity has up to 1 / (1 - momentum^2) times a gradient's variance; Yu et al. use momentum 0.6.

Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022 (DPMomentum); Yu, Zhang, Chen 2019, Equation 5.
"""

DpAdam = NamedMethod(
    label="DP-Adam", transform=Clip, update=Adam, works=(_MOHAPATRA, _KINGMA), rate_law=RateLaw(first=0.03)
)
"""Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022 (DPAdam); Kingma & Ba 2015, Algorithm 1."""

DpAdamBc = NamedMethod(
    label="DP-AdamBC", transform=Clip, update=AdamWithoutNoiseBias, works=("tang2024dpadambc", _KINGMA)
)
"""Source: Tang, Shpilevskiy, Lecuyer 2024, Algorithm 1 (DP-AdamBC); Kingma & Ba 2015, Algorithm 1."""

DpNadam = NamedMethod(label="DP-NAdam", transform=Normalize, update=Adam, works=(_YANG, _KINGMA))
"""The N stands for normalization, as in DP-NSGD: this is not Nesterov's variant of Adam, also called NAdam.

Source: Yang, Zhang, Chen, Liu 2022, Appendix D (DP-NAdam); Kingma & Ba 2015, Algorithm 1.
"""

DpAdamWosm = NamedMethod(label="DP-AdamWOSM", transform=Clip, update=AdamWithoutSecondMoments, works=(_MOHAPATRA,))
"""DP-Adam at its converged step size, lr / (noise_multiplier * clip_norm / batch_size + eps).

It needs noise: less noise means longer steps, and without noise the step size is lr / eps.
Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022, Algorithm 2 and Theorem 7.1 (DPAdamWOSM).
"""

Adadp = NamedMethod(label="ADADP", transform=Clip, update=HalfSteps, works=("koskela2020learning", _MOHAPATRA))
"""Each iteration takes two half steps, each charged as a step of the run; `lr` is the first iteration's rate.

Source: Koskela & Honkela 2020 (Learning Rate Adaptation for Differentially Private Learning), Algorithm 1; ADADP in
Mohapatra et al. 2022.
"""

PlainSgd = NamedMethod(label="SGD", transform=Unbounded, update=Sgd, noiseless=True)
"""Only for records declared public. Source: Robbins and Monro 1951."""

PlainAdam = NamedMethod(label="Adam", transform=Unbounded, update=Adam, noiseless=True)
"""Only for records declared public. Source: Kingma & Ba 2015, Algorithm 1."""

ClippedSgd = NamedMethod(label="clipped SGD", transform=Clip, update=Sgd, noiseless=True)
"""DP-SGD without noise, only for records declared public. Source: Yang, Zhang, Chen, Liu 2022, Section 3.4."""

NormalizedSgd = NamedMethod(label="normalized SGD", transform=Normalize, update=Sgd, noiseless=True)
"""DP-NSGD without noise, only for records declared public. Source: Yang, Zhang, Chen, Liu 2022, Section 3.4."""


class Projection:
    """The projections of K runs at once, each onto its own ball; runs without a radius are not changed."""

    def __init__(self, trainers: Sequence[Trainer], like: Tensor) -> None:
        radii = [one.radius for one in trainers]
        self._radii = None if min(radii) == math.inf else like.new_tensor(radii)[:, None].double()

    def __call__(self, weights: Tensor) -> None:
        """Projects the weights [K, P] in place, each row onto its own ball."""
        import torch

        if self._radii is None:
            return
        norms = torch.linalg.vector_norm(weights, dim=1, keepdim=True, dtype=torch.float64)
        weights *= torch.where(norms > self._radii, self._radii / norms, torch.ones_like(norms))


@dataclass(frozen=True, kw_only=True)
class ProjectedDpSgd(Trainer):
    """DP-SGD that projects the weights onto the ball of `radius` around 0 after every step.

    Source: Bassily, Smith, Thakurta 2014, Algorithm 1, which projects onto any convex set.
    """

    works: ClassVar[tuple[str, ...]] = ("bassily2014private",)

    label = "projected DP-SGD"
    update = Sgd()
    """The training loop performs the projection."""

    lr: float
    clip_norm: float
    radius: float = field()  # required, whatever the base class has

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("clip_norm", self.clip_norm)
        positive("radius", self.radius)
        object.__setattr__(self, "transform", Clip(clip_norm=self.clip_norm))
