"""How the gradients of a group of runs are summed: stacked, or by an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpsweep.sweeper.trial.blocks import most_stacked_points
from dpsweep.sweeper.trial.session import Machine, log
from dpsweep.sweeper.trial.spec import Declaration, build_object_of_config_part

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.randomness import Streams
    from dpsweep.trainers.training.gradient_sums import Sums


def stacked_or_engine_gradient_sums(
    config: Mapping[str, Any],
    declaration: Declaration,
    models: Sequence[nn.Module],
    train: Records,
    machine: Machine,
    streams: Sequence[Streams],
) -> Sums:
    """Gradient sums of stacked models if the models can be stacked (faster even for one), else by the engine.

    The models have this configuration, but for numbers of their methods. Raises ValueError for a loss that mixes
    examples.
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
        return StackedSums(stack=stack, records=records, device=machine.device, chunk=machine.chunk)
    return EngineSums(
        models=tuple(models),
        engine=build_object_of_config_part(config["engine"], "engine"),
        records=records,
        device=machine.device,
        chunk=machine.chunk,
        loss=loss,
        augmentation=declaration.augmentation,
        draws=[one.augmentation for one in streams],
    )
