"""Tiny pretrained models in folders, made from scratch: no test downloads one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

WORDS = ("good", "bad", "film", "plot", "very", "not", "a", "the", "dull", "fine")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
BERT: dict[str, Any] = {
    **{"model_type": "bert", "vocab_size": 14, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 12, "max_position_embeddings": 12, "type_vocab_size": 2, "pad_token_id": 0},
    **{"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
}
GPT2: dict[str, Any] = {
    **{"model_type": "gpt2", "vocab_size": 14, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 12},
    **{"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "bos_token_id": 13, "eos_token_id": 13},
}
CAUSAL: dict[str, Any] = {**GPT2, "pad_token_id": 0}
UNTIED: dict[str, Any] = {**CAUSAL, "tie_word_embeddings": False}
ARCHITECTURES = {"bert": BERT, "gpt2": GPT2}
_SIZES: dict[str, Any] = {
    **{"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 14},
    "max_position_embeddings": 12,
}
OTHERS: dict[str, dict[str, Any]] = {
    "roberta": {**_SIZES, "model_type": "roberta", "pad_token_id": 1},
    "llama": {**_SIZES, "model_type": "llama", "num_key_value_heads": 1, "pad_token_id": 0},
    "distilbert": {
        **{"model_type": "distilbert", "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12, "vocab_size": 14},
        "max_position_embeddings": 12,
    },
}
"""Architectures whose settings leave dropout out: their defaults have it."""
CARD = "---\nlicense: mit\ntags: [x]\n---\n\n# tiny-encoder\n"


def pretrained_folder(place: Path, kind: str = "bert") -> Path:
    """A folder with `config.json`, `model.safetensors`, `tokenizer.json` and a card."""
    transformers = pytest.importorskip("transformers", reason="pip install 'dpsweep[hf]'")
    place.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**ARCHITECTURES[kind]))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(place)
    (place / "config.json").write_text(json.dumps({**ARCHITECTURES[kind], "transformers_version": "5"}))
    (place / "README.md").write_text(CARD)
    write_tokenizer(place)
    return place


def causal_folder(place: Path, architecture: dict[str, Any] = CAUSAL) -> Path:
    """The same with a causal language model, its head to the words included."""
    transformers = pytest.importorskip("transformers", reason="pip install 'dpsweep[hf]'")
    place.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**architecture))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(place)
    (place / "config.json").write_text(json.dumps(architecture))
    (place / "README.md").write_text(CARD)
    write_tokenizer(place)
    return place


def write_tokenizer(place: Path) -> None:
    """A tokenizer of whole words, with marks of begin and end."""
    tokenizers = pytest.importorskip("tokenizers", reason="pip install 'dpsweep[hf]'")
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    marks = [(mark, vocabulary[mark]) for mark in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=marks)
    tokenizer.save(str(place / "tokenizer.json"))


_WIDTHS = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
VISION = {**_WIDTHS, "image_size": 16, "patch_size": 8}
PICTURES = {
    "vit": ("ViTConfig", "ViTModel", VISION, "ViTImageProcessorPil", {"size": {"height": 16, "width": 16}}),
    "dinov2": (
        *("Dinov2Config", "Dinov2Model", VISION, "BitImageProcessorPil"),
        {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}},
    ),
    "clip_vision_model": (
        *("CLIPVisionConfig", "CLIPVisionModel", VISION, "CLIPImageProcessorPil"),
        {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}},
    ),
    "clip": (
        *("CLIPConfig", "CLIPModel"),
        {"vision_config": VISION, "text_config": {**_WIDTHS, "vocab_size": 14, "bos_token_id": 1, "eos_token_id": 2}},
        *("CLIPImageProcessorPil", {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}}),
    ),
}
"""Tiny encoders of pictures: configuration, model, settings, and the processor with its settings."""

PICTURE_CARD = "---\nlicense: mit\ndatasets:\n- imagenet-1k\n---\n\n# tiny-eye\n"


def picture_folder(place: Path, kind: str) -> tuple[Path, torch.nn.Module, Any]:
    """A folder of a tiny encoder of pictures, the model in it, and its processor."""
    transformers = pytest.importorskip("transformers", reason="pip install 'dpsweep[hf]'")
    config, model, settings, processor, declared = PICTURES[kind]
    place.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        network = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    network.save_pretrained(place)
    prepare = getattr(transformers, processor)(**declared)
    prepare.save_pretrained(place)
    (place / "README.md").write_text(PICTURE_CARD)
    return place, network, prepare
