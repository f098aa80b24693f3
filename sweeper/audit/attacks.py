"""The attacks of an audit on a plan's runs: by gradients, by records, and on a script of the user's.

* By gradients: on sampler, bound, noise, divisor and loop of a plan's runs, for any model and method.
* By records: on model, engine and score too, by canaries among generated or public records.
* On a script: it is handed records with canaries, and predicts all of them. It trains under a receipt. Here the receipt
  is of a scratch folder that is removed at the end, and the records are those of the audit, on which nobody's privacy
  depends.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsweep.accounting.audit_record import Attack, Data, Scope
from dpsweep.accounting.durable_files import make_folder_and_missing_parents
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.private_store import PrivateStore, new_nonce
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.lower_bounds.noise_law import ReleasedNoise, TensorLayout
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.searches.interface import search_class_for_plan
from dpsweep.sweeper.audit.evidence import Coins, Collected, Scores, scale_to_unit_mean_square, secret_coins
from dpsweep.sweeper.trial.build import (
    config_of_generated_records_like_dataset,
    make_model,
    make_training_run,
)
from dpsweep.sweeper.trial.gradient_sums import stacked_or_engine_gradient_sums
from dpsweep.sweeper.trial.script_run import OUTPUT, run_script_and_return_predictions
from dpsweep.sweeper.trial.session import Machine, Session
from dpsweep.sweeper.trial.spec import (
    ADAPTER,
    FEATURES,
    Declaration,
    dataset_from_config,
    declaration_from_config,
    records_from_config,
)
from dpsweep.trainers.declarations.scores import scored_records_of_split
from dpsweep.trainers.training.run_records import PART, RecordStore

if TYPE_CHECKING:
    from dpsweep.trainers.auditing.canaries import GradientScores, RecordCanaries
    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.split import Split

LEAST_NOISE = 1e-6
"""A smaller noise multiplier counts as this in the weight of a run."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientAttack:
    """Trainings of a plan's runs with canaries in place of gradients; `layouts` are the tensors of each point's model.

    A model with fewer numbers than `canaries`, or fewer records that they may replace, is trained several times in
    place of once, with its share of them each time. `noise` collects the noise of all steps, by layout.
    """

    plan: Plan
    layouts: Mapping[str, TensorLayout]
    canaries: int
    rng: np.random.Generator
    noise: dict[TensorLayout, ReleasedNoise] = field(default_factory=dict)

    def collect_scores_and_lattice_count(
        self, alone: Trial, trainings: int, *, search: bool
    ) -> tuple[Collected, int | None]:
        """The scores of so many trainings of the run `alone`, and of the whole search if `search` says so.

        Also the number of noisy numbers that were on the lattice of their noise; None if one was not.
        """
        collected, totals, all_coins, numbers, off = Collected(), [], [], 0, 0
        rounds = -(-self.canaries // self._most_canaries_per_training(alone))
        count = trainings * rounds
        for _ in range(count):
            coins = secret_coins(self.canaries // rounds, self.rng)
            (one,) = self._train_and_score_canaries([alone], coins, shared=False)
            collected.add_training_scores(
                Scope.TRAINING, {Attack.GRADIENTS: one.total, Attack.STEPS: one.variation}, coins
            )
            totals.append(one.total)
            all_coins.append(coins)
            numbers, off = numbers + one.numbers, off + one.off_lattice
            if search:
                collected.add_training_scores(
                    Scope.SEARCH, {Attack.GRADIENTS: self._scores_of_simulated_search(coins)}, coins
                )
        for place in range(count if count > 1 else 0):
            differences = totals[place] - totals[(place + 1) % count]
            collected.add_training_scores(Scope.TRAINING, {Attack.TRAININGS: differences}, all_coins[place])
        return collected, None if off else numbers

    def _most_canaries_per_training(self, alone: Trial) -> int:
        """The most canaries of one training: a coordinate of its own for each, and a record that it may replace."""
        trials = (alone, *self.plan.trials)
        most = min(self.layouts[trial.id].vector_length for trial in trials)
        if Adjacency(self.plan.adjacency) is Adjacency.REPLACE_ONE:
            return min(most, *(declaration_from_config(trial.config).nominal_training_units for trial in trials))
        return most

    def _scores_of_simulated_search(self, coins: Coins) -> Scores:
        """The scores from what the rule releases of one search; zeros if it releases nothing."""
        runs = search_class_for_plan(self.plan).sample_search_for_attack(self.plan, SystemRandom())
        seen = self._train_and_score_canaries(runs.trials, coins, shared=runs.shared)
        released = runs.released_run_indices(
            [0.0 if runs.has_noise_on_right_counts else _canary_distinctness(one.total) for one in seen]
        )
        total = np.zeros(len(coins))
        for place in released:
            noise_multiplier = float(runs.trials[place].config["privacy"]["noise_multiplier"])
            total += seen[place].total / max(LEAST_NOISE, noise_multiplier)
        return total

    def _train_and_score_canaries(
        self, trials: Sequence[Trial], coins: Coins, *, shared: bool
    ) -> Sequence[GradientScores]:
        from dpsweep.trainers.auditing.canaries import train_and_score_gradient_canaries
        from dpsweep.trainers.randomness import secret_streams

        seen: list[GradientScores] = []
        for group in [trials] if shared else [[trial] for trial in trials]:
            layout = self.layouts[group[0].id]
            noise = self.noise.setdefault(layout, ReleasedNoise(layout=layout))
            runs = [make_training_run(trial.config, declaration_from_config(trial.config)) for trial in group]
            streams = [secret_streams() for _ in runs]
            seen += train_and_score_gradient_canaries(runs, coins, self.plan.adjacency, streams, noise, share=shared)
        return seen


def _canary_distinctness(total: Scores) -> float:
    """The score by which tries are compared here, in [0, 1): it prefers runs in which canaries stand out."""
    spread = float(np.mean(total**2))
    return spread / (1 + spread)


BACKGROUND = 64
"""The number of records beside the canaries where a record is added or removed; the declared number stays."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnCanaries:
    """The coins of one set of canaries, and the seed of their inputs and labels, which are no secret."""

    coins: Coins
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordAttack:
    """Trainings of a plan's runs on records with `canaries` of them drawn by coins."""

    plan: Plan
    machine: Machine
    data: Data
    canaries: int
    rng: np.random.Generator

    def collect_scores_of_trainings(self, alone: Trial, trainings: int, *, search: bool) -> Collected:
        """The scores of so many trainings of the run `alone`, and of the whole search if `search` says so.

        Without forward-mode derivatives of the model, only the final losses are scored.
        """
        collected = Collected()
        for _ in range(trainings):
            drawn = self.draw_coins_and_canary_seed(alone)
            ((seen, _),) = self._train_and_score_canaries([alone], drawn, shared=False, scored=False)
            collected.add_training_scores(Scope.TRAINING, seen, drawn.coins)
            if search:
                collected.add_training_scores(Scope.SEARCH, self._scores_of_simulated_search(drawn), drawn.coins)
        return collected

    def draw_coins_and_canary_seed(self, alone: Trial) -> DrawnCanaries:
        """New coins, and the seed of new canaries."""
        count = self.canaries
        if Adjacency(self.plan.adjacency) is Adjacency.REPLACE_ONE:  # no more than records that they may replace
            count = min(count, len(self.load_background_records(self.config_on_audited_records(alone.config)).train))
        return DrawnCanaries(coins=secret_coins(count, self.rng), seed=int(self.rng.integers(2**63)))

    def tensor_layout_by_trial(self) -> dict[str, TensorLayout]:
        """The trained tensors of each point's model, by its id.

        Raises `BadInput` for a model that cannot be trained on this data set.
        """
        from dpsweep.trainers.auditing.canaries import layout_of_trainable_tensors
        from dpsweep.trainers.models.checks import require_separate_examples

        kinds: dict[str, TensorLayout] = {}
        by_trial = {}
        for trial in self.plan.trials:
            config = self.config_on_audited_records(trial.config)
            kind = json.dumps([config["model"], config.get(ADAPTER)], sort_keys=True)
            if kind not in kinds:
                try:
                    model = make_model(config, "audit")
                    require_separate_examples(model, tuple(dataset_from_config(config).shape))
                    kinds[kind] = layout_of_trainable_tensors(model)
                except (ValueError, TypeError, RuntimeError) as cause:
                    raise BadInput(f"This model cannot be trained on this data set: {cause}") from cause
            by_trial[trial.id] = kinds[kind]
        return by_trial

    def _scores_of_simulated_search(self, drawn: DrawnCanaries) -> Mapping[Attack, Scores]:
        """The scores from what the rule releases of one search; zeros if it releases nothing."""
        runs = search_class_for_plan(self.plan).sample_search_for_attack(self.plan, SystemRandom())
        trained = self._train_and_score_canaries(runs.trials, drawn, shared=runs.shared, scored=runs.draw is not None)
        released = runs.released_run_indices([score for _, score in trained])
        total = {attack: np.zeros(len(drawn.coins)) for attack in self.possible_attacks}
        for place in released:
            for attack, values in trained[place][0].items():
                total[attack] += scale_to_unit_mean_square(values)
        return total

    def _train_and_score_canaries(
        self, trials: Sequence[Trial], drawn: DrawnCanaries, *, shared: bool, scored: bool
    ) -> list[tuple[dict[Attack, Scores], float | None]]:
        """The scores of the canaries after each of these runs, and the run's own score if it is asked for."""
        if len(trials) > 1 and not shared:
            return [self._train_and_score_canaries([one], drawn, shared=False, scored=scored)[0] for one in trials]
        from dpsweep.trainers.auditing.canaries import Alignment, train_together_with_observers
        from dpsweep.trainers.randomness import secret_streams

        config, device = self.config_on_audited_records(trials[0].config), self.machine.device
        declarations = [declaration_from_config(trial.config) for trial in trials]
        declaration, split = declarations[0], self.load_background_records(config)
        canaries = self.canaries_for_split(drawn, declaration, split)
        data = replace(
            split, train=canaries.insert_present_canaries_into_records(split.train, drawn.coins, self.plan.adjacency)
        )
        models = [make_model(config, trial.id).to(device) for trial in trials]
        before = [canaries.loss_of_each_canary(model, declaration.loss, device) for model in models]
        seen = [Alignment(canaries=canaries, model=model, loss=declaration.loss, device=device) for model in models]
        streams = [secret_streams() for _ in trials]
        runs = [make_training_run(trial.config, one) for trial, one in zip(trials, declarations, strict=True)]
        sums = stacked_or_engine_gradient_sums(config, declaration, models, data.train, self.machine, streams)
        observers = seen if self.notes_on_uncompared_gradients == () else [lambda *_: None for _ in seen]
        train_together_with_observers(runs, models, sums, data.train, streams, observers, device=device, share=shared)
        outcomes = []
        for place, model in enumerate(models):
            after = canaries.loss_of_each_canary(model, declaration.loss, device)
            found = {Attack.RECORDS: seen[place].total, Attack.LOSSES: before[place] - after}
            scores = {attack: found[attack] for attack in self.possible_attacks}
            scoring, numbers = declarations[place].score, streams[place].score
            own = scoring.measure(model, data, numbers, device, declarations[place].loss).value if scored else None
            outcomes.append((scores, None if own is None else float(own)))
        return outcomes

    @property
    def possible_attacks(self) -> tuple[Attack, ...]:
        """The attacks that are possible on this model."""
        return (Attack.LOSSES,) if self.notes_on_uncompared_gradients else (Attack.RECORDS, Attack.LOSSES)

    @cached_property
    def notes_on_uncompared_gradients(self) -> tuple[str, ...]:
        """Why the noisy steps cannot be compared with the gradients of records; empty if they can."""
        from torch.nn.utils import parameters_to_vector

        from dpsweep.trainers.engines.interface import trainable_parameters
        from dpsweep.trainers.user_modules import error_as_one_line

        config = self.config_on_audited_records(self.plan.trials[0].config)
        declaration, device = declaration_from_config(self.plan.trials[0].config), self.machine.device
        model = make_model(config, "audit").to(device)
        one = DrawnCanaries(coins=np.ones(1, dtype=np.bool_), seed=0)
        canaries = self.canaries_for_split(one, declaration, self.load_background_records(config))
        weights = parameters_to_vector(trainable_parameters(model)).detach()
        try:
            canaries.inner_products_of_direction_and_gradients(model, weights, weights, declaration.loss, device)
        except (RuntimeError, NotImplementedError) as cause:
            return (f"Steps were not compared with gradients of records: {error_as_one_line(cause)}",)
        return ()

    def config_on_audited_records(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A trial's configuration on the audited records; frozen features are generated in place of computed."""
        if self.data is Data.OWN:
            if config.get(FEATURES):
                raise BadInput("Expected features=none with audit.data=own; audit.data=generated makes features up.")
            return dict(config)
        kept = {key: value for key, value in config.items() if key not in (FEATURES, PART)}
        dataset = dict(config["dataset"])
        if config.get(FEATURES):
            shape = tuple(declaration_from_config(config).dataset.shape)
            dataset = {key: value for key, value in dataset.items() if key != "vocabulary"} | {"shape": list(shape)}
        return kept | {"dataset": config_of_generated_records_like_dataset(dataset, config["loss"])}

    def load_background_records(self, config: Mapping[str, Any]) -> Split:
        """The records that canaries are put among: few where that is allowed, whose gradients hide canaries less."""
        from dpsweep.trainers.auditing.canaries import replace_stored_features_by_model_inputs

        split = records_from_config(config).load_split(RecordStore(folder=self.machine.data))
        few = Adjacency(self.plan.adjacency) is Adjacency.ADD_OR_REMOVE_ONE
        train = split.train.select(slice(0, BACKGROUND)) if few else split.train
        return replace(split, train=replace_stored_features_by_model_inputs(train))

    def canaries_for_split(self, drawn: DrawnCanaries, declaration: Declaration, split: Split) -> RecordCanaries:
        """The canaries for the records of a split: the same in every run of a search."""
        from dpsweep.trainers.auditing.canaries import RecordCanaries

        vocabulary, rng = declaration.dataset.vocabulary, np.random.Generator(np.random.Philox(drawn.seed))
        words = None if vocabulary is None else vocabulary.words
        return RecordCanaries.draw_for_records(split.train, len(drawn.coins), declaration.dataset.classes, words, rng)


AUDIT = "audit"
"""What the receipt names in place of a ledger's entries."""


def collect_script_attack_scores(attack: RecordAttack, alone: Trial, trainings: int) -> Collected:
    """The scores of so many trainings of the run `alone`: how well the script predicts each canary's label."""
    collected = Collected()
    for _ in range(trainings):
        drawn = attack.draw_coins_and_canary_seed(alone)
        declaration = declaration_from_config(alone.config)
        split = attack.load_background_records(attack.config_on_audited_records(alone.config))
        canaries = attack.canaries_for_split(drawn, declaration, split)
        train = canaries.insert_present_canaries_into_records(split.train, drawn.coins, attack.plan.adjacency)
        data = replace(split, train=train, holdout=canaries.records, test=canaries.records)
        if scored_records_of_split(declaration.score, data) is train:
            raise BadInput("Expected score=private or score=public with trainer=script: it predicts what is scored.")
        with tempfile.TemporaryDirectory() as scratch:
            predictions = _predict_by_script(
                _session_in_scratch_folder(Path(scratch), attack.plan, alone), attack.machine, data
            )
        collected.add_training_scores(
            Scope.TRAINING, {Attack.LOSSES: _agreement_with_labels(predictions, canaries.records)}, drawn.coins
        )
    return collected


def _predict_by_script(session: Session, machine: Machine, data: Split) -> NDArray[Any]:
    """The script's predictions; a refusal has the last line that it printed, since its log is removed."""
    try:
        return run_script_and_return_predictions(session, machine, data)
    except ContractBroken as broken:
        with suppress(OSError, IndexError):
            broken.args = (f"{broken} Its last line: {(session.place.files / OUTPUT).read_text().splitlines()[-1]}",)
        raise


def _session_in_scratch_folder(scratch: Path, plan: Plan, trial: Trial) -> Session:
    """A session of the trial with a claimed receipt, all of it in a scratch folder."""
    folder, nonce = SweepFolder(root=scratch / "sweep"), new_nonce()
    folder.create_folder()
    plan.write(folder.plan_path)
    store = PrivateStore(root=scratch / "stores" / AUDIT / plan.id)
    store.create_if_missing()
    store.confirm_launch(nonce)
    files = folder.trial_folder(trial.id)
    make_folder_and_missing_parents(files)
    Receipt(
        account=plan.account,
        plan=plan.id,
        trial=trial.id,
        attempt=1,
        charge=AUDIT,
        entries=0,
        head=AUDIT,
        launch=nonce,
    ).write(files)
    receipt = Receipt.claim_from_folder(files, store, plan=plan.id, trial=trial.id)
    return Session(trial=trial, receipt=receipt, place=store.trial_place_from_files_folder(files))


def _agreement_with_labels(predictions: NDArray[Any], canaries: Records) -> Scores:
    """How well each prediction agrees with a canary's label: its probability, 1 if right, minus the error squared."""
    labels: NDArray[Any] = canaries.labels.numpy()
    if labels.ndim == 2:
        return np.asarray(np.where(labels > 0.5, predictions, 1 - predictions).mean(axis=1), dtype=np.float64)
    if predictions.ndim == 2:
        return np.asarray(predictions[np.arange(len(labels)), labels], dtype=np.float64)
    if predictions.dtype.kind == "f":
        return np.asarray(-((predictions - labels) ** 2), dtype=np.float64)
    return np.asarray(predictions == labels, dtype=np.float64)
