from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest
from dp_accounting import dp_event as theirs
from dp_accounting.dp_event import LaplaceDpEvent, SelfComposedDpEvent

from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events import types
from dpsweep.accounting.events.build import (
    DpEvent,
    are_same_events,
    as_epoch,
    as_gaussian_step,
    compose,
    from_json,
    gaussian,
    leaves_with_counts,
    no_access,
    noise_multiplier_of_perturbed_output,
    noisy_count,
    non_private,
    number_of_steps,
    output_perturbation,
    poisson_gaussian,
    repeat,
    shuffled_gaussian,
    to_json,
    truncated_poisson_gaussian,
    without_replacement_gaussian,
)
from dpsweep.accounting.events.dp_accounting_events import from_dp_accounting
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Stopping
from dpsweep.accounting.guarantee import Adjacency
from tests.accounting.library_events import to_dp_accounting

STEP = poisson_gaussian(sample_rate=0.02, noise_multiplier=1.2)
OTHER = gaussian(noise_multiplier=0.1 + 0.2)


def test_flattening_multiplies_nested_repetition_and_merges_equal_leaves() -> None:
    nested = compose([repeat(compose([STEP, repeat(STEP, 2)]), 5), OTHER, repeat(repeat(STEP, 3), 7), no_access()])
    assert dict(leaves_with_counts(nested)) == {STEP: 5 * 3 + 21, OTHER: 1}


def test_the_same_mechanisms_are_the_same_however_nested() -> None:
    assert are_same_events(repeat(STEP, 6), compose([STEP, repeat(repeat(STEP, 5), 1)]))
    assert not are_same_events(repeat(STEP, 6), repeat(STEP, 5))
    assert not are_same_events(repeat(STEP, 6), repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=1.3), 6))
    assert are_same_events(compose([STEP, OTHER]), compose([OTHER, STEP]))


@pytest.mark.parametrize(
    "event",
    [STEP, OTHER, no_access(), non_private(), repeat(STEP, 5), compose([repeat(STEP, 3), OTHER])],
    ids=repr,
)
def test_the_json_form_is_exact(event: DpEvent) -> None:
    assert from_json(to_json(event)) == event


def test_the_json_form_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="version=2"):
        from_json(to_json(STEP) | {"version": 2})
    with pytest.raises(ValueError, match="MagicDpEvent"):
        from_json({"version": 1, "event": {"type": "MagicDpEvent"}})
    with pytest.raises(UnsupportedEvent, match="LaplaceDpEvent, which is no event of dpsweep"):
        to_json(LaplaceDpEvent(noise_multiplier=1.0))


@pytest.mark.parametrize(
    "event",
    [
        STEP,
        repeat(compose([repeat(STEP, 3), OTHER, no_access(), non_private()]), 2),
        without_replacement_gaussian(batch_size=2, records=9, noise_multiplier=1.5),
        truncated_poisson_gaussian(sample_rate=0.1, noise_multiplier=1.0, records=99, largest_batch=20),
    ],
    ids=lambda event: type(event).__name__,
)
def test_events_of_dp_accounting_are_ours(event: DpEvent) -> None:
    assert from_dp_accounting(to_dp_accounting(event)) == event


def test_an_event_of_dp_accounting_without_a_counterpart_is_refused() -> None:
    with pytest.raises(UnsupportedEvent, match="Expected LaplaceDpEvent to be one of ComposedDpEvent"):
        from_dp_accounting(SelfComposedDpEvent(event=LaplaceDpEvent(noise_multiplier=1.0), count=3))


@pytest.mark.parametrize(
    ("event", "refusal"),
    [
        (theirs.GaussianDpEvent(math.nan), "noise_multiplier=nan to be finite"),
        (theirs.GaussianDpEvent(-1.0), "noise_multiplier=-1.0 >= 0"),
        (theirs.GaussianDpEvent(math.inf), "noise_multiplier=inf to be finite"),
        (theirs.SelfComposedDpEvent(theirs.GaussianDpEvent(1.0), -3), "count=-3 >= 0"),
        (theirs.PoissonSampledDpEvent(1.5, theirs.GaussianDpEvent(1.0)), "sampling_probability=1.5 <= 1"),
        (theirs.PoissonSampledDpEvent(math.nan, theirs.GaussianDpEvent(1.0)), "sampling_probability=nan to be finite"),
        (theirs.SampledWithoutReplacementDpEvent(9, 10, theirs.GaussianDpEvent(1.0)), "sample_size=10 <= 9 records"),
        (theirs.TruncatedSubsampledGaussianDpEvent(9, 0.1, 0, 1.0), "truncated_batch_size=0 >= 1"),
        (theirs.ComposedDpEvent([theirs.GaussianDpEvent(1.0), theirs.GaussianDpEvent(math.nan)]), "nan to be finite"),
    ],
    ids=str,
)
def test_an_event_of_dp_accounting_that_no_mechanism_has_is_refused(event: Any, refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal):
        from_dp_accounting(event)


STOP = Stopping(gamma=0.5, limit=40)


@pytest.mark.parametrize(
    ("build", "refusal"),
    [
        (lambda: types.GaussianDpEvent(math.nan), "noise_multiplier=nan to be finite"),
        (lambda: types.GaussianDpEvent(True), "noise_multiplier=True to be a number"),
        (lambda: types.GaussianDpEvent("1.0"), "noise_multiplier='1.0' to be a number"),
        (lambda: types.StatedGaussianDpEvent(-1.0), "noise_multiplier=-1.0 >= 0"),
        (lambda: types.StatedGaussianDpEvent(1.0, "sideways"), "adjacency='sideways' to be Adjacency"),
        (lambda: types.SelfComposedDpEvent(STEP, -3), "count=-3 >= 0"),
        (lambda: types.SelfComposedDpEvent(STEP, 2.0), "count=2.0 to be an integer"),
        (lambda: types.SelfComposedDpEvent(3, 2), "event to be an event, got builtins.int"),
        (lambda: types.ComposedDpEvent((STEP, None)), "events to be an event"),
        (lambda: types.WorstDpEvent(()), "to be at least one"),
        (lambda: types.MixtureDpEvent((STEP,), (0,)), "counts=0 >= 1"),
        (lambda: types.MixtureDpEvent((STEP,), (1, 1)), "a count >= 1 for each of 1 events"),
        (lambda: types.PoissonSampledDpEvent(1.5, STEP), "sampling_probability=1.5 <= 1"),
        (lambda: types.SampledWithoutReplacementDpEvent(9, 10, STEP), "sample_size=10 <= 9 records"),
        (lambda: types.TruncatedSubsampledGaussianDpEvent(9, 0.1, 0, 1.0), "truncated_batch_size=0 >= 1"),
        (lambda: types.EpochDpEvent(0, 1.0), "steps=0 >= 1"),
        (lambda: types.RandomAllocationDpEvent(3, math.inf), "noise_multiplier=inf to be finite"),
        (lambda: types.NoisyMaxDpEvent(math.nan), "noise_scale=nan to be finite"),
        (lambda: types.BlackBoxDpEvent(math.nan, 0.1, Adjacency.REPLACE_ONE), "epsilon=nan >= 0"),
        (lambda: types.BlackBoxDpEvent(1.0, 1.0, Adjacency.REPLACE_ONE), "delta=1.0 < 1"),
        (lambda: types.SelectionDpEvent(STEP, STOP), "to be NegativeBinomial or Poisson or EachPoint"),
        (lambda: types.SelectionDpEvent(STEP, NegativeBinomial(eta=1.0, gamma=0.5), 0), "limit=0 >= 1"),
        (lambda: types.ThresholdDpEvent(STEP, NegativeBinomial(eta=1.0, gamma=0.5)), "to be Stopping"),
        (lambda: types.RandomStoppingDpEvent(STEP, STOP, 1e-13), "with probability delta2=1e-13 at most"),
    ],
)
def test_an_event_that_no_mechanism_has_cannot_be_built(build: Callable[[], object], refusal: str) -> None:
    with pytest.raises((ValueError, TypeError), match=refusal):
        build()


def checks_in(annotation: Any) -> list[Any]:
    own = [extra for extra in getattr(annotation, "__metadata__", ()) if callable(extra)]
    return own or [check for inner in get_args(annotation) for check in checks_in(inner)]


def test_every_field_of_an_event_is_checked() -> None:
    """A field that was forgotten could hold a number that no mechanism has, and be priced too low."""
    kinds = [kind for kind in vars(types).values() if isinstance(kind, type) and issubclass(kind, types.DpEvent)]
    assert len(kinds) > 15
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        assert all(checks_in(hints[field.name]) for field in dataclasses.fields(kind)), kind


@pytest.mark.parametrize("count", [2.5, True, "3"])
def test_a_count_of_dp_accounting_is_an_integer(count: Any) -> None:
    with pytest.raises(TypeError, match="Expected count"):
        from_dp_accounting(theirs.SelfComposedDpEvent(theirs.GaussianDpEvent(1.0), count))


@pytest.mark.parametrize("sample_rate", [0.0, -0.1, 1.1, float("nan")])
def test_a_sample_rate_is_a_probability(sample_rate: float) -> None:
    with pytest.raises(ValueError, match="sampling_probability="):
        poisson_gaussian(sample_rate=sample_rate, noise_multiplier=1.0)


@pytest.mark.parametrize("noise_multiplier", [-1.0, float("nan"), float("inf")])
def test_noise_is_finite_and_not_negative(noise_multiplier: float) -> None:
    with pytest.raises(ValueError, match="Expected noise_multiplier"):
        gaussian(noise_multiplier=noise_multiplier)


def test_counts_are_whole() -> None:
    with pytest.raises(ValueError, match="Expected count=-1"):
        repeat(STEP, -1)
    with pytest.raises(TypeError, match=r"Expected count=1\.5"):
        repeat(STEP, 1.5)  # type: ignore[arg-type]


def test_epochs_and_finished_models_are_told_from_steps() -> None:
    epoch, model = (
        shuffled_gaussian(epochs=1, steps=7, noise_multiplier=2.0),
        output_perturbation(noise_std=3.0, sensitivity=2.0, adjacency=Adjacency.REPLACE_ONE),
    )
    ((leaf, _),) = leaves_with_counts(epoch)
    assert as_epoch(leaf) == (7, 2.0)
    assert as_epoch(gaussian(noise_multiplier=2.0)) is as_epoch(model) is None
    assert [number_of_steps(event) for event in (repeat(epoch, 3), repeat(STEP, 5), model)] == [21, 5, 1]
    assert noise_multiplier_of_perturbed_output(model) is not None
    assert [noise_multiplier_of_perturbed_output(event) for event in (leaf, STEP, noisy_count(noise_std=1.0))] == [
        None
    ] * 3


def test_leaves_are_read_as_gaussian_steps_or_not_at_all() -> None:
    assert as_gaussian_step(STEP) == (0.02, 1.2)
    assert as_gaussian_step(OTHER) == (1.0, 0.1 + 0.2)
    assert as_gaussian_step(non_private()) == (1.0, 0.0)
    assert as_gaussian_step(repeat(STEP, 2)) is None
    assert as_gaussian_step(LaplaceDpEvent(noise_multiplier=1.0)) is None
