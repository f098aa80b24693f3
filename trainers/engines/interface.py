"""The interface of engines, and their arguments: the examples of a step, and the task to do with their gradients.

Beside it stand what all engines share: the trainable parameters and their positions in a flat vector, the norms of
per-example gradients, micro-batches, which are parts of a batch that fit in memory where one unit may have several
examples, and chunk sizes, the numbers of examples that an engine processes at a time within its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from dpsweep.accounting.validation import positive_int
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss
from dpsweep.trainers.methods.transforms import GradientTransform

_PIECE = 4096
_DTYPES = frozenset({torch.float32, torch.float64})


class Unsupported(ValueError):
    """The engine does not support this model; another may, and `engine=vmap` supports all models that others do."""

    def __init__(self, name: str, module: nn.Module, condition: str) -> None:
        kind = type(module).__name__
        super().__init__(f"Expected {name or 'model'}={kind} {condition}; engine=auto or engine=vmap takes it.")


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters, in the order in which they are flattened.

    Errors: ValueError if there are none, or if they are not all float32 or all float64: only for these dtypes is the
    effect of rounding on a bound known.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError(f"Expected model={type(model).__name__} to have trainable parameters.")
    dtypes = {parameter.dtype for parameter in parameters}
    if len(dtypes) > 1 or not dtypes <= _DTYPES:
        names = ", ".join(sorted(map(str, dtypes)))
        raise ValueError(
            f"Expected model={type(model).__name__} to be all torch.float32 or torch.float64, got {names}."
        )
    return parameters


def require_exact_float32_products() -> None:
    """Raises ValueError if torch may truncate the factors of float32 products: sums could then exceed their bound."""
    if (precision := torch.get_float32_matmul_precision()) != "highest":
        raise ValueError(f"Expected float32_matmul_precision={precision} to be highest.")


def flat_vector_views_by_parameter(parameters: Sequence[nn.Parameter], flat: Tensor) -> dict[nn.Parameter, Tensor]:
    """The part of a flat vector [P] for each parameter, as a view with the parameter's shape."""
    parts = flat.split_with_sizes([parameter.numel() for parameter in parameters])
    return {parameter: part.view(parameter.shape) for parameter, part in zip(parameters, parts, strict=True)}


def per_example_gradient_norms(gradients: Sequence[Tensor]) -> Tensor:
    """The norms [n] of per-example gradients, given as one tensor [n, ...] for each parameter.

    Squares are summed in float64: a float32 sum of a million terms can be wrong in the fourth digit, and too small,
    which is unsafe. They are summed in pieces whose float64 copies fit the cache.
    """
    pieces = [piece for gradient in gradients for piece in torch.split(gradients_as_rows(gradient), _PIECE, dim=1)]
    norms = [torch.linalg.vector_norm(piece, dim=1, dtype=torch.float64) for piece in pieces]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms, dim=1), dim=1)
    return total.to(gradients[0].dtype)


def gradients_as_rows(gradient: Tensor) -> Tensor:
    """The gradients of a parameter of any shape as rows [n, numbers]; a scalar parameter has rows of one number."""
    return gradient.flatten(1) if gradient.ndim > 1 else gradient[:, None]


@dataclass(frozen=True, kw_only=True, eq=False)
class MicroBatch:
    """Consecutive units of equal size in a batch: their examples begin at `first`, and unit i has sizes[i] examples."""

    first: int
    sizes: tuple[int, ...]

    @property
    def example_slice(self) -> slice:
        """The slice of its examples in the batch."""
        return slice(self.first, self.first + sum(self.sizes))

    def unit_index_of_each_example(self) -> Tensor:
        """The index of the unit of each example, ascending."""
        return torch.arange(len(self.sizes)).repeat_interleave(torch.tensor(self.sizes))


def pack_units_into_micro_batches(sizes: Sequence[int], chunk: int) -> Iterator[MicroBatch]:
    """All units in their order, in micro-batches of at most `chunk` examples; a larger unit is alone in one.

    Units of different sizes are in different micro-batches. So the position of a unit in its micro-batch depends on its
    own size and on the number of earlier units of this size, never on other sizes.
    """
    first, examples = 0, 0
    units: list[int] = []
    for size in sizes:
        if units and (examples + size > chunk or size != units[0]):
            yield MicroBatch(first=first, sizes=tuple(units))
            first, examples, units = first + examples, 0, []
        units.append(size)
        examples += size
    if units:
        yield MicroBatch(first=first, sizes=tuple(units))


def check_unit_sizes_sum_to_examples(sizes: Sequence[int], examples: int) -> None:
    """Raises ValueError unless each example of a batch belongs to exactly one unit, and each unit has an example."""
    if min(sizes, default=1) < 1 or sum(sizes) != examples:
        raise ValueError(f"Expected sizes={list(sizes)} >= 1, {examples} together.")


@dataclass(frozen=True, eq=False)
class Minibatch:
    """The examples of a step: inputs [n, *shape], targets [n] or [n, *shape] in the loss's dtype; n may be 0.

    Without `sizes` a unit is one example. With `sizes`, unit i has the next sizes[i] examples; sizes are at least 1 and
    sum to n. The presence of `sizes` is declared and never depends on a draw, because it affects the choice of engine.
    `weights` [units] in [0, 1] are factors on the units' bounded gradients; None for factors of 1.
    """

    inputs: Tensor
    targets: Tensor
    sizes: Sequence[int] | None = None
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        if self.sizes is not None:
            check_unit_sizes_sum_to_examples(self.sizes, len(self))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, part: slice) -> Minibatch:
        """Some of the examples, each as its own unit."""
        return Minibatch(self.inputs[part], self.targets[part])

    def iterate_chunks(self, chunk: int, *, filled: bool = False) -> Iterator[tuple[Tensor, Tensor, int]]:
        """All inputs and targets in parts of at most `chunk` examples, with the number of examples in each.

        With `filled` the last part is padded with zeros, so that all parts have one shape, and all parts are copied:
        matrix products may round differently for another memory alignment.
        """
        for inputs, targets in zip(torch.split(self.inputs, chunk), torch.split(self.targets, chunk), strict=True):
            part = (_pad_rows(inputs, chunk), _pad_rows(targets, chunk)) if filled else (inputs, targets)
            yield *part, len(inputs)


@dataclass(frozen=True, kw_only=True)
class Task:
    """The computation for each unit: the gradient of `loss`, bounded by `transform`.

    An engine processes at most `chunk` examples at a time; None lets it choose by the size of the model and its inputs.
    `block` is the declared size of a batch, which is seldom exceeded; with it, all passes of all draws have one shape.
    """

    transform: GradientTransform
    loss: Loss = CROSS_ENTROPY
    chunk: int | None = None
    block: int | None = None

    def __post_init__(self) -> None:
        for name in ("chunk", "block"):
            if (value := getattr(self, name)) is not None:
                positive_int(name, value)

    def examples_per_pass(self, most: int) -> int:
        """The number of examples in a pass if `most` fit: a block, or one of the fewest equal parts of it."""
        fits = self.chunk or most
        return fits if self.block is None else -(-self.block // -(-self.block // fits))


class Engine(Protocol):
    """Computes the sum of transformed gradients of a loss, one gradient per unit.

    The gradient of a unit of several examples is the mean of its per-example gradients, and the transform bounds this
    mean once.

    *Guarantee*: each unit contributes its own gradient times its own factor and weight and nothing else, up to the
    rounding that the law of `dpsweep.trainers.methods.transforms` provides for. So it moves the sum by at most
    `transform.norm_bound`, for any number of examples. A unit with a non-finite gradient contributes exactly zero and
    does not change the others. With a block, the shape of a pass and the algorithm for it depend on no record. The
    chunk bounds memory and changes only rounding. The model stays unchanged: no hooks, no gradients, the same mode.
    `stacks` says whether models of one architecture may be stacked instead of using this engine.
    """

    stacks: ClassVar[bool]

    def bounded_gradient_sum_and_norms(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] in float64, by the trainable parameters in their order, and each unit's norm before bounding."""


def _pad_rows(rows: Tensor, length: int) -> Tensor:
    """A copy of these rows, padded with zeros to `length` rows."""
    padded = rows.new_zeros(length, *rows.shape[1:])
    padded[: len(rows)] = rows
    return padded


_GPU_FLOATS = 2**27


def numbers_at_a_time(device: torch.device | str, *, cached: int) -> int:
    """The numbers to be computed at a time: on a CPU `cached`, which fit a core's cache; on a GPU 2**27 (512 MiB).

    A GPU takes longer to start many small kernels than to read and write its memory.
    """
    return cached if torch.device(device).type == "cpu" else _GPU_FLOATS


_CPU_FLOATS = 2**26
_CUDA_FLOATS = 2**30
_REUSED_FLOATS = 2**22
_GRADIENT_COPIES = 3
_ACTIVATIONS_PER_INPUT = 256
_ACTIVATIONS_WITHOUT_MAPS = 32


def automatic_chunk_size(model: nn.Module, example: Tensor) -> int:
    """The chunk that keeps gradients and activations within 256 MiB on a CPU, or 4 GiB on a GPU; at least 1.

    On a CPU no single tensor of per-example gradients should exceed the size that the allocator re-uses (32 MiB in
    glibc): new memory pages cost more time than small chunks.
    """
    sizes = [parameter.numel() for parameter in trainable_parameters(model)]
    per_example = _GRADIENT_COPIES * sum(sizes) + _ACTIVATIONS_PER_INPUT * example.numel()
    if example.device.type == "cuda":
        return max(1, _CUDA_FLOATS // per_example)
    return max(1, min(_CPU_FLOATS // per_example, _REUSED_FLOATS // max(sizes)))


def fused_chunk_size(model: nn.Module, stored: int, example: Tensor) -> int:
    """The chunk for the fused engine, which stores `stored` gradient numbers per example, once, besides activations."""
    floats = _CUDA_FLOATS if example.device.type == "cuda" else _CPU_FLOATS
    widest = max((layer.embedding_dim for layer in model.modules() if isinstance(layer, nn.Embedding)), default=1)
    activations = (_ACTIVATIONS_PER_INPUT if stored else _ACTIVATIONS_WITHOUT_MAPS) * example.numel() * widest
    return max(1, floats // (stored + activations))
