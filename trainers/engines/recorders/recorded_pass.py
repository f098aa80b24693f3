"""One forward and backward pass in which recorders collect the per-example gradients of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from dpsweep.trainers.engines.gradients.layer_gradients import LayerGradient


@dataclass(kw_only=True, eq=False)
class RecordedPass:
    """The state of a pass that all recorders share: the number of examples, and whether calls are recorded.

    `leaves` are outputs that begin the graph: parameters need no gradient during a pass.
    """

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

    def watch(self, output: Tensor, consume: Callable[[Tensor], None]) -> None:
        """Calls `consume` with the gradient by this output, once it is known."""
        if not output.requires_grad:
            self.leaves.append(output.requires_grad_())
        output.register_hook(consume)  # type: ignore[no-untyped-call]

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
