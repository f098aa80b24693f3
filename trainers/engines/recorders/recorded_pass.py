"""One forward and backward pass in which recorders collect the per-example gradients of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from dpsweep.trainers.engines.gradients.layer_gradients import LayerGradient


@dataclass(kw_only=True, eq=False)
class RecordedPass:
    """The state of a pass that all recorders share: the number of examples, and whether calls are recorded.

    `leaves` are outputs that begin the graph: parameters need no gradient during a pass. With `narrow`, a dtype
    narrower than the parameters' `dtype`, torch rounds factors of products to it; recorders are given gradients in
    `dtype`.
    """

    dtype: torch.dtype
    narrow: torch.dtype | None = None
    examples: int = 0
    active: bool = False
    leaves: list[Tensor] = field(default_factory=list)

    @contextmanager
    def begun(self, examples: int) -> Iterator[None]:
        """Calls of layers are recorded, for so many examples."""
        self.examples, self.active = examples, True
        try:
            yield
        finally:
            self.active = False
            self.leaves.clear()

    def products(self, like: Tensor) -> AbstractContextManager[object]:
        """Computes products in the narrow dtype, if there is one, on the device of `like`."""
        return nullcontext() if self.narrow is None else torch.autocast(like.device.type, self.narrow)

    def watch(self, output: Tensor, consume: Callable[[Tensor], None]) -> None:
        """Calls `consume` with the gradient by this output, once it is known."""
        if not output.requires_grad:
            self.leaves.append(output.requires_grad_())
        output.register_hook(lambda gradient: consume(self.wide(gradient)))  # type: ignore[no-untyped-call]

    def wide(self, values: Tensor) -> Tensor:
        """Floating-point values in the parameters' dtype."""
        return values.to(self.dtype) if values.is_floating_point() else values

    def has_rows(self, values: Tensor) -> bool:
        """Whether the tensor may have one row for each example."""
        return values.ndim > 0 and len(values) == self.examples


class Recorder(Protocol):
    """Collects the per-example gradients of one layer, pass by pass."""

    def attach(self) -> Callable[[], None]:
        """Begins to record the layer's calls; the returned function ends it and undoes all changes."""
        ...

    def collect(self) -> Mapping[str, LayerGradient]:
        """The gradients of the last pass by each trainable parameter's name; what was recorded is forgotten.

        Errors: Unsupported for calls that cannot be recorded, and for parameters that the loss does not depend on.
        """
        ...
