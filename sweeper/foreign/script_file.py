"""The file of a script: read once for the plan, and compared with the plan before each run.

The checksum is part of a trial's configuration, so an edited script is another plan with another charge. Modules that
the script imports are not part of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.names.stored_classes import SCRIPT
from dpsweep.trainers.methods.script import Script, is_script

MISSING = "???"
"""How a configuration writes a value that the user has to give."""


def pinned(config: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """The configuration with the checksum of its script and without a model; unchanged without a script.

    `keys` are the keys on the command line. Raises `BadInput` if a model is among them, if the script cannot be read,
    or if it is no Python program.
    """
    if not is_script(config):
        return dict(config)
    trainer = config["trainer"]
    if trainer.get(SCRIPT) in (None, MISSING):
        raise BadInput("Expected script=FILE with trainer=script: the Python file that trains one model.")
    if any(key.partition(".")[0] == "model" for key in keys):
        raise BadInput("Expected model to be left out with trainer=script: the script makes its own.")
    content = _read(str(trainer[SCRIPT]))
    try:
        compile(content, str(trainer[SCRIPT]), "exec")
    except (SyntaxError, ValueError) as cause:
        raise BadInput(f"Expected script={trainer[SCRIPT]} to be a Python program: {cause}.") from cause
    own = {SCRIPT: str(Path(str(trainer[SCRIPT]))), "sha256": sha256(content).hexdigest()}
    return {**config, "model": {}, "trainer": {**trainer, **own}}


def charged_content(script: Script) -> bytes:
    """The content of the script that was charged; raises `ContractBroken` if the file has changed since."""
    content = _read(script.script)
    if sha256(content).hexdigest() != script.sha256:
        raise ContractBroken(
            f"Expected {script.script} to be as it was charged: its SHA-256 is another, so it does not run. The same "
            "command plans and charges the changed script."
        )
    return content


def location(script: Script) -> Path:
    """The absolute path of the script."""
    return Path(script.script).expanduser().absolute()


def _read(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as cause:
        raise BadInput(f"Expected script={path} to be a readable file: {cause.strerror}.") from cause
