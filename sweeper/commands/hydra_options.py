"""Hydra's own options: those that work here; a command that spends takes no other one.

An option that would be read and do nothing is charged for something else than was meant. So what is not in these tables
is refused by name, also an option that a later version of Hydra adds. `dpsweep help hydra` lists what works.
"""

from __future__ import annotations

import re
from argparse import ArgumentError, Namespace
from collections.abc import Iterable, Mapping, Sequence

from dpsweep.accounting.errors import BadInput, NoReceipt
from dpsweep.sweeper.commands.hydra_internals import parse_hydra_options
from dpsweep.sweeper.planning.unknown_keys import unknown_option_sentence

OUTSIDE = (
    "Nothing trains outside a charged sweep: start one with `dpsweep sweep` (no hydra.mode=RUN, no other "
    "hydra/sweeper)."
)

MODES = ("multirun", "cfg", "info", "shell_completion")
"""What Hydra may do, one of them; all but the first print something and start nothing."""

OPTIONS = frozenset({*MODES, "help", "hydra_help", "version", "config_dir"})
"""The options that work, by the names of Hydra's parser."""

BESIDE_CFG = frozenset({"resolve", "package"})
"""The options that say how `--cfg` prints."""

_REASONS: Mapping[str, str] = {
    "config_name": "a sweep is composed from dpsweep's own config.yaml; `experiment=NAME` adds experiment/NAME.yaml of "
    "the folder that --config-dir names",
    "config_path": "a sweep is composed from dpsweep's own folder; --config-dir adds one of yours",
    "experimental_rerun": "nothing trains from a file that Hydra has stored",
    **dict.fromkeys(BESIDE_CFG, "it says how --cfg prints"),
}
"""Why an option is refused."""

KEYS = re.compile(
    r"hydra/launcher|hydra/sweeper|hydra\.sweep\.dir|hydra\.searchpath|hydra\.mode"
    r"|hydra\.launcher\.(?!_target_$).+|hydra\.sweeper\.(?!_target_$).+"
)
"""The keys that work: what Hydra and the launcher do not know below these is refused by their own types."""

CALLBACKS = "hydra.callbacks"


def parse_options(words: Sequence[str]) -> Namespace:
    """Hydra's options among these words; raises `BadInput` for one that does not work here."""
    try:
        options, unknown = parse_hydra_options(words)
    except ArgumentError as cause:
        raise BadInput(f"Expected Hydra's options as it documents them: {cause}.") from cause
    if unknown:
        raise BadInput(unknown_option_sentence(unknown, words))
    given = {name for name, value in vars(options).items() if name != "overrides" and value not in (None, False)}
    if "run" in given:
        raise NoReceipt(OUTSIDE)
    printed = BESIDE_CFG if "cfg" in given else {"resolve"} if "help" in given else frozenset()
    for name in sorted(given - OPTIONS - printed):
        reason = _REASONS.get(name, "dpsweep does not know what it would do to a sweep")
        raise BadInput(f"Expected --{name.replace('_', '-')} to be left out: {reason}.")
    if len(modes := [f"--{name.replace('_', '-')}" for name in MODES if name in given]) > 1:
        raise BadInput(f"Expected one of {' and '.join(modes)}, not several: each is all that a command does.")
    return options


def refuse_hydra_keys(words: Iterable[str]) -> None:
    """Raises `BadInput` for a key of Hydra's that does not work here, `NoReceipt` for another mode than a sweep."""
    for word in words:
        typed, _, value = word.partition("=")
        key = typed.lstrip("+~")
        if re.match(r"hydra(?![\w-])", key) is None:
            continue
        if key == "hydra.mode" and value != "MULTIRUN":
            raise NoReceipt(OUTSIDE)
        if key == CALLBACKS or key.startswith(f"{CALLBACKS}.door"):
            raise BadInput(f"Expected {typed} to be left out: it refuses jobs outside a charged sweep.")
        if KEYS.fullmatch(key) is None or typed.startswith("~"):
            raise BadInput(
                f"Expected {typed} to be left out: it would do nothing here, or something else than in a program of "
                "Hydra's. `dpsweep help hydra` lists what works."
            )
