"""torch's MultiheadAttention from linear maps and attention without parameters.

Source: Vaswani et al. 2017, Section 3.2.2; `torch.nn.functional.multi_head_attention_forward`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from dpsweep.trainers.engines.recorders.linear_maps import LinearMaps, LinearPart


def plain_attention(layer: nn.Module) -> bool:
    """Whether `attention` computes this layer: without appended keys, and without dropout."""
    if not isinstance(layer, nn.MultiheadAttention):
        return False
    return layer.bias_k is None and layer.bias_v is None and not layer.add_zero_attn and layer.dropout == 0


def attention(
    layer: nn.MultiheadAttention,
    maps: LinearMaps,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What `nn.MultiheadAttention.forward` returns for batches; `is_causal` only repeats what `attn_mask` says."""
    if query.ndim != 3 or (is_causal and attn_mask is None):
        raise ValueError("Expected attention of batches, with attn_mask where is_causal is set")
    if not layer.batch_first:
        query, key, value = _swapped(query, key, value)
    queries, keys, values = (_by_heads(layer, part) for part in _projected(layer, maps, query, key, value))
    mask = _mask(attn_mask, key_padding_mask, queries)
    if need_weights:
        scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[3])
        weights = (scores if mask is None else scores + mask).softmax(dim=3)
        mixed = weights @ values
    else:
        weights, mixed = None, scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    bias = None if layer.out_proj.bias is None else "out_proj.bias"
    outputs = maps(mixed.transpose(1, 2).flatten(2), LinearPart(weight="out_proj.weight", bias=bias))
    averaged = weights.mean(dim=1) if weights is not None and average_attn_weights else weights
    return outputs if layer.batch_first else outputs.transpose(0, 1), averaged


def _swapped(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Examples first; the same tensor stays the same tensor."""
    first = query.transpose(0, 1)
    second = first if key is query else key.transpose(0, 1)
    return first, second, second if value is key else value.transpose(0, 1)


def _projected(
    layer: nn.MultiheadAttention, maps: LinearMaps, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, ...]:
    """Queries, keys and values [n, length, width], by one map where all three are of the same tensor."""
    bias, width = None if layer.in_proj_bias is None else "in_proj_bias", layer.embed_dim
    if query is key is value and layer.in_proj_weight is not None:
        return maps(query, LinearPart(weight="in_proj_weight", bias=bias)).chunk(3, dim=2)
    projected = []
    for number, (name, inputs) in enumerate(zip("qkv", (query, key, value), strict=True)):
        rows = (number * width, (number + 1) * width)
        if layer.in_proj_weight is None:
            part = LinearPart(weight=f"{name}_proj_weight", bias=bias, bias_rows=rows)
        else:
            part = LinearPart(weight="in_proj_weight", rows=rows, bias=bias, bias_rows=rows)
        projected.append(maps(inputs, part))
    return tuple(projected)


def _by_heads(layer: nn.MultiheadAttention, values: Tensor) -> Tensor:
    """Values [n, length, width] as [n, heads, length, width of a head]."""
    return values.view(*values.shape[:2], layer.num_heads, -1).transpose(1, 2)


def _mask(mask: Tensor | None, padding: Tensor | None, query: Tensor) -> Tensor | None:
    """Both masks as one summand of the scores [n, heads, length, keys], or of a shape that is broadcast to it."""
    summands = []
    if mask is not None:
        mask = mask.view(len(query), -1, *mask.shape[1:]) if mask.ndim == 3 else mask
        summands.append(_additive(mask, query))
    if padding is not None:
        summands.append(_additive(padding[:, None, None, :], query))
    return sum(summands[1:], summands[0]) if summands else None


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask that is True where attention is forbidden, as numbers that are added to the scores."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
