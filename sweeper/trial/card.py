"""The reading of a sealed part: once, for the model that was claimed, after all runs have ended.

All that can fail without the records comes first. After the mark in folder and store the records are read, whatever
happens; the answer is the noisy counts and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.records.card import Card, CardAnswer
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import MODEL_FILE, TrialResult
from dpsweep.accounting.searches.interface import SURE, search_for_plan
from dpsweep.sweeper.trial.build import make_model, new_secret_streams
from dpsweep.sweeper.trial.session import Machine
from dpsweep.sweeper.trial.spec import declaration_from_config
from dpsweep.trainers.data.targets import width_of_target_range
from dpsweep.trainers.declarations.losses import label_shape
from dpsweep.trainers.declarations.metrics import Auroc
from dpsweep.trainers.training.run_records import RecordStore

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.trainers.randomness import Streams


def read_part_and_write_card(plan: Plan, folder: SweepFolder, part: int, machine: Machine) -> None:
    """Reads a part for the claimed model and stores the answer; raises `ContractBroken` unless it may be read now."""
    import torch

    from dpsweep.trainers.declarations.cards import (
        Reading,
        count_card_cells,
        details_of_card,
        number_of_tables,
        numbers_of_card,
    )
    from dpsweep.trainers.models.checks import require_separate_predictions
    from dpsweep.trainers.randomness import FINE, add_gaussian_noise_on_lattice

    files = folder.card_files(part)
    claim = files.claim
    if plan.card is None or claim is None or claim.plan != plan.id:
        raise ContractBroken(f"Expected sealed part {part} to be claimed for a model of plan {plan.id}.")
    runs = {trial.id: trial for trial in search_for_plan(plan, folder).search_and_final_runs()}
    if claim.trial not in runs:
        raise ContractBroken(f"Expected the run {claim.trial} that claimed sealed part {part} to be one of the sweep.")
    torch.set_num_threads(machine.threads)
    trial = runs[claim.trial]
    declaration = declaration_from_config(trial.config)
    model = _claimed_model(trial, folder, claim.model).to(machine.device)
    threshold = _decision_threshold(plan.card, trial, folder)
    dataset = declaration.dataset
    details = details_of_card(declaration.loss, declaration.score, dataset.classes, threshold, dataset.label_names)
    shape = tuple(dataset.shape)
    require_separate_predictions(model, shape, label_shape(declaration.loss, shape, dataset.classes), machine.device)
    streams = _streams_of_card(trial)
    store = RecordStore(folder=machine.data, private=folder.private_store, device=machine.device)
    session = files.mark_as_read_or_refuse(plan.query_of_card)
    records = declaration.records.open_sealed_part(session, part, store)
    if plan.card.is_exact:
        records = replace(records, units=None)  # public records, each of which counts alone
    counts = count_card_cells(model, records, machine.device, declaration.loss, details, streams.score)
    if not plan.card.is_exact and len(counts) > plan.card.counts:
        raise ContractBroken(f"Sealed part {part} is charged for {plan.card.counts} noisy counts, got {len(counts)}.")
    reading = Reading(
        std=plan.card.noise_std_of_counts(number_of_tables(details)),
        level=SURE,
        whole_units=declaration.counts_whole_units,
        target_width=width_of_target_range(dataset),
    )
    noisy = tuple(map(float, add_gaussian_noise_on_lattice(counts, reading.std, streams.score, FINE)))
    numbers = numbers_of_card(noisy, declaration.loss, declaration.score, details, reading)
    files.write_answer(CardAnswer(claim=claim, counts=noisy, numbers=numbers, threshold=threshold))


def _claimed_model(trial: Trial, folder: SweepFolder, digest: str) -> nn.Module:
    """The model that a run left, whose weights must be those of the claim."""
    from dpsweep.trainers.models.weights import load_weights_into_model

    place = folder.trial_folder(trial.id)
    if sha256((place / MODEL_FILE).read_bytes()).hexdigest() != digest:
        raise ContractBroken(f"Expected the weights of trial {trial.id} to be those that its card was claimed for.")
    return load_weights_into_model(make_model(trial.config, trial.id), place)


def _decision_threshold(card: Card, trial: Trial, folder: SweepFolder) -> float | None:
    """The threshold that was declared, or that follows from the released table of the run's score."""
    from dpsweep.trainers.declarations.cards import threshold_with_largest

    if not isinstance(card.threshold, str):
        return card.threshold
    result = TrialResult.read(folder.trial_folder(trial.id))
    table = declaration_from_config(trial.config).score.measured
    if result is None or not isinstance(table, Auroc):
        raise ContractBroken(f"Expected trial {trial.id} to have the table that its threshold follows from.")
    return threshold_with_largest(card.threshold, result.released_counts, table)


def _streams_of_card(trial: Trial) -> Streams:
    """The random streams of a card: secret ones, or those of a declared seed."""
    from dpsweep.trainers.randomness import reproducible_streams

    seed = trial.config["seed"]
    return new_secret_streams() if seed is None else reproducible_streams(seed, f"{trial.id}, card")
