"""The code of a card for a causal language model: from tokens to logits, and to a folder that transformers reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NEXT_TOKEN = "next_token"
"""The output of a language model, as its preprocessing declares it."""

INPUTS = '''
def inputs(row):
    """The token numbers of a text in the declared vocabulary, as inputs."""
    if not 1 <= len(row) <= declared["length"]:
        raise ValueError(f"Expected 1 to {declared['length']} tokens, got {len(row)}.")
    numbers = torch.full((1, declared["length"]), float(declared["padding"]))
    numbers[0, : len(row)] = torch.tensor(row)
    return numbers
'''
_FUNCTIONS = '''
def logits(row):
    """The logits [len(row), words] of the token after each token of the row."""
    with torch.no_grad():
        return model(inputs(row))[0].T[: len(row)]


def next_token(row):
    """The most likely token number after the row."""
    return int(logits(row)[-1].argmax())


def save(folder):
    """Writes a folder that AutoModelForCausalLM.from_pretrained reads."""
    {saving}
'''
_PLAIN = "model.network.save_pretrained(folder)"
_MERGED = """from adapter import merge  # the adapter becomes part of the other weights

    merge(model).network.save_pretrained(folder)"""


def predicts_tokens(form: Mapping[str, Any] | None) -> bool:
    """Whether this preprocessing is that of a language model."""
    return form is not None and form.get("output") == NEXT_TOKEN


def functions(config: Mapping[str, Any]) -> str:
    """The functions that predict from a row, and the one that saves the model for transformers."""
    return _FUNCTIONS.replace("{saving}", _MERGED if config.get("adapter") else _PLAIN).strip("\n")
