"""Text classifiers and causal language models of Hugging Face's, from a folder on disk.

A network is built from the architecture in the plan, and its weights are those of the folder whose checksum is in the
plan. Nothing is downloaded, and no code of the folder is run. Dropout is set to zero, as in our other models. Attention
is computed by plain matrix products: faster kernels choose their algorithm by what the records contain.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.format_defaults import Place
from dpsweep.trainers.data.published_files import WEIGHTS, PretrainedFolder, require_installed_package

ENCODER, CAUSAL = "AutoModel", "AutoModelForCausalLM"
"""The classes of transformers that choose a network by its architecture: without a head, or with one to the words."""


def random_network_and_config(architecture: Mapping[str, Any], family: str) -> tuple[nn.Module, Any]:
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
        raise ValueError(f"Expected config.json to describe an architecture of {family}, got {kind}.") from cause
    return network, config


def require_folder_with_sha256(path: str, sha256: str) -> Path:
    """The folder; raises ValueError if its weights have another checksum than the plan states."""
    require_installed_package("transformers")
    if (digest := PretrainedFolder(path=path).checksum_of_weights()) != sha256:
        raise ValueError(f"Expected model.path={path} to have weights with sha256={sha256}, got {digest}.")
    return Path(path).expanduser()


def load_weights(network: nn.Module, folder: Path) -> None:
    """Reads the network's weights; raises ValueError that names the first that the folder lacks.

    The body of a network may have been published as part of a larger model, or without the head that it has here. A
    tensor with several names (tied weights) is read once, by the first.
    """
    tensors = _tensors_in_folder(folder)
    own = network.state_dict()
    first = {name: next(other for other in own if own[other].data_ptr() == own[name].data_ptr()) for name in own}
    places = _name_in_files_by_tensor_name(network, own, tensors)
    missing = [
        name
        for name in own
        if name == first[name] and (places[name] not in tensors or tensors[places[name]].shape != own[name].shape)
    ]
    if missing:
        raise ValueError(
            f"Expected the weights in {folder} to have {missing[0]} of shape {list(own[missing[0]].shape)}, "
            f"as {type(network).__name__} needs."
        )
    network.load_state_dict({name: tensors[places[first[name]]] for name in own})


def encoder_with_weights_of_folder(architecture: Mapping[str, Any], folder: Path) -> nn.Module:
    """The encoder of this architecture with the folder's weights, and without a pooler that has weights.

    transformers itself gives the tensors their places, since it knows the names that they had in earlier versions.
    Raises ValueError that names the first weight that the folder lacks.
    """
    random, config = random_network_and_config(architecture, ENCODER)
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        network, report = type(random).from_pretrained(  # type: ignore[attr-defined]
            None,
            config=config,
            state_dict=_tensors_in_folder(folder),
            output_loading_info=True,
            attn_implementation="eager",
            dtype=torch.float32,
        )
    except RuntimeError as cause:
        line = " ".join(str(cause).split())
        raise ValueError(f"Expected the weights in {folder} to be those of {type(random).__name__}: {line}.") from cause
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
    if missing := sorted(name for name in report["missing_keys"] if not name.startswith(f"{_POOLER}.")):
        raise ValueError(f"Expected the weights in {folder} to have {missing[0]}, as {type(random).__name__} needs.")
    drop_trained_pooler(network)
    encoder: nn.Module = network
    return encoder


def _tensors_in_folder(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob(WEIGHTS)):
        try:
            tensors.update(load_file(file))
        except SafetensorError as cause:
            raise ValueError(f"Expected {file} to be a whole file of weights, got: {cause}.") from cause
    return tensors


def _name_in_files_by_tensor_name(
    network: nn.Module, own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> dict[str, str]:
    """The name in the files of each of the network's tensors: those of its body may have another prefix there."""
    body = str(getattr(network, "base_model_prefix", ""))
    inner = f"{body}." if body and any(name.startswith(f"{body}.") for name in own) else ""
    bare = {name: name.removeprefix(inner) for name in own}
    first = next(bare[name] for name in own if name.startswith(inner))
    names = [name for name in tensors if name == first or name.endswith(f".{first}")]
    prefix = names[0].removesuffix(first) if len(names) == 1 else inner
    return {name: prefix + bare[name] if name.startswith(inner) else name for name in own}


CLASSIFIER_PARTS = ("head", "encoder")
_POOLER = "pooler"
"""A layer on an encoder's first vector, which many folders lack, and the pooling here does not need."""


def build_random_text_classifier(
    shape: tuple[int, ...],
    classes: int,
    *,
    architecture: Mapping[str, Any],
    padding: int,
    pooling: str = "mean",
    trained: str = "head",
    **_: object,
) -> TextClassifier:
    """The same model with random weights, for a file of weights to replace: it reads nothing."""
    if trained not in CLASSIFIER_PARTS:
        raise ValueError(f"Expected model.trained={trained} to be one of {', '.join(CLASSIFIER_PARTS)}.")
    if pooling not in POOLINGS:
        raise ValueError(f"Expected model.pooling={pooling} to be one of {', '.join(POOLINGS)}.")
    encoder, config = random_network_and_config(architecture, ENCODER)
    drop_trained_pooler(encoder)
    if not hasattr(config, "vocab_size") or not hasattr(config, "hidden_size"):
        raise ValueError(f"Expected model.path to be an encoder of texts, got {type(encoder).__name__}.")
    words, longest = int(config.vocab_size), getattr(config, "max_position_embeddings", None)
    if len(shape) != 1 or (longest is not None and not 1 <= shape[0] <= longest):
        raise ValueError(f"Expected shape={list(shape)} to be (length,), at most {longest} words.")
    if not (isinstance(padding, int) and 0 <= padding < words):
        raise ValueError(f"Expected 0 <= model.padding={padding} < {words}.")
    head = nn.Linear(int(config.hidden_size), classes)
    model = TextClassifier(encoder, head, words=words, padding=padding, pooling=pooling)
    model.encoder.requires_grad_(trained == "encoder")
    for module in model.encoder.modules():
        if isinstance(module, nn.Embedding):  # frozen, as Yang, Zhang, Chen, Liu 2022 have them
            module.requires_grad_(False)
    return model


class TextClassifier(nn.Module):
    """Token numbers [n, length] to outputs [n, classes]."""

    def __init__(self, encoder: nn.Module, head: nn.Linear, *, words: int, padding: int, pooling: str) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self.token_count, self.padding_token = words, padding
        self.pool = POOLINGS[pooling]

    def forward(self, tokens: Tensor) -> Tensor:
        """The outputs; invalid numbers count as padding, and the first place as a word: no record may raise."""
        tokens = tokens.long()
        tokens = tokens.where((tokens >= 0) & (tokens < self.token_count), self.padding_token)
        is_word = tokens != self.padding_token
        is_word = torch.cat([torch.ones_like(is_word[:, :1]), is_word[:, 1:]], dim=1)
        values = self.encoder(input_ids=tokens, attention_mask=is_word.long()).last_hidden_state
        outputs: Tensor = self.head(self.pool(values, is_word))
        return outputs


def _pool_mean_of_words(values: Tensor, is_word: Tensor) -> Tensor:
    """The mean over a text's words."""
    weights = is_word[:, :, None].to(values.dtype)
    return (values * weights).sum(dim=1) / weights.sum(dim=1)


def _pool_first_word(values: Tensor, is_word: Tensor) -> Tensor:
    """The first word, BERT's mark of a text."""
    return values[:, 0]


def _pool_last_word(values: Tensor, is_word: Tensor) -> Tensor:
    """The last word that is not padding, which has read all others in a model that reads from left to right."""
    places = torch.arange(is_word.shape[1], device=is_word.device)
    last = (is_word * places).amax(dim=1)
    return values[torch.arange(len(values), device=values.device), last]


POOLINGS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": _pool_mean_of_words,
    "first": _pool_first_word,
    "last": _pool_last_word,
}
"""From the vectors of words [n, length, width] and a mask of words [n, length] to one vector [n, width] a text."""


def drop_trained_pooler(encoder: nn.Module) -> None:
    """Leaves out the encoder's pooler, if it has weights."""
    if getattr(encoder, _POOLER, None) is not None and any(True for _ in encoder.pooler.parameters()):  # type: ignore[union-attr]
        setattr(encoder, _POOLER, None)


CAUSAL_PARTS = ("none", "head", "decoder")
_PROBE = 4
"""The longest text on which a model is tried."""
_ROUNDING = 1e-6


def build_random_causal_model(
    shape: tuple[int, ...],
    classes: int,
    *,
    architecture: Mapping[str, Any],
    padding: int,
    trained: str = "none",
    **_: object,
) -> CausalModel:
    """The same model with random weights, for a file of weights to replace: it reads nothing.

    `trained` selects the trainable parameters: none, the head, or the whole decoder but the tables of embeddings. A
    head that shares the weights of the embeddings (tied weights) stays frozen with them.
    """
    if trained not in CAUSAL_PARTS:
        raise ValueError(f"Expected model.trained={trained} to be one of {', '.join(CAUSAL_PARTS)}.")
    network, config = random_network_and_config(architecture, CAUSAL)
    if not hasattr(config, "vocab_size"):
        raise ValueError(f"Expected model.path to be a language model, got {type(network).__name__}.")
    network.config.pad_token_id = None  # type: ignore[union-attr]  # padding needs no mask in a causal model, and transformers warns of its lack
    words, longest = int(config.vocab_size), getattr(config, "max_position_embeddings", None)
    if len(shape) != 1 or (longest is not None and not 1 <= shape[0] <= longest):
        raise ValueError(f"Expected dataset.shape={list(shape)} to be [length], at most {longest} tokens.")
    if classes != words:
        raise ValueError(f"Expected dataset.classes={classes} == {words}, the words of the language model.")
    if not (isinstance(padding, int) and 0 <= padding < words):
        raise ValueError(f"Expected 0 <= model.padding={padding} < {words}.")
    model = CausalModel(network, words=words, padding=padding)
    _require_outputs_ignore_later_tokens(model, min(_PROBE, shape[0]))
    head: nn.Module | None = network.get_output_embeddings()  # type: ignore[operator]
    model.requires_grad_(trained == "decoder")
    if head is not None:
        head.requires_grad_(trained != "none")
    for module in model.modules():
        if isinstance(module, nn.Embedding):  # frozen, as Yang, Zhang, Chen, Liu 2022 have them
            module.requires_grad_(False)
    if trained == "head" and not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("Expected model.trained=head to be none: this head shares the weights of the embeddings.")
    return model


class CausalModel(nn.Module):
    """Token numbers [n, length] to logits of the next token [n, words, length].

    The logits at a position depend on the tokens up to this position alone. So padding, which follows a text's last
    token, changes no logits of the text, and needs no mask.
    """

    def __init__(self, network: nn.Module, *, words: int, padding: int) -> None:
        super().__init__()
        self.network = network
        self.token_count, self.padding_token = words, padding

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits; invalid numbers count as padding: no record may raise."""
        tokens = tokens.long()
        tokens = tokens.where((tokens >= 0) & (tokens < self.token_count), self.padding_token)
        logits: Tensor = self.network(input_ids=tokens, use_cache=False).logits
        return logits.transpose(1, 2)


def _require_outputs_ignore_later_tokens(model: CausalModel, length: int) -> None:
    """Raises ValueError if the logits at a position depend on a later token."""
    first = torch.arange(length)[None] % model.token_count
    with torch.no_grad():
        logits = model(first)
        for place in range(1, length):
            other = first.clone()
            other[:, place:] = (other[:, place:] + 1) % model.token_count
            difference = (model(other) - logits)[:, :, :place].abs().max()
            if not difference <= _ROUNDING * logits.abs().max():
                kind = type(model.network).__name__
                raise ValueError(f"Expected model.path to be a causal language model: {kind} reads later tokens.")


def hf(
    shape: tuple[int, ...],
    classes: int,
    *,
    path: Place,
    sha256: str,
    architecture: Mapping[str, Any],
    padding: int,
    pooling: str = "mean",
    trained: str = "head",
    name: Place = "",
    licence: str = "",
) -> nn.Module:
    """The encoder in the folder `path`, and a linear layer from the mean over a text's words to the classes.

    Shapes: token numbers [n, length]; `padding` follows a text's last word. `pooling` is mean, first or last (word).
    `trained` selects the trainable parameters: head, to which adapter=lora adds its own, or encoder: all but the tables
    of embeddings. `name` and `licence` are stated on the page.
    Errors: ValueError if the folder has other weights than the plan states.
    """
    folder = require_folder_with_sha256(path, sha256)
    model = build_random_text_classifier(
        shape, classes, architecture=architecture, padding=padding, pooling=pooling, trained=trained
    )
    load_weights(model.encoder, folder)
    return model


def hf_causal(
    shape: tuple[int, ...],
    classes: int,
    *,
    path: Place,
    sha256: str,
    architecture: Mapping[str, Any],
    padding: int,
    trained: str = "none",
    name: Place = "",
    licence: str = "",
) -> nn.Module:
    """The language model in the folder `path`, from token numbers to the logits of the next token at each position.

    Shapes: token numbers [n, length] to [n, classes, length]; `classes` is the model's number of words, and `padding`
    follows a text's last token. `trained` selects the trainable parameters: none, to which adapter=lora adds its own,
    head, or decoder: all but the tables of embeddings. `name` and `licence` are stated on the page.
    Errors: `BadInput` if the folder has other weights than the plan states, or is no causal language model.
    """
    try:
        folder = require_folder_with_sha256(path, sha256)
        model = build_random_causal_model(shape, classes, architecture=architecture, padding=padding, trained=trained)
        load_weights(model.network, folder)
    except ValueError as cause:
        raise BadInput(str(cause)) from cause
    return model
