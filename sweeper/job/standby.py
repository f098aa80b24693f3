"""The work of a worker that has no try left while its neighbours train theirs: that of a training that nobody needs.

`ps` shows every user of a machine how long each process has computed and how much memory it takes. Under a secret draw
a worker that sat idle would tell how many tries there are, so it trains on generated records of the same shape until
its neighbours end. Nothing of it is kept, and no private record is read.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.trial.build import generated_dataset, load, make_model, make_run, new_secret_streams
from dpsweep.sweeper.trial.gradient_sums import gradient_sums
from dpsweep.sweeper.trial.session import Machine, log
from dpsweep.sweeper.trial.spec import FEATURES, declare
from dpsweep.trainers.methods.output_perturbation import OutputPerturbation

LOOK_SECONDS = 0.2
SIDE = 256
"""The side of the matrices of a worker that cannot train on generated records."""

COIN_BYTES = 32


def stand_by(config: Mapping[str, Any], machine: Machine, is_over: Callable[[], bool]) -> None:
    """Computes as a training of this configuration does until `is_over`, which is asked every `LOOK_SECONDS`.

    Where records of this shape cannot be generated it multiplies matrices: its processor time is that of a training,
    and its memory is not.
    """
    asked, over = time.monotonic(), is_over()
    coins = secrets.token_hex(COIN_BYTES)  # one part of the records for all trainings, which generate them once

    def should_end() -> bool:
        nonlocal asked, over
        if not over and (now := time.monotonic()) - asked >= LOOK_SECONDS:
            asked, over = now, is_over()
        return over

    if over:
        return
    try:
        while not should_end():
            _train(config, machine, coins, should_end)
    except Exception as cause:  # noqa: BLE001 - a worker that failed to look busy has lost no run
        log.info("multiplies matrices while others train: %s", cause)
        _multiply(machine, should_end)


def _train(config: Mapping[str, Any], machine: Machine, coins: str, should_end: Callable[[], bool]) -> None:
    """Trains a run of this configuration on generated records; raises `BadInput` if there are none of its shape."""
    import torch

    from dpsweep.trainers.training.freed_memory import keep_freed_memory
    from dpsweep.trainers.training.loop import train_together

    if config.get(FEATURES):
        raise BadInput("Expected no frozen features: those of generated records would have to be computed.")
    config = {**config, "dataset": generated_dataset(config["dataset"], config["loss"])}
    declaration = declare(config)
    if isinstance(declaration.trainer, OutputPerturbation):
        raise BadInput("Expected a method that takes steps: a fit cannot be ended before its time.")
    torch.set_num_threads(machine.threads)
    keep_freed_memory()
    data = load(config, declaration.adjacency, None, coins)
    model, streams = make_model(config, secrets.token_hex()), [new_secret_streams()]
    with gradient_sums(config, declaration, [model], data.train, machine, streams) as sums:
        train_together(
            [make_run(config, declaration)],
            [model],
            sums,
            data.train,
            streams,
            device=machine.device,
            should_stop=should_end,
        )


def _multiply(machine: Machine, should_end: Callable[[], bool]) -> None:
    """Multiplies matrices with the threads of a training."""
    import torch

    torch.set_num_threads(machine.threads)
    matrix = torch.eye(SIDE, device=machine.device)
    while not should_end():
        matrix = matrix @ matrix
