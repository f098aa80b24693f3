"""How the gradients of a group of runs are summed: stacked, by an engine, or by an engine in several processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.trial.blocks import most_stacked_points
from dpsweep.sweeper.trial.session import Machine, log
from dpsweep.sweeper.trial.spec import Declaration, build_object_of_config_part

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.randomness import Streams
    from dpsweep.trainers.training.gradient_sums import Sums

CUDA = "cuda"


@contextmanager
def stacked_or_engine_gradient_sums(
    config: Mapping[str, Any],
    declaration: Declaration,
    models: Sequence[nn.Module],
    train: Records,
    machine: Machine,
    streams: Sequence[Streams],
) -> Iterator[Sums]:
    """Gradient sums of stacked models if the models can be stacked (faster even for one), else by the engine.

    The models have this configuration, but for numbers of their methods. An engine sums in `machine.processes`
    processes; stacked models and augmented copies take one. Raises ValueError for a loss that mixes examples.
    """
    from dpsweep.trainers.declarations.losses import require_loss_of_each_example_alone, target_shape
    from dpsweep.trainers.engines.stacked import Stack
    from dpsweep.trainers.training.gradient_sums import EngineSums, StackedSums

    loss, dataset = declaration.loss, declaration.dataset
    require_loss_of_each_example_alone(loss, dataset.classes, *target_shape(loss, tuple(dataset.shape)))
    records = train.to(machine.device)
    if most_stacked_points(config):
        log.info("engine stacked")
        stack = Stack.from_model(models[0], loss)
        yield StackedSums(stack=stack, records=records, device=machine.device, chunk=machine.chunk)
        return
    sums = EngineSums(
        models=tuple(models),
        engine=build_object_of_config_part(config["engine"], "engine"),
        records=records,
        device=machine.device,
        chunk=machine.chunk,
        loss=loss,
        augmentation=declaration.augmentation,
        draws=[one.augmentation for one in streams],
    )
    if machine.processes == 1 or declaration.augmentation is not None:
        yield sums
        return
    from dpsweep.trainers.training.data_parallel import (
        start_sums_across_processes,
    )  # no job without further processes imports it

    log.info("%d processes", machine.processes)
    with start_sums_across_processes(
        sums, device_of_each_process(machine.device, machine.processes), threads=machine.threads
    ) as parallel:
        yield parallel


def device_of_each_process(device: str, processes: int) -> list[str]:
    """A device for each process: the same CPU, or a GPU each; raises `BadInput` where there are too few GPUs."""
    import torch

    if device != CUDA:
        return [device] * processes
    if processes > torch.cuda.device_count():
        raise BadInput(
            f"Expected compute.processes={processes} <= {torch.cuda.device_count()}, the GPUs of this machine."
        )
    return [f"{CUDA}:{place}" for place in range(processes)]
