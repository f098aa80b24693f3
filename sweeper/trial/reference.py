"""A model without privacy: the winner's settings without clipping and noise, scored exactly, for the curator alone.

No price covers what is trained here. It reads the records that the winner read to train and to be scored, and no sealed
part. Nothing of it is written into the sweep's folder, so nothing of it can be released.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.searches.stored_draw import coin_bits_of_secret_part
from dpsweep.sweeper.trial.build import make_model, new_secret_streams
from dpsweep.sweeper.trial.gradient_sums import stacked_or_engine_gradient_sums
from dpsweep.sweeper.trial.session import Machine
from dpsweep.sweeper.trial.spec import declaration_from_config
from dpsweep.trainers.declarations.estimates import Estimate
from dpsweep.trainers.methods.method import Method
from dpsweep.trainers.methods.transforms import Clip, Unbounded
from dpsweep.trainers.training.run_records import RecordStore


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The exact scores of the winner and of the model without privacy; None for one that diverged."""

    with_privacy: Estimate
    without: Estimate | None


def require_method_without_privacy(trial: Trial) -> Method:
    """The method of a trial without clipping and noise; a normalized method keeps its normalization, which is its step.

    Raises `BadInput` for a method that has no such form.
    """
    method = declaration_from_config(trial.config).trainer
    if not isinstance(method, Method):
        raise BadInput(f"Expected {method.label} to be a method of gradient steps: it has no form without privacy.")
    transform = Unbounded() if isinstance(method.transform, Clip) else method.transform
    return replace(method, transform=transform, noiseless=True)


def train_without_privacy_and_compare(trial: Trial, plan: str, folder: SweepFolder, machine: Machine) -> Reference:
    """Trains once without privacy, on the trial's training records, and scores both models on its scored ones.

    `plan` is the id of the trial's plan, whose sweep lies in the folder.
    """
    import torch

    from dpsweep.trainers.declarations.scores import exact_estimate, scored_records_of_split
    from dpsweep.trainers.models.weights import load_weights_into_model
    from dpsweep.trainers.training.loop import train_together
    from dpsweep.trainers.training.run import Run

    torch.set_num_threads(machine.threads)
    declared, method = declaration_from_config(trial.config), require_method_without_privacy(trial)
    coins, store = coin_bits_of_secret_part(trial, plan, folder), folder.private_store
    data = declared.records.load_split(
        RecordStore(folder=machine.data, private=store, device=machine.device, coins=coins)
    )
    run = Run(
        trainer=method,
        sampler=declared.sampler,
        schedule=declared.lr_schedule,
        noise_multiplier=0.0,
        steps=declared.steps,
        train_records=declared.nominal_training_units,
        public=True,
        ema=declared.ema,
        adjacency=declared.adjacency,
    )
    model, streams = make_model(trial.config, trial.id).to(machine.device), [new_secret_streams()]
    sums = stacked_or_engine_gradient_sums(trial.config, declared, [model], data.train, machine, streams)
    (outcome,) = train_together([run], [model], sums, data.train, streams, device=machine.device)
    scored, metric = scored_records_of_split(declared.score, data), declared.score.measured
    private = load_weights_into_model(make_model(trial.config, trial.id), folder.trial_folder(trial.id))

    return Reference(
        with_privacy=exact_estimate(private.to(machine.device), scored, machine.device, declared.loss, metric),
        without=None if outcome.diverged else exact_estimate(model, scored, machine.device, declared.loss, metric),
    )
