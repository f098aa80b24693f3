"""The fused engine for the models that it takes, Opacus for others that it takes, torch.func.vmap for the rest."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.gradients.supported_layers import Unsupported
from dpsweep.trainers.engines.interface import Engine, Minibatch, Task

log = logging.getLogger("dpsweep.engine")


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The engine that takes any module, by the first that does; which it is, the log says once for each model."""

    stacks: ClassVar[bool] = True
    _fused: Fused = field(default_factory=Fused, init=False, repr=False, compare=False)
    _chosen: MutableMapping[nn.Module, Engine] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def weighted_sum(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] and the units' norms, by the engine that takes this model; whichever it is, they are the same."""
        refusals: dict[str, None] = {}
        for engine in self._engines(model):
            try:
                found = engine.weighted_sum(model, batch, task)
            except Unsupported as refusal:
                refusals[str(refusal)] = None
                continue
            if self._chosen.get(model) is not engine:
                log.info("engine %s", ": ".join([type(engine).__name__.lower(), *refusals]))
                self._chosen[model] = engine
            return found
        raise ValueError(f"Expected model={type(model).__name__} to be taken by one of the engines.")

    def _engines(self, model: nn.Module) -> Iterator[Engine]:
        """The engine that took this model before, then all of them, the quickest first."""
        if (before := self._chosen.get(model)) is not None:
            yield before
        yield self._fused
        yield from (make() for make in (_opacus, _vmap))


def _opacus() -> Engine:
    """Only where it is needed: its import takes seconds."""
    from dpsweep.trainers.engines.opacus import Opacus

    return Opacus()


def _vmap() -> Engine:
    from dpsweep.trainers.engines.vmap import Vmap

    return Vmap()
