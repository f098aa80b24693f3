"""Before a model is taken, its gradients are compared with torch's own, where a difference would show."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from dpsweep.trainers.engines.fused import Fused, check_recording_returning_stored_size
from dpsweep.trainers.engines.interface import Minibatch, Task, Unsupported
from dpsweep.trainers.methods.transforms import Clip

ALONE = "model=Borrower to use its parameters in its layers alone"


class Borrower(nn.Module):
    """Uses the first layer's weight a second time, past that layer."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale, self.first, self.last = scale, nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, values: Tensor) -> Tensor:
        return self.last((self.first(values).tanh() + values @ self.first.weight) * self.scale)


class ReadTwice(nn.Module):
    """Looks its words up a second time, past the layer; both leave out the padding."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(6, 4, padding_idx=0), nn.Linear(4, 3)

    def forward(self, words: Tensor) -> Tensor:
        again = embedding(words, self.table.weight, padding_idx=0)
        return self.last((self.table(words) + again).mean(dim=1))


class Moody(nn.Module):
    """Does twice as much in training."""

    def forward(self, values: Tensor) -> Tensor:
        return values * (2 if self.training else 1)


class Root(nn.Module):
    """Undefined where torch's random numbers are negative."""

    def forward(self, values: Tensor) -> Tensor:
        return values.sqrt()


def test_what_a_layer_is_used_for_shows_also_where_the_weights_after_it_start_at_zero() -> None:
    model = Borrower()
    nn.init.zeros_(model.last.weight)
    with pytest.raises(Unsupported, match=ALONE):
        check_recording_returning_stored_size(model, torch.ones(2, 4))


def test_it_shows_also_where_the_model_is_sure_of_its_class() -> None:
    model = Borrower()
    with torch.no_grad():
        model.last.bias += torch.tensor([1000.0, 0.0, 0.0])
    with pytest.raises(Unsupported, match=ALONE):
        check_recording_returning_stored_size(model, torch.ones(2, 4))


def test_it_shows_also_in_a_layer_whose_gradient_is_small_beside_the_others() -> None:
    model = Borrower(scale=1e-9)
    with pytest.raises(Unsupported, match=ALONE):
        check_recording_returning_stored_size(model, torch.ones(2, 4))


def test_words_are_probed_with_words_that_the_table_has_and_not_with_padding_alone() -> None:
    with pytest.raises(Unsupported, match="model=ReadTwice to use its parameters in its layers alone"):
        check_recording_returning_stored_size(ReadTwice(), torch.zeros(2, 5, dtype=torch.int64))


def test_a_layer_that_is_trained_only_later_is_looked_at_then() -> None:
    model, engine = Borrower(), Fused()
    batch = Minibatch(torch.ones(2, 4), torch.zeros(2, dtype=torch.int64))
    task = Task(transform=Clip(clip_norm=1.0))
    model.first.weight.requires_grad_(False)
    total, _ = engine.bounded_gradient_sum_and_norms(model, batch, task)
    assert bool(total.isfinite().all())
    model.first.weight.requires_grad_(True)
    with pytest.raises(Unsupported, match=ALONE):
        engine.bounded_gradient_sum_and_norms(model, batch, task)


def test_a_model_that_is_no_number_on_random_examples_is_not_taken() -> None:
    model = nn.Sequential(nn.Linear(4, 3), Root())
    with pytest.raises(Unsupported, match="model=Sequential to use its parameters"):
        check_recording_returning_stored_size(model, torch.ones(2, 4))


class Picky(nn.Module):
    """Wants numbers that say which row of a table to read."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(torch.eye(4, dtype=values.dtype)[[("no", "yes").index(str(v)) for v in values[:, 0]]])


def test_a_model_that_random_examples_break_is_not_taken() -> None:
    with pytest.raises(Unsupported, match=r"model=Picky to run on random examples and under hooks \("):
        check_recording_returning_stored_size(Picky(), torch.ones(2, 4))


def test_a_model_is_tried_out_as_it_trains_whatever_its_mode() -> None:
    check_recording_returning_stored_size(nn.Sequential(nn.Linear(4, 3), Moody()).eval(), torch.ones(2, 4))


@pytest.mark.parametrize("threads", [1, 2])
def test_it_leaves_model_and_threads_as_they_were(threads) -> None:
    model, before = nn.Linear(4, 3).eval(), torch.get_num_threads()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    torch.set_num_threads(threads)
    try:
        check_recording_returning_stored_size(model, torch.ones(2, 4))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert not model.training
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
