"""An audit of a plan: trains what the plan declares, with canaries among records that nobody's privacy depends on.

Invariant: no private record is read. Canaries lie among generated records, or among records that the user declared
public; nothing is charged, since nothing is at stake.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsweep.accounting.audit_record import AuditRecord, Data, Scope
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.canary_attack import CanarySteps
from dpsweep.accounting.lower_bounds.noise_law import ReleasedNoise
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.searches.interface import search_class_for_plan
from dpsweep.sweeper.audit.attacks import GradientAttack, RecordAttack, collect_script_attack_scores
from dpsweep.sweeper.audit.evidence import AttackEvidence, Judge, PricedScope
from dpsweep.sweeper.coordinator.request import AuditSettings
from dpsweep.sweeper.trial.session import Machine
from dpsweep.sweeper.trial.spec import declaration_from_config
from dpsweep.trainers.declarations.batch_sampling import CyclicPoisson
from dpsweep.trainers.declarations.clip_schedules import step_counts_by_noise_factor
from dpsweep.trainers.methods.output_perturbation import OutputPerturbation
from dpsweep.trainers.methods.script import is_script_config

FINAL_RUN = "The final run on the rest of the records, and the search as a whole with it, were not attacked."
SCRIPT = "Of a script of yours only the predictions of canaries were attacked: nobody sees its steps."


def run_audit(priced: PricedPlan, settings: AuditSettings, machine: Machine, rng: np.random.Generator) -> AuditRecord:
    """The record of a new audit of the plan, with coins from `rng`; raises `BadInput` if it cannot be audited."""
    import torch

    plan = priced.plan
    refuse_unobservable_plan(plan, settings)
    torch.set_num_threads(machine.threads)
    parts = bool(plan.final_runs) or any(trial.config.get("part") for trial in plan.trials)
    by_script = _is_trained_by_script(plan)
    alone, search = _costliest_trial(priced), not (parts or by_script)
    by_records = RecordAttack(plan=plan, machine=machine, data=settings.data, canaries=settings.records, rng=rng)
    layouts = {} if by_script else by_records.tensor_layout_by_trial()
    evidence: tuple[AttackEvidence, ...] = ()
    noise: tuple[ReleasedNoise, ...] = ()
    on_lattice: int | None = 0
    notes: tuple[str, ...] = (FINAL_RUN,) if parts else ()
    if by_script:
        evidence = collect_script_attack_scores(by_records, alone, settings.trainings).evidence_per_attack_and_scope()
        notes = (*notes, SCRIPT)
    elif settings.records:
        evidence = by_records.collect_scores_of_trainings(
            alone, settings.trainings, search=search
        ).evidence_per_attack_and_scope()
        notes += by_records.notes_on_uncompared_gradients
    if settings.gradients and not by_script:
        by_gradients = GradientAttack(plan=plan, layouts=layouts, canaries=settings.gradients, rng=rng)
        collected, on_lattice = by_gradients.collect_scores_and_lattice_count(alone, settings.trainings, search=search)
        evidence = collected.evidence_per_attack_and_scope() + evidence
        noise = tuple(seen for seen in by_gradients.noise.values() if seen.counts.any())
    scopes = _priced_training_and_search_scopes(priced, alone, search=search)
    judge = Judge.for_number_of_findings(scopes, plan.delta, settings.confidence, len(evidence), noise=bool(noise))
    return AuditRecord(
        plan=plan.id,
        confidence=settings.confidence,
        charge=priced.quote.epsilon,
        delta=plan.delta,
        records=settings.data,
        trainings=settings.trainings,
        findings=tuple(map(judge.finding_from_evidence, evidence)),
        floating_point=on_lattice,
        noise=judge.noise_findings(noise),
        notes=notes,
    )


def refuse_unobservable_plan(plan: Plan, settings: AuditSettings) -> None:
    """Raises `BadInput` if no attacker can observe the plan's steps, or for records that are not made up or public."""
    if settings.data is Data.OWN and not plan.has_public_data:
        raise BadInput(
            f"Expected audit.data={settings.data} to be {Data.GENERATED}, or dataset.public=true: canaries among "
            "private records would be an access to them that nobody charged."
        )
    trainers = [declaration_from_config(trial.config).trainer for trial in plan.trials]
    if _is_trained_by_script(plan) and not settings.records:
        raise BadInput(
            f"Expected audit.records={settings.records} >= 1 with trainer=script: nobody sees the steps of a script of "
            "yours, so only its predictions of canaries can be attacked."
        )
    if any(isinstance(trainer, OutputPerturbation) for trainer in trainers):
        raise BadInput(
            "Expected trainer= to train by noisy steps: output perturbation adds its noise once, to the fitted weights."
        )
    if plan.has_reproducible_run:
        raise BadInput(
            "Expected seed to be null: whoever knows the seed can subtract the noise, so there is no privacy."
        )


def _costliest_trial(priced: PricedPlan) -> Trial:
    """The point whose single run costs most: whichever wins costs no more."""
    plan = priced.plan
    prices = {
        event: priced.panel.epsilon(PlanEvent(training=event), plan.delta, plan.adjacency)
        for event in dict.fromkeys(trial.event.training for trial in plan.trials)
    }
    return max(plan.trials, key=lambda trial: prices[trial.event.training])


def _is_trained_by_script(plan: Plan) -> bool:
    return any(is_script_config(trial.config) for trial in plan.trials)


def _priced_training_and_search_scopes(priced: PricedPlan, alone: Trial, *, search: bool) -> dict[Scope, PricedScope]:
    plan, panel = priced.plan, priced.panel
    one = tuple(_iterate_canary_steps_of_run(alone, plan.adjacency))
    scopes = {Scope.TRAINING: PricedScope.from_event(alone.event.training, one, panel, plan.delta, plan.adjacency)}
    if search:
        released = search_class_for_plan(plan).trials_seen_by_attacker(plan, alone)
        everything = tuple(step for trial in released for step in _iterate_canary_steps_of_run(trial, plan.adjacency))
        scopes[Scope.SEARCH] = PricedScope.from_event(
            plan.event.training, everything, panel, plan.delta, plan.adjacency
        )
    return scopes


def _iterate_canary_steps_of_run(trial: Trial, adjacency: Adjacency) -> Iterator[CanarySteps]:
    """A run's steps as an ideal canary takes part in them; where records come once an epoch, at the mean rate."""
    declared, noise = declaration_from_config(trial.config), float(trial.config["privacy"]["noise_multiplier"])
    records, sampler = declared.nominal_training_units, declared.sampler
    period = sampler.steps_per_period(records)
    cycle = sampler.parts if isinstance(sampler, CyclicPoisson) else 1
    rate = 1 / period if period > cycle else min(1.0, cycle * sampler.batch_size / records)
    absent = -1 if Adjacency(adjacency) is Adjacency.REPLACE_ONE else 0
    for factor, count in step_counts_by_noise_factor(declared.clip_schedule, declared.steps).items():
        yield CanarySteps(rate=rate, noise_multiplier=noise * factor, count=count // cycle, instead=absent)
