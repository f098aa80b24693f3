"""An audit of a plan: trains and scores what the plan declares on generated records, and computes it again.

Invariant: no private record is read, and nothing is charged, since nothing is at stake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsweep.accounting.audit.noise_law import ReleasedNoise
from dpsweep.accounting.audit.record import SMALL_DELTA, AuditRecord, Compared, false_alarm_of_each
from dpsweep.accounting.errors import BadInput, DpsweepError
from dpsweep.accounting.events.build import PlanEvent, mechanisms_with_counts, noise_std_of_noisy_table
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.sweeper.audit.one_run import best_bound, guess_coins
from dpsweep.sweeper.coordinator.request import AuditSettings
from dpsweep.sweeper.trial.blocks import group_points_into_blocks
from dpsweep.sweeper.trial.build import config_of_generated_records_like_dataset, make_model, make_training_run
from dpsweep.sweeper.trial.gradient_sums import stacked_or_engine_gradient_sums
from dpsweep.sweeper.trial.session import Machine
from dpsweep.sweeper.trial.spec import FEATURES, declaration_from_config, records_from_config
from dpsweep.trainers.methods.output_perturbation import OutputPerturbation
from dpsweep.trainers.methods.script import is_script_config
from dpsweep.trainers.training.run_records import PART, RecordStore

if TYPE_CHECKING:
    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.split import Split

UNITS, BATCH = 64, 12
"""Units that are trained on where their number may be chosen: so many, or as many as make a batch of so many."""

MOST_STEPS = 100_000
"""The most steps of an attack in all of its trainings."""

SCORES = 100
"""A model is scored at least so often."""

AUGMENTED = "Sums were computed without augmentation: its copies were not compared."
FINAL_RUN = "Of a final run on the rest of the records nothing was compared."
CARD = "Of cards nothing was compared."
OWN_SCORE = "The noise of this score is not that of a table of counts: it was not compared."
UNRESOLVED = "Noise was not compared in {count} sums that are more than a thousand times as large."


def run_audit(priced: PricedPlan, settings: AuditSettings, machine: Machine, rng: np.random.Generator) -> AuditRecord:
    """The record of a new audit of the plan, with coins from `rng`; raises `BadInput` if it cannot be audited."""
    import torch

    plan = priced.plan
    refuse_unobservable_plan(plan)
    torch.set_num_threads(machine.threads)
    prices = {
        event: priced.panel.epsilon(PlanEvent(training=event), plan.delta, plan.adjacency)
        for event in dict.fromkeys(trial.event.training for trial in plan.trials)
    }
    by_price = sorted(plan.trials, key=lambda trial: -prices[trial.event.training])
    comparisons: list[Compared] = []
    notes = [FINAL_RUN] if plan.final_runs else []
    notes += [CARD] if plan.card is not None else []
    blocks = group_points_into_blocks(by_price, shared=False)
    for number, block in enumerate(blocks, start=1):
        pair = (block.trials[0], block.trials[-1])
        found, more = compare_runs(plan, pair, settings.steps, machine, rng)
        prefix = "" if len(blocks) == 1 else f"{number} of {len(blocks)}: "
        comparisons += [replace(one, name=f"{prefix}{one.name}") for one in found]
        notes += more
    record = AuditRecord(
        plan=plan.id,
        charge=priced.quote.epsilon,
        delta=plan.delta,
        comparisons=tuple(comparisons),
        confidence=settings.confidence,
        price=prices[by_price[0].event.training],
        notes=tuple(dict.fromkeys(notes)),
    )
    if not settings.canaries:
        return record
    with suppress(DpsweepError, ValueError):  # an accountant may have no bound at so small a delta
        event = PlanEvent(training=by_price[0].event.training)
        record = replace(record, sure_price=priced.panel.epsilon(event, SMALL_DELTA, plan.adjacency))
    return attack_one_training(record, plan, by_price[0], settings.canaries, rng)


def refuse_unobservable_plan(plan: Plan) -> None:
    """Raises `BadInput` if the plan's steps cannot be observed."""
    if any(is_script_config(trial.config) for trial in plan.trials):
        raise BadInput("Expected trainer= to train by dpsweep's loop: nobody sees the steps of a script of yours.")
    trainers = [declaration_from_config(trial.config).trainer for trial in plan.trials]
    if any(isinstance(trainer, OutputPerturbation) for trainer in trainers):
        raise BadInput(
            "Expected trainer= to train by noisy steps: output perturbation adds its noise once, to the fitted weights."
        )
    if plan.has_reproducible_run:
        raise BadInput(
            "Expected seed to be null: whoever knows the seed can subtract the noise, so there is no privacy."
        )


def attack_one_training(
    record: AuditRecord, plan: Plan, trial: Trial, canaries: int, rng: np.random.Generator
) -> AuditRecord:
    """The record with the lower bound of an attack on a training of this point by so many canaries, or less.

    A model with fewer numbers, or fewer records that they may replace, is trained several times with some each time,
    for `MOST_STEPS` together: with coins of their own, these are one mechanism on disjoint canaries.
    """
    from dpsweep.trainers.auditing.canaries import canary_scores
    from dpsweep.trainers.engines.interface import trainable_parameters
    from dpsweep.trainers.randomness import secret_streams

    run = make_training_run(trial.config, declaration_from_config(trial.config))
    size = sum(one.numel() for one in trainable_parameters(make_model(generated_config(trial.config), "audit")))
    most = size if Adjacency(plan.adjacency) is Adjacency.ADD_OR_REMOVE_ONE else min(size, run.train_records)
    rounds = min(-(-canaries // most), max(1, MOST_STEPS // run.steps))
    coins = [rng.random(min(most, canaries // rounds)) < 0.5 for _ in range(rounds)]
    scores = [canary_scores(run, size, one, plan.adjacency, secret_streams()) for one in coins]
    guesses = guess_coins(np.concatenate(scores), np.concatenate(coins))
    if not guesses:
        return record
    epsilon, best = best_bound(guesses, plan.delta, 1 - record.confidence)
    sure, _ = best_bound(guesses, SMALL_DELTA, false_alarm_of_each(record.comparisons))
    return replace(record, canaries=best.canaries, made=best.made, right=best.right, epsilon=epsilon, sure=sure)


def compare_runs(
    plan: Plan, trials: Sequence[Trial], steps: int, machine: Machine, rng: np.random.Generator
) -> tuple[list[Compared], list[str]]:
    """What these two runs do when they are trained together, for at least so many steps, and notes on the rest."""
    from dpsweep.trainers.auditing.recompute import GRADIENTS, Loop, Watch, compare_scores
    from dpsweep.trainers.engines.interface import trainable_parameters
    from dpsweep.trainers.models.checks import require_separate_examples
    from dpsweep.trainers.randomness import secret_streams

    configs = [generated_config(trial.config) for trial in trials]
    config, device = configs[0], machine.device
    declarations = [declaration_from_config(trial.config) for trial in trials]
    declaration = replace(declarations[0], augmentation=None)
    runs = [make_training_run(trial.config, one) for trial, one in zip(trials, declarations, strict=True)]
    opened = records_from_config(config).open_split(None, RecordStore(folder=machine.data))
    data = few_records(opened, runs[0].sampler, plan)

    def new_models() -> list[Any]:
        return [make_model(one, trial.id).to(device) for one, trial in zip(configs, trials, strict=True)]

    try:
        models = new_models()
        require_separate_examples(models[0], data.train.input_shape)
        names, sizes = zip(
            *((name, one.numel()) for name, one in models[0].named_parameters() if one.requires_grad), strict=True
        )
        trainable_parameters(models[0])
    except (ValueError, TypeError, RuntimeError) as cause:
        raise BadInput(f"This model cannot be trained on this data set: {cause}") from cause
    each = min(runs[0].steps, -(-steps // runs[0].steps_per_period) * runs[0].steps_per_period)
    trainings = -(-steps // each)
    expected = max(1.0, len(runs) * runs[0].sampler.batch_size * data.train.number_of_units / runs[0].train_records)
    number = min(trainings * each, 1 + int(GRADIENTS / expected))
    watch = Watch(
        runs=runs,
        loops=[Loop.copying(model, data.train, declaration.loss, device) for model in models],
        compared=frozenset([0, *rng.choice(trainings * each, number, replace=False).tolist()]),
        noise=ReleasedNoise(kind="noise", names=names, sizes=sizes),
        share=plan.has_shared_subsamples,
    )
    for _ in range(trainings):
        models, streams = new_models(), [secret_streams() for _ in runs]
        sums = stacked_or_engine_gradient_sums(config, declaration, models, data.train, machine, streams)
        watch.train(models, sums, data.train, streams, each)
    notes = [AUGMENTED] if declarations[0].augmentation is not None else []
    notes += [UNRESOLVED.format(count=watch.unresolved)] if watch.unresolved else []
    found = list(watch.comparisons())
    score, event = declaration.score, trials[0].event.validation
    tables = () if event is None else mechanisms_with_counts(event)
    std = noise_std_of_noisy_table(tables[0][0]) if len(tables) == 1 else None
    if event is not None and std is None:
        return found, [*notes, OWN_SCORE]
    scored = data.holdout if event is not None else data.train if declaration.dataset.public else data.test
    scored = data.test if event is None and score.reads == "test" else scored
    if scored is not None and len(scored) and score.is_measured:
        loop = Loop.copying(models[0], scored, declaration.loss, device)
        found += compare_scores(score, models[0], data, loop, std, secret_streams(), max(steps, SCORES))
    return found, notes


def generated_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's configuration on generated records; frozen features are generated in place of computed."""
    left_out = (FEATURES, PART, "augmentation")
    dataset = dict(config["dataset"])
    if config.get(FEATURES):
        shape = list(declaration_from_config(config).dataset.shape)
        dataset = {key: value for key, value in dataset.items() if key != "vocabulary"} | {"shape": shape}
    kept = {key: value for key, value in config.items() if key not in left_out}
    return kept | {"dataset": config_of_generated_records_like_dataset(dataset, config["loss"])}


def few_records(data: Split, sampler: Any, plan: Plan) -> Split:
    """The split with few units of each part; with all training units where neighbours have the same number of them."""
    train = data.train
    if Adjacency(plan.adjacency) is Adjacency.ADD_OR_REMOVE_ONE:
        train = first_units(train, max(UNITS, -(-BATCH * train.number_of_units // sampler.batch_size)))
    parts = [None if part is None else first_units(part, UNITS) for part in (data.holdout, data.test)]
    return replace(data, train=train, holdout=parts[0], test=parts[1])


def first_units(records: Records, count: int) -> Records:
    """The records of the first `count` units."""
    return records.select(np.arange(len(records)) < count if records.units is None else records.units.of < count)
