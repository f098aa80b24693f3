"""Automatic choice of an engine: fused if it supports the model, else Opacus if it does, else torch.func.vmap."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Engine, Minibatch, Task, Unsupported

log = logging.getLogger("dpsweep.engine")


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The engine for any module: it uses the first engine that supports the model, and logs the choice once.

    `precision` is that of the fused engine; the other engines compute in the parameters' dtype.
    """

    stacks: ClassVar[bool] = True
    precision: str = "float32"
    _fused: Fused = field(init=False, repr=False, compare=False)
    _chosen: MutableMapping[nn.Module, Engine] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fused", Fused(precision=self.precision))

    def bounded_gradient_sum_and_norms(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] and the units' norms, from the first engine that supports this model; all give the same."""
        refusals: dict[str, None] = {}
        for engine in self._engines_to_try(model):
            try:
                result = engine.bounded_gradient_sum_and_norms(model, batch, task)
            except Unsupported as refusal:
                refusals[str(refusal)] = None
                continue
            if self._chosen.get(model) is not engine:
                log.info("engine %s", ": ".join([type(engine).__name__.lower(), *refusals]))
                self._chosen[model] = engine
            return result
        raise ValueError(f"Expected model={type(model).__name__} to be taken by one of the engines.")

    def _engines_to_try(self, model: nn.Module) -> Iterator[Engine]:
        """The engine chosen before for this model, then all engines, fastest first."""
        if (engine := self._chosen.get(model)) is not None:
            yield engine
        yield self._fused
        from dpsweep.trainers.engines.opacus import Opacus  # it takes seconds, so only where it is needed

        yield Opacus()
        from dpsweep.trainers.engines.vmap import Vmap

        yield Vmap()
