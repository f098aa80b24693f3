"""Parameters of modules without a rule of their own: their per-example gradients by torch.func.

The module is run a second time, one example at a time under `torch.func.vmap`, on the inputs of its recorded calls, and
differentiated by its own parameters: slower than a rule, and valid for whatever the module's `forward` does with them.
Parameters of its submodules are recorded by their own layers, so a parameter of the model itself, such as a class
token, costs one more pass and no memory for the other parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from dpsweep.trainers.engines.gradients.layer_gradients import DenseGradient, LayerGradient
from dpsweep.trainers.engines.gradients.parameters import as_rows
from dpsweep.trainers.engines.gradients.supported_layers import Layer, Unsupported
from dpsweep.trainers.engines.recorders.recorded_pass import RecordedPass


@dataclass(kw_only=True, eq=False)
class _ModuleCall:
    """One call: all arguments, the versions of its tensors, and the gradients by its outputs that are known so far."""

    arguments: list[Any]
    structure: TreeSpec
    versions: list[int]
    gradients: dict[int, Tensor] = field(default_factory=dict)

    @property
    def tensors(self) -> list[Tensor]:
        return [value for value in self.arguments if isinstance(value, Tensor)]

    def filled(self, tensors: list[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments with other tensors."""
        others = iter(tensors)
        values = [next(others) if isinstance(value, Tensor) else value for value in self.arguments]
        arguments: tuple[tuple[Any, ...], dict[str, Any]] = tree_unflatten(values, self.structure)
        return arguments


@dataclass(kw_only=True, eq=False)
class CustomLayer:
    """The recorder of a module's own parameters, by a second run of the module."""

    layer: Layer
    current: RecordedPass
    _calls: list[_ModuleCall] = field(default_factory=list)

    def attach(self) -> Callable[[], None]:
        """Adds a forward hook."""
        return self.layer.module.register_forward_hook(self._record, with_kwargs=True).remove

    def _record(self, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], output: Any) -> Any:
        """Replaces the outputs by views: the gradient by a view has no part that flows back from another output."""
        if not self.current.active:
            return output
        values, structure = tree_flatten((arguments, options))
        outputs, form = tree_flatten(output)
        tensors = [value for value in values if isinstance(value, Tensor)]
        places = [place for place, value in enumerate(outputs) if _is_float(value)]
        if not tensors or not places or not all(map(self.current.has_rows, [*tensors, *(outputs[p] for p in places)])):
            raise Unsupported(self.layer.name, module, "to be called with tensors of one row for each example")
        detached = [value.detach() if isinstance(value, Tensor) else value for value in values]
        call = _ModuleCall(arguments=detached, structure=structure, versions=[value._version for value in tensors])
        self._calls.append(call)
        for place in places:
            outputs[place] = outputs[place].view_as(outputs[place])
            self.current.watch(outputs[place], partial(call.gradients.__setitem__, place))
        return tree_unflatten(outputs, form)

    def collect(self) -> Mapping[str, LayerGradient]:
        """The sums over the calls."""
        calls, self._calls = [call for call in self._calls if call.gradients], []
        if not calls:
            condition = "to be called in a pass, and the loss to depend on it"
            raise Unsupported(self.layer.name, self.layer.module, condition)
        if any(value._version != old for call in calls for value, old in zip(call.tensors, call.versions, strict=True)):
            raise Unsupported(self.layer.name, self.layer.module, "to have inputs that are not overwritten")
        parts = [self._rows(call) for call in calls]
        return {name: DenseGradient(rows=_sum([part[name] for part in parts])) for name in parts[0]}

    def _rows(self, call: _ModuleCall) -> dict[str, Tensor]:
        """The gradients [n, ...] of one call by each parameter, each example as its own batch."""
        places = sorted(call.gradients)

        def product(values: dict[str, Tensor], tensors: list[Tensor], gradients: list[Tensor]) -> Tensor:
            arguments, options = call.filled([tensor[None] for tensor in tensors])
            outputs = tree_leaves(functional_call(self.layer.module, values, arguments, options))
            products = [(outputs[place][0] * one).sum() for place, one in zip(places, gradients, strict=True)]
            return torch.stack(products).sum()

        own = {name: parameter.detach() for name, parameter in self.layer.trained.items()}
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH), self.current.products(call.tensors[0]):
            warnings.filterwarnings("ignore", message="There is a performance drop")
            rows = vmap(grad(product), in_dims=(None, 0, 0))(own, call.tensors, [call.gradients[p] for p in places])
        return {name: as_rows(values) if values.ndim == 1 else values for name, values in rows.items()}


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _sum(values: list[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.stack(values).sum(dim=0)
