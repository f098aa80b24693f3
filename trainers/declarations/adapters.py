"""Adapters: small trainable maps beside frozen layers of a pretrained model. A declaration imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from dpsweep.accounting.codec import positive, positive_int


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Low-rank adaptation: W x becomes W x + alpha / rank * B A x for the frozen layers in `targets`.

    A [rank, inputs] and B [outputs, rank] are trained; B starts at zero. `targets` are the last parts of the names of
    linear layers, and at least one must be in the model. What the model itself declares trainable stays trainable.
    Source: Hu et al. 2022 (LoRA); Yu et al. 2022 (with differential privacy).
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]

    def __post_init__(self) -> None:
        positive_int("adapter.rank", self.rank)
        positive("adapter.alpha", self.alpha)
        names = [self.targets] if isinstance(self.targets, str) else list(self.targets)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"Expected adapter.targets={names} to be names of layers.")
        object.__setattr__(self, "targets", tuple(names))

    @property
    def scale(self) -> float:
        """The factor alpha / rank of the low-rank map."""
        return self.alpha / self.rank
