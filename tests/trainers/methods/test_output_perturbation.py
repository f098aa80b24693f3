"""Output perturbation: the minimum and how far a record moves it, its price, its noise, and what it is not made for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import are_same_events, mechanisms_with_counts, output_perturbation
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.trial.spec import declaration_from_config
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.methods.output_perturbation import INEXACT, Everyone, OutputPerturbation
from dpsweep.trainers.models.fully_connected import logistic, one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training import convex_fit as convex
from dpsweep.trainers.training.convex_fit import clip_rows, fit_by_output_perturbation, minimise_loss
from dpsweep.trainers.training.run import Run, Unrecorded

METHOD = OutputPerturbation(l2=0.05, feature_norm=1.5)
RECORDS = 40
ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
LINE = ("dataset=digits", "trainer=output_perturbation", "accountant=rdp", "accountant.witnesses=[]")
Compose = Callable[[Sequence[str]], PricedPlan]


def problem(count: int = RECORDS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    features = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return clip_rows(features, METHOD.feature_norm), torch.randint(3, (count,), generator=generator)


def fitted(features: Tensor, targets: Tensor, method: OutputPerturbation = METHOD) -> Tensor:
    return minimise_loss(features, targets, 3, method, records=RECORDS)


def slope(weights: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    """By hand: (softmax - one-hot)^T x / n + l2 w."""
    errors = torch.softmax(features @ weights.t(), dim=1)
    errors[torch.arange(len(targets)), targets] -= 1
    return errors.t() @ features / RECORDS + METHOD.l2 * weights


@pytest.mark.parametrize("rounds", [20, 0], ids=["L-BFGS", "gradient descent"])
def test_the_gradient_certifies_how_far_the_minimum_is(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    monkeypatch.setattr(convex, "_ROUNDS", rounds)
    features, targets = problem()
    weights = fitted(features, targets)
    allowed = INEXACT * METHOD.minimum_shift_bound(RECORDS)
    assert float(slope(weights, features, targets).norm()) / METHOD.l2 <= allowed * (1 + 1e-9)
    truth = weights.clone()
    for _ in range(1500):
        truth -= slope(truth, features, targets)
    assert float(slope(truth, features, targets).norm()) < 1e-14
    assert float((weights - truth).norm()) <= allowed


def test_one_record_moves_the_fitted_model_by_no_more_than_is_charged() -> None:
    """Added, and with the opposite features in its place, where hardly anything but the penalty holds the weights."""
    features, targets = problem()
    method = OutputPerturbation(l2=5.0, feature_norm=1.5)
    longest = torch.tensor([[1.5, 0.0, 0.0]], dtype=torch.float64)
    plain = fitted(features, targets, method)
    one, other = (
        fitted(torch.cat([features, row]), torch.cat([targets, torch.tensor([0])]), method)
        for row in (longest, -longest)
    )
    bound = math.sqrt(2) * 1.5 / (40 * 5)
    assert method.minimum_shift_bound(RECORDS) == pytest.approx(bound)
    assert bound / 2 < float((one - plain).norm()) <= bound * (1 + 2 * INEXACT)
    assert bound < float((one - other).norm()) <= bound * (2 + 2 * INEXACT)


def test_features_are_cut_and_broken_ones_say_nothing() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [math.inf, 1.0], [math.nan, 1.0], [1e308, 1e308]])
    kept = clip_rows(rows.double(), 1.0)
    assert torch.allclose(kept[:3], torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]).double(), atol=1e-7)
    assert not kept[3:].any()


@pytest.mark.parametrize(("adjacency", "moved"), [(ADD, 1.0), (REPLACE, 2.0)])
def test_it_costs_one_gaussian_of_the_neighbours_sensitivity(
    compose_priced: Compose, adjacency: Adjacency, moved: float
) -> None:
    event = Everyone(batch_size=RECORDS, adjacency=adjacency).event_per_period(records=RECORDS, noise_multiplier=3.0)
    assert are_same_events(event, output_perturbation(noise_std=3.0, sensitivity=moved + 0.002, adjacency=adjacency))
    line = [*LINE, "steps=1", "trainer.l2=1", "privacy.noise_multiplier=3", f"privacy.adjacency={adjacency}"]
    plan = compose_priced([*line, "score.noise_std=50"]).plan
    ((leaf, count),) = mechanisms_with_counts(plan.trials[0].event.training)
    assert (leaf.noise_multiplier, leaf.adjacency, count) == (pytest.approx(3 / (moved + 0.002)), adjacency, 1)
    exact, rounded = (Rdp().epsilon(one, 1e-5, adjacency) for one in (event, plan.trials[0].event.training))
    assert exact < rounded < exact * (1 + 1e-6)


def test_what_is_released_is_the_minimum_and_noise_of_the_declared_size() -> None:
    """Many times the same fit: the mean is the minimum, the deviation is noise_multiplier * moved_by."""
    features, targets = problem()
    records = Records(features=features.float(), labels=targets)
    run = Run(
        trainer=METHOD,
        sampler=Everyone(batch_size=RECORDS, adjacency=ADD),
        schedule=Constant(),
        noise_multiplier=0.5,
        steps=1,
        train_records=RECORDS,
    )
    model, found = build_model_with_seeded_weights(lambda: logistic((3,), 3), 1), []
    for time in range(60):
        streams = reproducible_streams(1, str(time))
        outcome = fit_by_output_perturbation(run, model, records, streams, Unrecorded(), "cpu")
        found.append(model[1].weight.detach().double().clone())
    assert are_same_events(outcome.event, run.event)
    assert (outcome.steps, outcome.stopped, outcome.batch_sizes.mean) == (1, False, RECORDS)
    assert not model[1].bias.any()
    noise = torch.stack(found) - fitted(clip_rows(features.float().double(), 1.5), targets)
    std, count = 0.5 * METHOD.minimum_shift_bound(RECORDS), noise.numel()
    assert float(noise.std()) == pytest.approx(std, rel=5 / np.sqrt(2 * count))
    assert abs(float(noise.mean())) < 5 * std / np.sqrt(count)


def test_a_model_with_a_hidden_layer_is_never_fitted() -> None:
    with pytest.raises(ValueError, match="to be one linear layer"):
        convex._require_only_linear_layer(build_model_with_seeded_weights(lambda: one_hidden((3,), 3, width=2), 1))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["trainer.l2=1", "steps=2"], "Expected steps=2 to be 1 and lr_schedule=constant"),
        (["model=one_hidden"], "Expected model=logistic and loss=cross_entropy with trainer=output_perturbation"),
        (["dataset=regression"], "Expected model=logistic and loss=cross_entropy with trainer=output_perturbation"),
        (["loss.class_weights=[1,1,1,1,1,1,1,1,1,2]"], "Expected loss.class_weights to be null"),
        (["ema=0.9"], "output perturbation has no steps"),
        (["checkpoint.every=1"], "output perturbation has no steps"),
        (["subsample=shared"], "Expected shared subsamples to be sampler=poisson's"),
        (["trainer.l2=0"], "Expected l2=0 > 0"),
    ],
)
def test_what_it_is_not_made_for_is_refused(compose_priced: Compose, overrides: list[str], sentence: str) -> None:
    with pytest.raises(BadInput) as refusal:
        compose_priced([*LINE, *overrides])
    assert sentence in str(refusal.value)


def test_a_declaration_says_who_takes_part(compose_priced: Compose) -> None:
    declared = declaration_from_config(compose_priced([*LINE]).plan.trials[0].config)
    assert isinstance(declared.sampler, Everyone)
    assert declared.sampler.draw_batch_indices(2, 3, 3, np.random.default_rng(0))[0].tolist() == [0, 1, 2, 0, 1, 2]
