"""DP-NAdam: normalized gradients, Adam's steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.methods.transforms import Normalize
from dpsweep.trainers.methods.updates import Adam


@dataclass(frozen=True, kw_only=True)
class DpNadam:
    """Adam's steps of `lr` from the noisy mean of gradients normalized by 1 / (regularizer + ||g||).

    The N is that of DP-NSGD, normalization: this is not Nesterov's variant of Adam, which is called NAdam too.
    Source: Yang, Zhang, Chen, Liu 2022, Appendix D (DP-NAdam); Kingma & Ba 2015, Algorithm 1.
    """

    label: ClassVar[str] = "DP-NAdam"
    lr: float
    regularizer: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("regularizer", self.regularizer)
        Adam(beta1=self.beta1, beta2=self.beta2, eps=self.eps)

    @property
    def transform(self) -> Normalize:
        """Normalization with `regularizer`."""
        return Normalize(regularizer=self.regularizer)

    @property
    def update(self) -> Adam:
        """Adam's steps."""
        return Adam(beta1=self.beta1, beta2=self.beta2, eps=self.eps)
