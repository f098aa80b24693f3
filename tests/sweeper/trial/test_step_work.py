"""The work of a step and the threads that follow from it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from dpsweep.sweeper.timing.step_timing import time_training_steps_of_shapes
from dpsweep.sweeper.timing.time_estimate import Shape
from dpsweep.sweeper.trial.step_work import LARGE, flops_of_training_step, most_threads_for_large_steps_else_one
from tests.sweeper.search_programs import GRID, Compose


class Scale(nn.Module):
    """A layer whose work is not known."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.scale


def test_every_product_counts_twice_and_the_backward_pass_as_two_forward_passes() -> None:
    model = nn.Sequential(nn.Conv2d(2, 5, 3), nn.GroupNorm(1, 5), nn.Flatten(), nn.Linear(5 * 4 * 6, 7))
    products = 5 * 4 * 6 * 2 * 3 * 3 + 5 * 4 * 6 * 7
    assert flops_of_training_step(model, torch.zeros(1, 2, 6, 8)) == 6 * products
    assert flops_of_training_step(model, torch.zeros(3, 2, 6, 8)) == 6 * 3 * products


def test_the_work_of_an_unknown_layer_is_unknown() -> None:
    assert flops_of_training_step(nn.Sequential(nn.Linear(2, 3), Scale()), torch.zeros(1, 2)) == math.inf


@pytest.mark.parametrize(
    ("works", "threads"), [([LARGE / 2, LARGE / 3], 1), ([1.0, LARGE], 4), ([math.inf], 4), ([], 4)]
)
def test_small_steps_have_one_thread(works: Sequence[float], threads: int) -> None:
    assert most_threads_for_large_steps_else_one(works, 4) == threads


@pytest.mark.parametrize(
    ("model", "given", "threads"),
    [
        (("model=logistic",), None, 1),
        (("model=mlp", "model.widths=[2000]"), None, 2),
        (("model=logistic",), 2, 2),
        (("model=mlp", "model.widths=[2000]"), 1, 1),
    ],
)
def test_a_job_has_the_threads_that_its_steps_are_worth_or_the_user_gave(
    compose_priced: Compose, model: tuple[str, ...], given: int | None, threads: int
) -> None:
    config = compose_priced([*GRID, *model]).plan.trials[0].config
    before = torch.get_num_threads()
    try:
        times = time_training_steps_of_shapes([Shape(config=config, points=2)], "cpu", given, most=2)
        assert (times.threads, torch.get_num_threads()) == (threads, threads)
        assert len(times.costs) == 1
    finally:
        torch.set_num_threads(before)
