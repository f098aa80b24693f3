"""Recorders of per-example gradients: each collects those of one layer in a forward and backward pass of a model.

The fused engine must know every use of every parameter. A layer with a rule has its gradients by a formula from its
inputs and the gradient by its outputs. A layer that torch can run with a copy of its parameters for each example has
the gradients by the copies, which come with the backward pass itself. GroupNorm treats every group of channels on its
own. So n examples of C channels are one example of n * C channels with n times as many groups, whose weight and bias
have a place for each example.

Parameters of modules without a rule of their own are differentiated by torch.func. The module is run a second time, one
example at a time under `torch.func.vmap`, on the inputs of its recorded calls, and differentiated by its own
parameters: slower than a rule, and valid for whatever the module's `forward` does with them. Parameters of its
submodules are recorded by their own layers, so a parameter of the model itself, such as a class token, costs one more
pass and no memory for the other parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from dpsweep.trainers.engines.interface import Unsupported, gradients_as_rows
from dpsweep.trainers.engines.layer_gradients import DenseGradient, LayerGradient
from dpsweep.trainers.engines.layers import LAYERS

Gradient = TypeVar("Gradient")


class Treatment(Enum):
    """How the gradients of a layer's parameters are computed, fastest first."""

    RULE = "rule"
    COPIES = "copies"
    LINEAR_MAPS = "linear maps"
    TORCH_FUNC = "torch.func"


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A module, the trainable parameters for which it answers by name, and how their gradients are computed."""

    name: str
    module: nn.Module
    trained: Mapping[str, nn.Parameter]
    treatment: Treatment


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
    def recording_calls(self, examples: int) -> Iterator[None]:
        """Calls of layers are recorded, for so many examples."""
        self.examples, self.active = examples, True
        try:
            yield
        finally:
            self.active = False
            self.leaves.clear()

    def autocast_context_for_narrow_dtype(self, like: Tensor) -> AbstractContextManager[object]:
        """Computes products in the narrow dtype, if there is one, on the device of `like`."""
        return nullcontext() if self.narrow is None else torch.autocast(like.device.type, self.narrow)

    def register_output_gradient_callback(self, output: Tensor, consume: Callable[[Tensor], None]) -> None:
        """Calls `consume` with the gradient by this output, once it is known."""
        if not output.requires_grad:
            self.leaves.append(output.requires_grad_())
        output.register_hook(lambda gradient: consume(self.to_parameter_dtype(gradient)))  # type: ignore[no-untyped-call]

    def to_parameter_dtype(self, values: Tensor) -> Tensor:
        """Floating-point values in the parameters' dtype."""
        return values.to(self.dtype) if values.is_floating_point() else values

    def may_have_row_per_example(self, values: Tensor) -> bool:
        """Whether the tensor may have one row for each example."""
        return values.ndim > 0 and len(values) == self.examples


class Recorder(Protocol):
    """Collects the per-example gradients of one layer, pass by pass."""

    def attach_returning_undo(self) -> Callable[[], None]:
        """Begins to record the layer's calls; the returned function ends it and undoes all changes."""

    def collect_gradients(self) -> Mapping[str, LayerGradient]:
        """The gradients of the last pass by each trainable parameter's name; what was recorded is forgotten.

        Errors: Unsupported for calls that cannot be recorded, and for parameters that the loss does not depend on.
        """


_ROWS = "to be called with one tensor, one row for each example or one for all"


@dataclass(kw_only=True, eq=False)
class _CalledOnce(Generic[Gradient]):
    """What recorders of layers that are called once in a pass share; `_gradients` are by each parameter's name."""

    layer: Layer
    current: RecordedPass
    _called: bool = False
    _gradients: dict[str, Gradient] = field(default_factory=dict)

    def _begin_call(self) -> None:
        if self._called:
            raise Unsupported(self.layer.name, self.layer.module, "to be called once in a pass")
        self._called = True

    def _take_gradients(self) -> dict[str, Gradient]:
        """The gradients of the pass, which are forgotten here."""
        gradients, self._gradients, self._called = self._gradients, {}, False
        if gradients.keys() != self.layer.trained.keys():
            condition = "to be called once in a pass, and the loss to depend on it"
            raise Unsupported(self.layer.name, self.layer.module, condition)
        return gradients


@dataclass(kw_only=True, eq=False)
class RuledLayer(_CalledOnce[LayerGradient]):
    """The recorder of a layer in `LAYERS`: a hook on its output applies the rule as soon as its gradient is known."""

    def attach_returning_undo(self) -> Callable[[], None]:
        """Adds a forward hook."""
        return self.layer.module.register_forward_hook(self._record_call).remove

    def _record_call(self, module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not self.current.active:
            return output
        self._begin_call()
        if len(arguments) != 1 or not isinstance(arguments[0], Tensor):
            raise Unsupported(self.layer.name, module, _ROWS)
        inputs = self._repeat_shared_values_per_example(arguments[0].detach(), arguments[0])
        output = self._repeat_shared_values_per_example(output, arguments[0])
        if not self.current.may_have_row_per_example(inputs):
            raise Unsupported(self.layer.name, module, _ROWS)
        self.current.register_output_gradient_callback(
            output, partial(self._apply_gradient_rule, inputs, inputs._version)
        )
        return output

    def _repeat_shared_values_per_example(self, values: Tensor, inputs: Tensor) -> Tensor:
        """The values, or a view that repeats them for each example if the layer's inputs are the same for all examples.

        These are a single row, or inputs of one dimension, such as the numbers of places. So the choice never depends
        on whether a batch has as many examples as there are places.
        """
        if inputs.ndim == 1:
            return values.expand(self.current.examples, *values.shape)
        return values.expand(self.current.examples, *values.shape[1:]) if len(inputs) == 1 else values

    def _apply_gradient_rule(self, inputs: Tensor, version: int, gradient: Tensor) -> None:
        if inputs._version != version:
            raise Unsupported(self.layer.name, self.layer.module, "to have inputs that are not overwritten")
        rule = LAYERS[type(self.layer.module)]
        with self.current.autocast_context_for_narrow_dtype(gradient):
            values = self.current.to_parameter_dtype(inputs)
            self._gradients = dict(rule(self.layer.module, self.layer.trained, values, gradient))

    def collect_gradients(self) -> Mapping[str, LayerGradient]:
        """The gradients of the pass."""
        return self._take_gradients()


Copies = Mapping[str, Tensor]
"""By a parameter's name: its copies [n, ...], one for each example."""


def group_norm_with_parameter_copies(layer: nn.GroupNorm, copies: Copies, inputs: Tensor) -> Tensor:
    """What `nn.GroupNorm.forward` returns for inputs [n, C, ...], by the copies [n, C] of weight and bias."""
    joined = inputs.reshape(1, inputs.shape[0] * inputs.shape[1], *inputs.shape[2:])
    weight, bias = (copies[name].flatten() for name in ("weight", "bias"))
    outputs = functional.group_norm(joined, len(inputs) * layer.num_groups, weight, bias, layer.eps)
    return outputs.view(inputs.shape)


COPIED: Mapping[type[nn.Module], Callable[..., Tensor]] = MappingProxyType(
    {nn.GroupNorm: group_norm_with_parameter_copies}
)
"""By exact type: a subclass may use its parameters in another way."""


@dataclass(kw_only=True, eq=False)
class CopiedParameters(_CalledOnce[Tensor]):
    """The recorder of a layer in `COPIED`, whose method `forward` is replaced."""

    def attach_returning_undo(self) -> Callable[[], None]:
        """Replaces the module's `forward`."""
        module = self.layer.module
        compute, forward = COPIED[type(module)], module.forward

        def replaced_forward(inputs: Tensor) -> Tensor:
            return (
                compute(module, self._copy_parameters_per_example(), self._repeat_single_row_per_example(inputs))
                if self.current.active
                else forward(inputs)
            )

        module.__dict__["forward"] = replaced_forward
        return lambda: module.__dict__.__delitem__("forward")

    def _copy_parameters_per_example(self) -> Copies:
        """New leaves of the graph, whose gradients are awaited if the parameter is trained."""
        self._begin_call()
        copies = {}
        for name, parameter in self.layer.module.named_parameters():
            copies[name] = parameter.detach().repeat(self.current.examples, *[1] * parameter.ndim)
            if name in self.layer.trained:
                self.current.register_output_gradient_callback(copies[name], partial(self._gradients.__setitem__, name))
        return copies

    def _repeat_single_row_per_example(self, inputs: Tensor) -> Tensor:
        """The inputs, or a view that repeats them for each example if they are a single row."""
        rows = inputs.expand(self.current.examples, *inputs.shape[1:]) if len(inputs) == 1 else inputs
        if not self.current.may_have_row_per_example(rows):
            raise Unsupported(self.layer.name, self.layer.module, "to be called with one row for each example")
        return rows

    def collect_gradients(self) -> Mapping[str, LayerGradient]:
        """The gradients by the copies."""
        return {name: DenseGradient(rows=rows) for name, rows in self._take_gradients().items()}


@dataclass(kw_only=True, eq=False)
class _ModuleCall:
    """One call: all arguments, the versions of its tensors, and the gradients by its outputs that are known so far."""

    arguments: list[Any]
    structure: TreeSpec
    versions: list[int]
    gradients: dict[int, Tensor] = field(default_factory=dict)

    @property
    def tensor_arguments(self) -> list[Tensor]:
        return [value for value in self.arguments if isinstance(value, Tensor)]

    def arguments_with_tensors(self, tensors: list[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
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

    def attach_returning_undo(self) -> Callable[[], None]:
        """Adds a forward hook."""
        return self.layer.module.register_forward_hook(self._record_call, with_kwargs=True).remove

    def _record_call(self, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], output: Any) -> Any:
        """Replaces the outputs by views: the gradient by a view has no part that flows back from another output."""
        if not self.current.active:
            return output
        values, structure = tree_flatten((arguments, options))
        outputs, form = tree_flatten(output)
        tensors = [value for value in values if isinstance(value, Tensor)]
        places = [place for place, one in enumerate(outputs) if isinstance(one, Tensor) and one.is_floating_point()]
        if (
            not tensors
            or not places
            or not all(map(self.current.may_have_row_per_example, [*tensors, *(outputs[p] for p in places)]))
        ):
            raise Unsupported(self.layer.name, module, "to be called with tensors of one row for each example")
        detached = [value.detach() if isinstance(value, Tensor) else value for value in values]
        call = _ModuleCall(arguments=detached, structure=structure, versions=[value._version for value in tensors])
        self._calls.append(call)
        for place in places:
            outputs[place] = outputs[place].view_as(outputs[place])
            self.current.register_output_gradient_callback(outputs[place], partial(call.gradients.__setitem__, place))
        return tree_unflatten(outputs, form)

    def collect_gradients(self) -> Mapping[str, LayerGradient]:
        """The sums over the calls."""
        calls, self._calls = [call for call in self._calls if call.gradients], []
        if not calls:
            condition = "to be called in a pass, and the loss to depend on it"
            raise Unsupported(self.layer.name, self.layer.module, condition)
        if any(
            value._version != old
            for call in calls
            for value, old in zip(call.tensor_arguments, call.versions, strict=True)
        ):
            raise Unsupported(self.layer.name, self.layer.module, "to have inputs that are not overwritten")
        parts = [self._per_example_gradients_of_call(call) for call in calls]
        return {name: DenseGradient(rows=reduce(torch.add, (part[name] for part in parts))) for name in parts[0]}

    def _per_example_gradients_of_call(self, call: _ModuleCall) -> dict[str, Tensor]:
        """The gradients [n, ...] of one call by each parameter, each example as its own batch."""
        places = sorted(call.gradients)

        def output_gradient_product(
            values: dict[str, Tensor], tensors: list[Tensor], gradients: list[Tensor]
        ) -> Tensor:
            arguments, options = call.arguments_with_tensors([tensor[None] for tensor in tensors])
            outputs = tree_leaves(functional_call(self.layer.module, values, arguments, options))
            products = [(outputs[place][0] * one).sum() for place, one in zip(places, gradients, strict=True)]
            return torch.stack(products).sum()

        own = {name: parameter.detach() for name, parameter in self.layer.trained.items()}
        with (
            warnings.catch_warnings(),
            sdpa_kernel(SDPBackend.MATH),
            self.current.autocast_context_for_narrow_dtype(call.tensor_arguments[0]),
        ):
            warnings.filterwarnings("ignore", message="There is a performance drop")
            rows = vmap(grad(output_gradient_product), in_dims=(None, 0, 0))(
                own, call.tensor_arguments, [call.gradients[p] for p in places]
            )
        return {name: gradients_as_rows(values) if values.ndim == 1 else values for name, values in rows.items()}
