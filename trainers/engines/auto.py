"""The fused engine for the models that it takes, Opacus for all others."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from trainers.engines.engine import Engine, Minibatch, Task
from trainers.engines.fused import Fused
from trainers.engines.supported import Unsupported

log = logging.getLogger("dpsweep.engine")


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The engine that takes any module: the fused one where it can; which it is, the log says once for each model."""

    stacks: ClassVar[bool] = True
    _fused: Fused = field(default_factory=Fused, init=False, repr=False, compare=False)
    _chosen: MutableMapping[nn.Module, Engine] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def weighted_sum(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] and the units' norms, by the engine that takes this model; whichever it is, they are the same."""
        engine = self._chosen.get(model, self._fused)
        try:
            found = engine.weighted_sum(model, batch, task)
        except Unsupported as refusal:
            log.info("engine opacus: %s", refusal)
            self._chosen[model] = engine = _opacus()
            return engine.weighted_sum(model, batch, task)
        if model not in self._chosen:
            log.info("engine fused")
            self._chosen[model] = engine
        return found


def _opacus() -> Engine:
    """Only where it is needed: its import takes seconds."""
    from trainers.engines.opacus import Opacus

    return Opacus()
