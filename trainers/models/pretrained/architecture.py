"""Published architectures of Hugging Face's with random weights: without dropout, and without a download.

Attention is computed by plain matrix products: faster kernels choose their algorithm by what the records contain.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

ENCODER, CAUSAL = "AutoModel", "AutoModelForCausalLM"
"""The classes of transformers that choose a network by its architecture: without a head, or with one to the words."""


def network_of(architecture: Mapping[str, Any], family: str) -> tuple[nn.Module, Any]:
    """The network of this family with random weights, and its configuration, with every dropout set to zero.

    Raises ValueError if the family has no network of this architecture.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported: nothing may be downloaded
    import transformers

    config = transformers.AutoConfig.for_model(**architecture)
    for key, value in config.to_dict().items():  # with the defaults that the architecture leaves out
        if isinstance(value, float) and ("dropout" in key or key.endswith("pdrop")):
            setattr(config, key, 0.0)
    settings = {"attn_implementation": "eager", "dtype": torch.float32, "trust_remote_code": False}
    try:
        network: nn.Module = getattr(transformers, family).from_config(config, **settings)
    except ValueError as cause:
        kind = type(config).__name__
        raise ValueError(f"Expected model.path to have an architecture of {family}, got {kind}.") from cause
    return network, config
