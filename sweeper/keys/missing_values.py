"""One refusal for all values that a configuration still lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.rehearsal import WITHOUT_SPENDING
from dpsweep.sweeper.keys.documented_keys import documented_keys

OF_HYDRA = "hydra"

NOT_NEEDED = {"budget.epsilon": "dataset.public", "budget.delta": "dataset.public"}
"""Keys that may stay empty where another key is true."""


def refuse_missing(config: DictConfig, given: Collection[str]) -> None:
    """Raises `BadInput` with all keys at `???`, and what each means, except those in `given`: they are axes."""
    missing = [
        key
        for key in _missing(config)
        if key not in given and OmegaConf.select(config, NOT_NEEDED.get(key, "")) is not True
    ]
    if not missing:
        return
    width = max(map(len, missing)) + len("=")
    lines = "\n".join(f"  {f'{key}=':{width}}  {_meaning(key, config)}".rstrip() for key in missing)
    hint = f"\n{WITHOUT_SPENDING}" if not NOT_NEEDED.keys().isdisjoint(missing) else ""
    raise BadInput(
        f"Expected a value for each of these keys, on the command line or in a file of your own:\n{lines}{hint}"
    )


def _missing(node: DictConfig, prefix: str = "") -> Iterator[str]:
    """The keys at `???`; interpolations are left to those that they name."""
    for key in map(str, node):
        name = f"{prefix}{key}"
        if name == OF_HYDRA or OmegaConf.is_interpolation(node, key):
            continue
        if OmegaConf.is_missing(node, key):
            yield name
        elif OmegaConf.is_dict(below := node[key]):
            yield from _missing(below, f"{name}.")


def _meaning(key: str, config: DictConfig) -> str:
    """What a key means in the choice of its group that the configuration made, up to the first semicolon."""
    known = documented_keys().get(key)
    if known is None:
        return ""
    group = key.partition(".")[0]
    choice: Any = OmegaConf.select(config, f"hydra.runtime.choices.{group}")
    return known.comments.get(f"{group}={choice}", known.meaning).partition(";")[0]
