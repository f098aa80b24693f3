"""The interface of engines, and their arguments: the examples of a step, and the task to do with their gradients.

Beside it stand what all engines share: the trainable parameters and their positions in a flat vector, the norms of
per-example gradients, the passes of one shape that a batch is divided into, and chunk sizes, the numbers of examples
that an engine processes at a time within its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from dpsweep.accounting.codec import positive_int
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


@dataclass(frozen=True, eq=False)
class Minibatch:
    """The places of a step, of which each has a unit or is blank: inputs [n, *shape], targets [n] or [n, *shape].

    Without `filled` [slots, places] a unit is one example, at its place. With it, the examples of place p are
    p, p + places, p + 2 * places, ..., one for each slot that is filled, and the unit's gradient is the mean of theirs.
    The presence of `filled` is declared and never depends on a draw, because it affects the choice of engine.

    `weights` [places] are in [0, 1] and multiply each unit's bounded gradient, None for 1. Blank places have weight 0,
    and zeros as inputs and targets. Targets have the loss's dtype; there may be no place.
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None
    filled: Tensor | None = None

    def __post_init__(self) -> None:
        if self.filled is not None and self.filled.numel() != len(self.inputs):
            raise ValueError(f"Expected filled={[*self.filled.shape]} of {len(self.inputs)} examples.")
        if self.weights is not None and self.weights.shape != (len(self),):
            raise ValueError(f"Expected weights={[*self.weights.shape]} of {len(self)} places.")

    def __len__(self) -> int:
        return len(self.inputs) if self.filled is None else self.filled.shape[1]

    def __getitem__(self, part: slice) -> Minibatch:
        """Some of the examples, each as its own unit."""
        return Minibatch(self.inputs[part], self.targets[part])

    def iterate_passes(self, most: int) -> Iterator[Pass]:
        """All places in the fewest passes of at most `most`, all of one shape; the last one is filled up by blanks."""
        places = len(self)
        size = -(-places // -(-places // most)) if places else 1
        slots = 1 if self.filled is None else len(self.filled)
        weights = self.inputs.new_ones(places, dtype=torch.float64) if self.weights is None else self.weights
        for first in range(0, places, size):
            some = slice(first, first + size)
            yield Pass(
                inputs=_rows_of_each_slot(self.inputs, slots, some),
                targets=_rows_of_each_slot(self.targets, slots, some),
                weights=_rows_of_each_slot(weights, 1, some)[0],
                filled=None if self.filled is None else _rows_of_each_slot(self.filled.flatten(), slots, some),
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """Consecutive places of a batch, slot by slot: inputs and targets [slots, places, ...], filled [slots, places]."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor
    filled: Tensor | None


def _rows_of_each_slot(rows: Tensor, slots: int, places: slice) -> Tensor:
    """Of rows [slots * all places, ...] those at some places: [slots, places, ...]; beyond the last place zeros."""
    some = rows.view(slots, -1, *rows.shape[1:])[:, places]
    missing = places.stop - places.start - some.shape[1]
    return torch.cat([some, some.new_zeros(slots, missing, *some.shape[2:])], dim=1) if missing else some


@dataclass(frozen=True, kw_only=True)
class Task:
    """The computation for each unit: the gradient of `loss`, bounded by `transform`.

    An engine processes at most `chunk` examples at a time; None lets it choose by the size of the model and its inputs.
    """

    transform: GradientTransform
    loss: Loss = CROSS_ENTROPY
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.chunk is not None:
            positive_int("chunk", self.chunk)


class Engine(Protocol):
    """Computes the sum of transformed gradients of a loss, one gradient per place, times the places' weights.

    The gradient of a unit of several examples is the mean of its per-example gradients, and the transform bounds this
    mean once.

    *Guarantee*: each unit contributes its own gradient times its own factor and nothing else, up to the rounding that
    the law of `dpsweep.trainers.methods.transforms` provides for. So it moves the sum by at most
    `transform.norm_bound`, for any number of examples. A unit with a non-finite gradient, and a blank place, contribute
    exactly zero and do not change the others. All passes have one shape, which depends on the number of places and on
    the chunk alone. At equal shape and place, the bits of a unit's bounded gradient depend on its own examples and the
    weights of the model alone: engines group nothing by content, and of the kernels of torch this is assumed, and
    tested for each engine. The model stays unchanged: no hooks, no gradients, the same mode. `stacks` says whether
    models of one architecture may be stacked instead of using this engine.
    """

    stacks: ClassVar[bool]

    def bounded_gradient_sum_and_norms(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] in float64, by the trainable parameters in their order, and the norm at each place [places]."""


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
    largest = max(parameter.numel() for parameter in trainable_parameters(model))
    chunk = _examples_within_memory(model, example)
    return chunk if example.device.type == "cuda" else max(1, min(chunk, _REUSED_FLOATS // largest))


def _examples_within_memory(model: nn.Module, example: Tensor) -> int:
    size = sum(parameter.numel() for parameter in trainable_parameters(model))
    floats = _CUDA_FLOATS if example.device.type == "cuda" else _CPU_FLOATS
    return max(1, floats // (_GRADIENT_COPIES * size + _ACTIVATIONS_PER_INPUT * example.numel()))


_UNITS_PER_EXAMPLE = 5


def units_at_once(model: nn.Module, example: Tensor, chunk: int | None) -> tuple[int, int]:
    """The places of units of several examples whose sums are kept at a time, and the examples of a pass: at most those.

    Passes are small, since examples fill a few columns more evenly than many, and large enough that few are started.
    """
    if chunk is not None:
        return chunk, chunk
    fits = _examples_within_memory(model, example)
    return fits * _GRADIENT_COPIES, -(-fits // _UNITS_PER_EXAMPLE)


def fused_chunk_size(model: nn.Module, stored: int, example: Tensor) -> int:
    """The chunk for the fused engine, which stores `stored` gradient numbers per example, once, besides activations."""
    floats = _CUDA_FLOATS if example.device.type == "cuda" else _CPU_FLOATS
    widest = max((layer.embedding_dim for layer in model.modules() if isinstance(layer, nn.Embedding)), default=1)
    activations = (_ACTIVATIONS_PER_INPUT if stored else _ACTIVATIONS_WITHOUT_MAPS) * example.numel() * widest
    return max(1, floats // (stored + activations))
