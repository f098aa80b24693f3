"""Stacked training of several models of one architecture: their matrix products become one batched product.

Chains of linear layers and elementwise activations can be stacked; other layers are refused by name. The outputs of a
layer are stored as [runs, features, examples], so that products need no transposition.

Products with the rows of a batch go by oneDNN where that pays. torch multiplies float32 matrices on a CPU by MKL, which
has no AVX-512 kernels for processors that are not Intel's. oneDNN, which torch uses for convolutions, has them: on an
AMD EPYC a large product takes half the time. Both sum in float32; the choice depends on shapes alone.

Products with rows of mostly zeros read the other numbers alone. A mail uses some 170 of 3000 words, so a batch of dense
rows is copied and multiplied at ten times the cost. scipy's loops add a row's products up in the order of its own
numbers, one after another. They have no blocks, so that no row's rounding depends on other rows or on its position.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import hardshrink, pad

from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss
from dpsweep.trainers.engines.interface import numbers_at_a_time
from dpsweep.trainers.engines.layer_gradients import add_products_of_blocks, norms_along_dimension
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.models.fully_connected import TemperedSigmoid

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_LARGE = 2**22
"""Multiplications from which oneDNN's start costs less than it saves."""


def is_one_dnn_product_faster(outputs: int, rows: Tensor) -> bool:
    """Whether `one_dnn_product` is quicker for a matrix [outputs, d] and rows [n, d]."""
    is_float32_on_cpu = rows.dtype == torch.float32 and rows.device.type == "cpu"
    return outputs * rows.numel() >= _LARGE and is_float32_on_cpu and _has_one_dnn_operator()


def one_dnn_product(matrix: Tensor, rows: Tensor) -> Tensor:
    """matrix [m, d] times the transpose of rows [n, d]: [m, n], by the operator that torch.compile uses."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise.default(
        matrix.contiguous(), rows.contiguous(), None, "none", [], ""
    )
    return product


@cache
def _has_one_dnn_operator() -> bool:
    """Whether this torch has the operator, with these arguments."""
    probe = torch.ones(1, 1)
    try:
        return one_dnn_product(probe, probe).item() == 1
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False


_CHUNK = 4096
"""Records at a time that are compressed."""

_FEW_OUTPUTS = 4
"""Outputs up to which scipy's product with one vector for each is quicker than that with a matrix."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseRecords:
    """The scaled inputs of all records, float32 [N + 1, d], of which only the numbers that are not 0 are stored."""

    rows: csr_array

    @classmethod
    def from_records(cls, records: Records) -> SparseRecords:
        """The inputs of these records, which need not be held densely, and those of a blank place as the last row."""
        from scipy.sparse import csr_array, vstack  # no job whose inputs are dense imports it

        blank = csr_array((1, math.prod(records.input_shape)), dtype=np.float32)
        chunks = (records.inputs(slice(first, first + _CHUNK), "cpu") for first in range(0, len(records), _CHUNK))
        return cls(rows=vstack([*(csr_array(chunk.flatten(1).numpy()) for chunk in chunks), blank], format="csr"))

    def rows_at_indices(self, index: NDArray[np.int64]) -> SparseRows:
        """The rows at these indices [K, n], those of each run beside its own columns."""
        from scipy.sparse import csr_array

        runs, size = index.shape
        width = self.rows.shape[1]
        rows = self.rows[index.reshape(-1)]
        ends = rows.indptr[size::size]
        counts = np.diff(ends, prepend=0)
        own = np.repeat(np.arange(runs, dtype=rows.indices.dtype) * width, counts)
        blocks = csr_array((rows.data, rows.indices + own, rows.indptr), shape=(runs * size, runs * width))
        return SparseRows(blocks=blocks, runs=runs, size=size)


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseRows:
    """Inputs [K, n, d] of K runs as the blocks of a matrix [K * n, K * d]."""

    blocks: csr_array
    runs: int
    size: int

    def products_with_matrices(self, matrices: Tensor) -> Tensor:
        """Each run's matrix [K, outputs, d] times its rows: [K, outputs, n], in float32."""
        outputs = matrices.shape[1]
        if outputs <= _FEW_OUTPUTS:
            columns = [self.blocks @ _flatten_to_numpy(matrices[:, place]) for place in range(outputs)]
            return torch.stack([_tensor_with_row_per_run(column, self.runs) for column in columns], dim=1)
        product = self.blocks @ matrices.transpose(1, 2).reshape(-1, outputs).numpy()
        return torch.from_numpy(product).view(self.runs, self.size, outputs).transpose(1, 2)

    def add_outer_products_to(self, sums: Tensor, bounded: Tensor) -> None:
        """Adds each run's sum over its rows of outer products with `bounded` [K, outputs, n] to `sums`, in float64."""
        outputs, transposed = bounded.shape[1], self.blocks.T
        if outputs <= _FEW_OUTPUTS:
            for place in range(outputs):
                sums[:, place].add_(
                    _tensor_with_row_per_run(transposed @ _flatten_to_numpy(bounded[:, place]), self.runs)
                )
            return
        product = transposed @ bounded.transpose(1, 2).reshape(-1, outputs).numpy()
        sums.add_(torch.from_numpy(product).view(self.runs, -1, outputs).transpose(1, 2))


def _flatten_to_numpy(values: Tensor) -> NDArray[np.floating]:
    flat: NDArray[np.floating] = values.reshape(-1).numpy()
    return flat


def _tensor_with_row_per_run(values: NDArray[np.floating], runs: int) -> Tensor:
    return torch.from_numpy(values).view(runs, -1)


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
"""Activations that act on each number separately."""


_CACHED = 2**17
"""Floats of inputs that a CPU multiplies at a time, so that they and their float64 copies fit the cache of a core."""


@dataclass(frozen=True, kw_only=True)
class Affine:
    """A linear layer, with the positions of its weight and bias in a model's flat parameters."""

    inputs: int
    outputs: int
    weight: slice
    bias: slice | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """The examples of a step: the same for all runs, or different ones for each run.

    Inputs [n, d], targets [n] and `Stack.lengths` [n], or inputs [K, n, d], targets and lengths [K, n]. Sparse inputs
    are different ones for each run. Blank places have zeros as inputs and targets.
    """

    inputs: Tensor | SparseRows
    targets: Tensor
    lengths: Tensor

    @cached_property
    def input_directions_with_bias(self) -> Tensor:
        """The directions of the gradients for a single output, bias last: [n, d + 1], or [K, d + 1, n].

        These are inputs divided by their lengths, so the norm is at most 1; zero if a length is zero or not finite.
        """
        assert isinstance(self.inputs, Tensor)
        lines = pad(self.inputs, (0, 1), value=1.0) / self.lengths[..., None]
        lines.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        return lines if lines.ndim == 2 else lines.transpose(1, 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """An architecture that can be stacked, and the training loss."""

    layers: tuple[Affine | nn.Module, ...]
    loss: Loss

    @classmethod
    def from_model(cls, model: nn.Module, loss: Loss = CROSS_ENTROPY) -> Stack:
        """The architecture of a model, by default for the cross-entropy; ValueError names an unsupported layer."""
        layers = tuple(_layers_in_call_order(model))
        if not isinstance(layers[-1], Affine):
            raise ValueError(f"Expected {type(model).__name__} to end with a linear layer: others are not stacked.")
        return cls(layers=layers, loss=loss)

    @cached_property
    def affine_layers(self) -> tuple[Affine, ...]:
        """The layers with parameters."""
        return tuple(layer for layer in self.layers if isinstance(layer, Affine))

    @property
    def number_of_inputs(self) -> int:
        """The number of inputs of an example."""
        return self.affine_layers[0].inputs

    @property
    def can_read_sparse_inputs(self) -> bool:
        """Whether the inputs may be sparse: they are if the first layer multiplies them."""
        return isinstance(self.layers[0], Affine)

    @property
    def widest_output(self) -> int:
        """The largest number of outputs of a linear layer."""
        return max(layer.outputs for layer in self.affine_layers)

    def first_layer_input_norms_with_bias(self, inputs: Tensor) -> Tensor:
        """For inputs [..., d], the norm of the first layer's gradient over the norm of its output gradient [...].

        `add` takes these lengths as an argument, so that they are computed once for all steps.
        """
        exact: Tensor = torch.linalg.vector_norm(inputs, dim=-1, dtype=torch.float64)
        return self._input_norms_with_bias(self.affine_layers[0], exact.to(inputs.dtype))

    def add_bounded_gradient_sums(
        self,
        total: Tensor,
        weights: Tensor,
        examples: Examples,
        mask: Tensor,
        transform: GradientTransform,
    ) -> None:
        """Adds each run's sum of transformed gradients to its row of `total` [K, P] in float64, for weights [K, P].

        `mask` [n] or [K, n] multiplies each bounded gradient: it is in [0, 1], and 0 for examples that are not in a
        run's batch. The guarantee of `dpsweep.trainers.methods.transforms` holds for each example and run; an example
        with a non-finite gradient adds exactly nothing.
        """
        first, later, gradients = self._layer_inputs_and_output_gradients(weights, examples.inputs, examples.targets)
        is_line = len(self.layers) == 1 and self.affine_layers[0].outputs == 1
        if is_line and not isinstance(examples.inputs, SparseRows):
            lengths = transform.transformed_signed_lengths(gradients[0].squeeze(1).mul_(examples.lengths))
            directions = examples.input_directions_with_bias[:, : total.shape[1]]
            _add_outer_products(total[:, None], lengths.mul_(mask)[:, None], directions)
            return
        norms = self._gradient_norms(later, gradients, examples.lengths)
        factors = transform.factors(norms) * mask
        if norms.numel() and not math.isfinite(norms.amax().item()):
            non_finite = ~norms.isfinite()
            first = first if isinstance(first, SparseRows) else _zero_non_finite_examples(first, non_finite)
            later = [_zero_non_finite_examples(tensor, non_finite) for tensor in later]
            gradients = [_zero_non_finite_examples(tensor, non_finite) for tensor in gradients]
        for layer, inputs, gradient in zip(self.affine_layers, (first, *later), gradients, strict=True):
            bounded = hardshrink(gradient * factors[:, None], torch.finfo(weights.dtype).tiny)
            sums = total[:, layer.weight].view(len(total), layer.outputs, layer.inputs)
            _add_outer_products(sums, bounded, inputs)
            if layer.bias is not None:
                total[:, layer.bias].add_(bounded.sum(dim=2, dtype=torch.float64))

    def _layer_inputs_and_output_gradients(
        self, weights: Tensor, inputs: Tensor | SparseRows, targets: Tensor
    ) -> tuple[Tensor | SparseRows, list[Tensor], list[Tensor]]:
        """The inputs of the first linear layer, those of the others, and the gradients [K, outputs, n] by outputs."""
        first = inputs if isinstance(inputs, SparseRows) or inputs.ndim == 2 else inputs.transpose(1, 2)
        leading = self.layers.index(self.affine_layers[0])
        for layer in self.layers[:leading]:
            assert isinstance(layer, nn.Module)
            first = layer(first)
        values = _affine_outputs(self.affine_layers[0], weights, first).requires_grad_()
        later, outputs = [], [values]
        with torch.enable_grad():
            for layer in self.layers[leading + 1 :]:
                if isinstance(layer, Affine):
                    later.append(values.detach())
                    values = _affine_outputs(layer, weights, values)
                    outputs.append(values)
                else:
                    values = layer(values)
        last = self.loss.gradient(values.detach(), targets)
        inner = torch.autograd.grad(values, outputs[:-1], last) if later else ()
        return first, later, [*inner, last]

    def _gradient_norms(self, later: Sequence[Tensor], gradients: Sequence[Tensor], first: Tensor) -> Tensor:
        """The norms [K, n] of the per-example gradients, from outer products that are never formed.

        `later` are the inputs of all linear layers but the first, `first` are the first one's `lengths`.

        A layer's norm is the product of two factors. It is too small by at most three roundings, which transforms allow
        for; `_with_bias` compensates for all other rounding.
        """
        pairs = zip(self.affine_layers[1:], later, strict=True)
        rest = (self._input_norms_with_bias(layer, norms_along_dimension(inputs, 1)) for layer, inputs in pairs)
        parts = [
            norms_along_dimension(gradient, 1) * length
            for gradient, length in zip(gradients, (first, *rest), strict=True)
        ]
        norms = parts[0]
        for part in parts[1:]:
            norms = torch.hypot(norms, part)
        return norms

    def _input_norms_with_bias(self, layer: Affine, lengths: Tensor) -> Tensor:
        """The norms of a layer's inputs, extended by the constant input 1 of its bias.

        The result is enlarged by one ulp for each call of `hypot`, here and once per layer, to compensate for rounding.
        """
        margin = 1 + (len(self.affine_layers) + 1) * torch.finfo(lengths.dtype).eps
        return (lengths if layer.bias is None else lengths.hypot(lengths.new_ones(()))) * margin


def _layers_in_call_order(model: nn.Module) -> Iterator[Affine | nn.Module]:
    """The layers in the order of their calls, with the positions of their parameters in the flat vector."""
    place = 0
    for name, module in _modules_of_chain("", model):
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


def _modules_of_chain(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules of a chain with their names, in the order of their calls."""
    if type(module) is not nn.Sequential:
        yield name or "model", module
        return
    for key, inner in module._modules.items():  # named_children lists a repeated layer only once
        yield from _modules_of_chain(f"{name}.{key}" if name else key, inner)


def _affine_outputs(layer: Affine, weights: Tensor, inputs: Tensor | SparseRows) -> Tensor:
    """The layer's outputs [K, outputs, n] for inputs [n, d] that all runs share, inputs [K, d, n], or sparse ones."""
    runs, matrix = len(weights), weights[:, layer.weight].view(len(weights), layer.outputs, layer.inputs)
    bias = weights.new_zeros(runs, layer.outputs) if layer.bias is None else weights[:, layer.bias]
    if isinstance(inputs, SparseRows):
        return inputs.products_with_matrices(matrix).add_(bias[:, :, None])
    if inputs.ndim == 2:
        stacked = matrix.flatten(0, 1)
        if is_one_dnn_product_faster(len(stacked), inputs):
            outputs = one_dnn_product(stacked, inputs).add_(bias.reshape(-1, 1))
        else:
            outputs = torch.addmm(bias.reshape(-1, 1), stacked, inputs.t())
        return outputs.view(runs, layer.outputs, len(inputs))
    if not inputs.requires_grad and is_one_dnn_product_faster(layer.outputs, inputs[0].t()):
        products = [one_dnn_product(one, own.t()) for one, own in zip(matrix, inputs, strict=True)]
        return torch.stack(products).add_(bias[:, :, None])
    parts = _iterate_runs_that_fit_cache(inputs, bias[:, :, None], matrix, inputs)
    all_outputs = [torch.baddbmm(*part) for part in parts]
    return all_outputs[0] if len(all_outputs) == 1 else torch.cat(all_outputs)


def _add_outer_products(sums: Tensor, bounded: Tensor, inputs: Tensor | SparseRows) -> None:
    """Adds each run's sum of outer products over its examples to `sums` [K, outputs, d] in float64."""
    if isinstance(inputs, SparseRows):
        inputs.add_outer_products_to(sums, bounded.double())
    elif inputs.ndim == 2:
        add_products_of_blocks(sums, bounded.flatten(0, 1), inputs)
    else:
        for own_sums, own_bounded, own_inputs in _iterate_runs_that_fit_cache(inputs, sums, bounded, inputs):
            add_products_of_blocks(own_sums, own_bounded, own_inputs.transpose(1, 2))


def _iterate_runs_that_fit_cache(inputs: Tensor, *columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The rows of all columns, for as many runs at a time as have inputs [K, d, n] that fit."""
    few = max(1, numbers_at_a_time(inputs.device, cached=_CACHED) // max(1, inputs.shape[1] * inputs.shape[2]))
    for first in range(0, len(inputs), few):  # a slice of all runs would cost a step of the backward pass
        yield columns if few >= len(inputs) else tuple(column[first : first + few] for column in columns)


def _zero_non_finite_examples(tensor: Tensor, non_finite: Tensor) -> Tensor:
    """The tensor [K, features, n] with zero for marked examples, or [n, d] with zero for rows that are not finite."""
    if tensor.ndim == 2:
        return tensor.where(tensor.isfinite().all(dim=1, keepdim=True), 0)
    return tensor.masked_fill(non_finite[:, None], 0)
