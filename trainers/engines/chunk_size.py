"""Chunk sizes: the number of examples that an engine processes at a time within its memory."""

from __future__ import annotations

from torch import Tensor, nn

from dpsweep.trainers.engines.gradients.parameters import trainable

_CPU_FLOATS = 2**26
_CUDA_FLOATS = 2**30
_REUSED_FLOATS = 2**22
_GRADIENT_COPIES = 3
_ACTIVATIONS_PER_INPUT = 256
_ACTIVATIONS_WITHOUT_MAPS = 32


def automatic_chunk(model: nn.Module, example: Tensor) -> int:
    """The chunk that keeps gradients and activations within 256 MiB on a CPU, or 4 GiB on a GPU; at least 1.

    On a CPU no single tensor of per-example gradients should exceed the size that the allocator re-uses (32 MiB in
    glibc): new memory pages cost more time than small chunks.
    """
    sizes = [parameter.numel() for parameter in trainable(model)]
    per_example = _GRADIENT_COPIES * sum(sizes) + _ACTIVATIONS_PER_INPUT * example.numel()
    if example.device.type == "cuda":
        return max(1, _CUDA_FLOATS // per_example)
    return max(1, min(_CPU_FLOATS // per_example, _REUSED_FLOATS // max(sizes)))


def fused_chunk(model: nn.Module, stored: int, example: Tensor) -> int:
    """The chunk for the fused engine, which stores `stored` gradient numbers per example, once, besides activations."""
    floats = _CUDA_FLOATS if example.device.type == "cuda" else _CPU_FLOATS
    widest = max((layer.embedding_dim for layer in model.modules() if isinstance(layer, nn.Embedding)), default=1)
    activations = (_ACTIVATIONS_PER_INPUT if stored else _ACTIVATIONS_WITHOUT_MAPS) * example.numel() * widest
    return max(1, floats // (stored + activations))
