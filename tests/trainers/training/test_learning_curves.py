"""Learning curves: what is looked at, when, and that looking changes nothing; a resumed run keeps its own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.ledger.permit import Receipt, StepLog
from dpsweep.accounting.records.plan import Trial
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.split import Split
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.named_methods import DpSgd
from dpsweep.trainers.methods.transforms import LENGTH_SHARE, Clip, GradientTransform, Normalize, Unbounded
from dpsweep.trainers.models.fully_connected import one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training.checkpoint import TrialJournal, read_checkpoint
from dpsweep.trainers.training.gradient_sums import EngineSums, StackedSums
from dpsweep.trainers.training.learning_curves import CurvePoint, CurveRecorder, measure_curve_point
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Outcome, Run
from tests.places import both
from tests.trainers.single_run import train

SHAPE, CLASSES = (4,), 3
RUN = Run(
    trainer=DpSgd(lr=0.5, clip_norm=1.0),
    sampler=Poisson(batch_size=10),
    schedule=Constant(),
    noise_multiplier=1.0,
    steps=7,
    train_records=30,
)


def some_records(seed: int, count: int) -> Records:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return Records(features=torch.randn(count, *SHAPE, generator=generator), labels=labels)


TRAIN, TEST = some_records(1, 30), some_records(2, 12)


def fresh() -> nn.Module:
    return build_model_with_seeded_weights(lambda: one_hidden(SHAPE, CLASSES, width=3), 4)


def flat(model: nn.Module) -> Tensor:
    return parameters_to_vector(model.parameters()).detach().clone()


def seen(model: nn.Module, *, public: bool, transform: GradientTransform = RUN.trainer.transform) -> CurvePoint:
    data = Split(train=TRAIN, test=TEST)
    return measure_curve_point(model, transform, data=data, public=public, engine=Opacus(), device="cpu")


def mean_loss(model: nn.Module, records: Records) -> object:
    return pytest.approx(float(cross_entropy(model(records.features), records.labels).detach()), rel=1e-6)


def weights_seen(every: int) -> CurveRecorder:
    """Looks at nothing but the first weight."""
    return CurveRecorder(every=every, look=lambda model, _: {"weight": float(flat(model)[0])})


def test_a_look_is_by_public_records_alone_and_by_training_records_only_if_they_are() -> None:
    model = fresh()
    found = seen(model, public=False)
    outputs = model(TEST.features)
    assert set(found) == {"test_accuracy", "test_loss"}
    assert found["test_accuracy"] == pytest.approx(float((outputs.argmax(dim=1) == TEST.labels).double().mean()))
    assert found["test_loss"] == mean_loss(model, TEST)
    more = seen(model, public=True)
    assert more["training_loss"] == mean_loss(model, TRAIN)
    assert dict(found).items() <= dict(more).items()


@pytest.mark.parametrize(
    ("transform", "factor"),
    [
        (Clip(clip_norm=0.4), lambda norm: min(1.0, LENGTH_SHARE * 0.4 / norm)),
        (Normalize(regularizer=0.1), lambda norm: LENGTH_SHARE / (norm + 0.1)),
        (Unbounded(), lambda norm: 1.0),
    ],
)
def test_what_bounds_gradients_is_seen_record_by_record_of_public_data(
    transform: GradientTransform, factor: Callable[[float], float]
) -> None:
    model, norms = fresh(), []
    for record, label in zip(TRAIN.features, TRAIN.labels, strict=True):
        loss = cross_entropy(model(record[None]), label[None])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norms.append(float(torch.cat([gradient.flatten() for gradient in gradients]).norm()))
    found = seen(model, public=True, transform=transform)
    assert found["mean_factor"] == pytest.approx(sum(map(factor, norms)) / len(norms), rel=1e-4)
    assert found["shortened"] == pytest.approx(sum(factor(norm) < 1 - 2e-3 for norm in norms) / len(norms))
    for share in (10, 50, 90):
        assert found[f"gradient_norm_q{share}"] == pytest.approx(float(np.percentile(norms, share)), rel=1e-4)


def test_long_data_are_looked_at_by_their_first_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsweep.trainers.training.learning_curves.MOST", 5)
    found = seen(fresh(), public=False)
    assert found["test_loss"] == mean_loss(fresh(), Records(features=TEST.features[:5], labels=TEST.labels[:5]))


def test_what_is_not_finite_is_none_which_json_can_hold() -> None:
    model = fresh()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(math.inf)
    found = seen(model, public=False)
    assert found["test_loss"] is None
    json.dumps(found, allow_nan=False)


def alone(run: Run, watch: CurveRecorder | None) -> tuple[Tensor, Outcome]:
    model = fresh()
    return flat_after(
        model, train(run, model, Opacus(), TRAIN, reproducible_streams(1, "a"), device="cpu", watch=watch)
    )


def stacked(run: Run, watch: CurveRecorder | None) -> tuple[Tensor, Outcome]:
    models = [fresh(), fresh()]
    sums = StackedSums(stack=Stack.from_model(models[0]), records=TRAIN, device="cpu")
    return beside(run, models, sums, watch)


def one_after_another(run: Run, watch: CurveRecorder | None) -> tuple[Tensor, Outcome]:
    models = [fresh(), fresh()]
    return beside(
        run, models, EngineSums(models=models, engine=Opacus(), records=TRAIN, device="cpu", chunk=None), watch
    )


def beside(run: Run, models: list[nn.Module], sums: object, watch: CurveRecorder | None) -> tuple[Tensor, Outcome]:
    streams = [reproducible_streams(1, name) for name in "ab"]
    first, _ = train_together([run, run], models, sums, TRAIN, streams, device="cpu", watch=watch)  # type: ignore[arg-type]
    return flat_after(models[0], first)


def flat_after(model: nn.Module, outcome: Outcome) -> tuple[Tensor, Outcome]:
    return flat(model), outcome


@pytest.mark.parametrize("way", [alone, stacked, one_after_another])
def test_looking_changes_nothing_and_sees_the_weights_of_its_step(
    way: Callable[[Run, CurveRecorder | None], tuple[Tensor, Outcome]],
) -> None:
    plain, silent = way(RUN, None)
    watched, outcome = way(RUN, weights_seen(3))
    assert torch.equal(plain, watched)
    assert silent.curve == ()
    assert [point["step"] for point in outcome.curve] == [3, 6, 7]
    for point in outcome.curve:
        shorter, _ = way(replace(RUN, steps=int(point["step"] or 0)), None)
        assert point["weight"] == float(shorter[0])


def test_a_run_that_diverged_is_not_looked_at() -> None:
    run = replace(RUN, trainer=DpSgd(lr=1e38, clip_norm=1e30))
    _, outcome = alone(run, weights_seen(1))
    assert outcome.diverged
    assert len(outcome.curve) == outcome.steps - 1


def test_a_resumed_run_keeps_its_curve_and_looks_at_no_step_twice(tmp_path: Path) -> None:
    trial = Trial(method="dpsgd", axes={}, config={}, event=PlanEvent(training=RUN.event))
    paper = Receipt(account="a", plan="p", trial=trial.id, attempt=1, charge="c", entries=1, head="h")
    looks: list[float] = []

    def session(resume: int, stop_after: int) -> Outcome:
        receipt = replace(paper, resume=resume)
        receipt.write(tmp_path)
        steps = (
            StepLog.resume(both(tmp_path), trial, receipt)
            if resume
            else StepLog(place=both(tmp_path), attempt=1, priced=trial.priced_steps)
        )
        done: list[int] = []

        def seen(model: nn.Module, _: GradientTransform) -> CurvePoint:
            looks.append(float(flat(model)[0]))
            return {"weight": looks[-1]}

        return train(
            RUN,
            fresh(),
            Opacus(),
            TRAIN,
            reproducible_streams(1, "one"),
            device="cpu",
            journal=TrialJournal(receipt=receipt, run=RUN, every=None, steps=steps),
            since=read_checkpoint(steps, RUN, "cpu") if resume else None,
            on_step=done.append,
            should_stop=lambda: bool(done) and done[-1] == stop_after,
            watch=CurveRecorder(every=2, look=seen),
        )

    first = session(0, stop_after=4)
    assert (first.stopped, [point["step"] for point in first.curve]) == (True, [2, 4])
    last = session(1, stop_after=RUN.steps + 1)
    assert [point["step"] for point in last.curve] == [2, 4, 6, 7]
    assert [point["weight"] for point in last.curve] == looks
    assert last.curve[:2] == first.curve
