"""Models of one architecture trained side by side: their products of matrices become one product with a dimension more.

Chains of linear layers and of activations that take each number by itself can be stacked; others are refused by name.
Each layer's outputs stand as [runs, features, examples], so that no product has to rearrange them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import hardshrink, pad

from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss
from dpsweep.trainers.engines.gradients.safe_norms import norms_along
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.models.tempered_sigmoid import TemperedSigmoid

ELEMENTWISE = (
    nn.Identity,
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Softplus,
    nn.Sigmoid,
    nn.Tanh,
    TemperedSigmoid,
)
"""Activations that take each number by itself."""


@dataclass(frozen=True, kw_only=True)
class Affine:
    """A linear layer, and where its weight and its bias stand in a model's flat parameters."""

    inputs: int
    outputs: int
    weight: slice
    bias: slice | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """The examples of a step: the same for all runs, or for each its own.

    Inputs [n, d], targets [n] and `Stack.lengths` [n], or inputs [K, n, d], targets and lengths [K, n].
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor

    @cached_property
    def lines(self) -> Tensor:
        """What the gradients of a single output are multiples of, its bias last: [n, d + 1], or [K, d + 1, n].

        Made shorter by the lengths, so no longer than 1; zero where a length is zero or not finite. In float64, as sums
        are added up.
        """
        lines = pad(self.inputs, (0, 1), value=1.0) / self.lengths[..., None]
        lines.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        return (lines if lines.ndim == 2 else lines.transpose(1, 2)).double()


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """An architecture whose models can be stacked, and the loss that they are trained on."""

    layers: tuple[Affine | nn.Module, ...]
    loss: Loss

    @classmethod
    def of(cls, model: nn.Module, loss: Loss = CROSS_ENTROPY) -> Stack:
        """The architecture of a model, by default for the cross-entropy; ValueError names what cannot be stacked."""
        layers = tuple(_layers(model))
        if not isinstance(layers[-1], Affine):
            raise ValueError(f"Expected {type(model).__name__} to end with a linear layer: others are not stacked.")
        return cls(layers=layers, loss=loss)

    @property
    def affine(self) -> tuple[Affine, ...]:
        """The layers with parameters."""
        return tuple(layer for layer in self.layers if isinstance(layer, Affine))

    @property
    def inputs(self) -> int:
        """How many numbers an example has."""
        return self.affine[0].inputs

    @property
    def widest_output(self) -> int:
        """The most numbers that a layer makes of an example."""
        return max(layer.outputs for layer in self.affine)

    def lengths(self, inputs: Tensor) -> Tensor:
        """What an example's gradient in the first layer is longer by than the gradient of that layer's outputs.

        Of inputs [..., d] the lengths [...]: what `add` is told, so that nobody has to find them twice.
        """
        exact: Tensor = torch.linalg.vector_norm(inputs, dim=-1, dtype=torch.float64)
        return self._with_bias(self.affine[0], exact.to(inputs.dtype))

    def add(
        self,
        total: Tensor,
        weights: Tensor,
        examples: Examples,
        there: Tensor | None,
        transform: GradientTransform,
    ) -> None:
        """Adds each run's sum of transformed gradients to its row of `total` [K, P] in float64, for weights [K, P].

        Of the examples a run has those of which `there` [K, n] says so, or all. The law of
        `dpsweep.trainers.methods.transforms` holds for each example and run; one whose gradient is not finite adds
        exactly nothing.
        """
        entered, left = self._pass(weights, examples.inputs, examples.targets)
        if len(self.layers) == 1 and self.affine[0].outputs == 1:
            along = transform.along(left[0].squeeze(1).mul_(examples.lengths))
            bounded = along if there is None else along.mul_(there)
            total += _products(bounded[:, None].double(), examples.lines[:, : total.shape[1]]).squeeze(1)
            return
        norms = self._norms(entered, left, examples.lengths)
        factors = transform.factors(norms)
        if there is not None:
            factors = factors * there
        if norms.numel() and not norms.amax().isfinite():
            broken = ~norms.isfinite()
            entered, left = ([_without(one, broken) for one in ones] for ones in (entered, left))
        for layer, before, gradient in zip(self.affine, entered, left, strict=True):
            bounded = hardshrink(gradient * factors[:, None], torch.finfo(weights.dtype).tiny)
            wide = bounded.double()
            total[:, layer.weight] += _products(wide, before.double()).flatten(1)
            if layer.bias is not None:
                total[:, layer.bias] += wide.sum(dim=2)

    def _pass(self, weights: Tensor, inputs: Tensor, targets: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """What entered each linear layer, and the gradients [K, outputs, n] of what left it."""
        entered, left = [], []
        now = inputs if inputs.ndim == 2 else inputs.transpose(1, 2)
        with torch.enable_grad():
            for layer in self.layers:
                if isinstance(layer, Affine):
                    entered.append(now.detach())
                    now = _affine(layer, weights, now)
                    left.append(now if now.requires_grad else now.requires_grad_())
                else:
                    now = layer(now)
        last = self.loss.gradient(now.detach(), targets)
        inner = torch.autograd.grad(now, left[:-1], last) if len(left) > 1 else ()
        return entered, [*inner, last]

    def _norms(self, entered: Sequence[Tensor], left: Sequence[Tensor], first: Tensor) -> Tensor:
        """The norms [K, n] of the examples' gradients: those of outer products, which are never formed.

        Each layer's part is two factors and their product, short of the truth by three roundings at most, as transforms
        allow for; what else is rounded, `_with_bias` has made up for.
        """
        pairs = zip(self.affine[1:], entered[1:], strict=True)
        rest = (self._with_bias(layer, norms_along(before, 1)) for layer, before in pairs)
        parts = [norms_along(gradient, 1) * length for gradient, length in zip(left, (first, *rest), strict=True)]
        norms = parts[0]
        for part in parts[1:]:
            norms = torch.hypot(norms, part)
        return norms

    def _with_bias(self, layer: Affine, lengths: Tensor) -> Tensor:
        """These norms of what entered a layer, with the 1 that its bias is multiplied by.

        Made longer by as much as `hypot` may lose, here and once for each layer, an ulp at a time.
        """
        margin = 1 + (len(self.affine) + 1) * torch.finfo(lengths.dtype).eps
        return (lengths if layer.bias is None else lengths.hypot(lengths.new_ones(()))) * margin


def _layers(model: nn.Module) -> Iterator[Affine | nn.Module]:
    """The layers in the order in which a chain calls them, with the places that their parameters have in a vector."""
    place = 0
    for name, module in _chain("", model):
        if module._forward_hooks or module._forward_pre_hooks or getattr(module, "inplace", False):
            raise ValueError(f"Expected {name}={type(module).__name__} to have no hooks and inplace=False.")
        if type(module) is nn.Linear:
            weight = slice(place, place + module.weight.numel())
            bias = None if module.bias is None else slice(weight.stop, weight.stop + module.out_features)
            place = (weight if bias is None else bias).stop
            yield Affine(inputs=module.in_features, outputs=module.out_features, weight=weight, bias=bias)
        elif type(module) in ELEMENTWISE:
            yield module
        elif type(module) is not nn.Flatten or (module.start_dim, module.end_dim, place) != (1, -1, 0):
            raise ValueError(
                f"Expected {name}={type(module).__name__} to be linear or one of "
                f"{', '.join(kind.__name__ for kind in ELEMENTWISE)}: nothing else is stacked."
            )
    if place != sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad):
        raise ValueError(f"Expected all parameters of {type(model).__name__} to be trained, each in one layer alone.")


def _chain(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules that are called one after another, by their names."""
    if type(module) is not nn.Sequential:
        yield name or "model", module
        return
    for key, inner in module._modules.items():  # named_children would name a layer that stands twice once
        yield from _chain(f"{name}.{key}" if name else key, inner)


def _affine(layer: Affine, weights: Tensor, entered: Tensor) -> Tensor:
    """The layer's outputs [K, outputs, n] for inputs [n, d] that all runs share, or inputs [K, d, n]."""
    runs, matrix = len(weights), weights[:, layer.weight].view(len(weights), layer.outputs, layer.inputs)
    bias = weights.new_zeros(runs, layer.outputs) if layer.bias is None else weights[:, layer.bias]
    if entered.ndim == 2:
        made = torch.addmm(bias.reshape(-1, 1), matrix.flatten(0, 1), entered.t())
        return made.view(runs, layer.outputs, len(entered))
    return torch.baddbmm(bias[:, :, None], matrix, entered)


def _products(bounded: Tensor, entered: Tensor) -> Tensor:
    """Each run's sum [K, outputs, d] over its examples of outer products."""
    if entered.ndim == 3:
        return torch.bmm(bounded, entered.transpose(1, 2))
    rows = bounded.flatten(0, 1)
    narrow = entered.shape[1] < len(rows)  # the library is several times quicker with the longer side last
    made = (entered.t() @ rows.t()).t() if narrow else rows @ entered
    return made.reshape(*bounded.shape[:2], -1)


def _without(tensor: Tensor, broken: Tensor) -> Tensor:
    """The same [K, features, n] or [n, d] with zero where an example is broken, or where it is itself no number."""
    if tensor.ndim == 2:
        return tensor.where(tensor.isfinite().all(dim=1, keepdim=True), 0)
    return tensor.masked_fill(broken[:, None], 0)
