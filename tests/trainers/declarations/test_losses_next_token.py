"""The loss of language models: its gradient, its quality, and that padding and other texts play no part in either."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from dpsweep.trainers.data.records import IGNORED, Records
from dpsweep.trainers.declarations import scores as score_counts
from dpsweep.trainers.declarations.losses import (
    CROSS_ENTROPY,
    NextToken,
    SquaredError,
    check_labels_fit_loss,
    target_shape,
)
from dpsweep.trainers.declarations.scores import PrivateHoldout, check_metric_fits_classes

WORDS, LENGTH = 5, 4
TARGETS = torch.tensor([[1, 4, 2, IGNORED], [0, IGNORED, IGNORED, IGNORED], [IGNORED] * 4])
LOSS = NextToken()


def outputs(seed: int = 1) -> Tensor:
    return torch.randn(len(TARGETS), WORDS, LENGTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_loss_is_the_mean_over_a_texts_own_next_tokens() -> None:
    logits = outputs()
    first = functional.cross_entropy(logits[0, :, :3].T, TARGETS[0, :3], reduction="mean")
    second = functional.cross_entropy(logits[1, :, :1].T, TARGETS[1, :1], reduction="mean")
    assert torch.allclose(LOSS(logits, TARGETS), first + second, rtol=1e-12)
    assert float(LOSS(logits[2:], TARGETS[2:])) == 0


def test_its_gradient_is_its_gradient() -> None:
    logits = outputs().requires_grad_()
    (expected,) = torch.autograd.grad(LOSS(logits, TARGETS), logits)
    gradient = LOSS.gradient(logits.detach(), TARGETS)
    assert torch.allclose(gradient, expected, rtol=1e-12, atol=1e-15)
    assert not gradient[0, :, 3].any()
    assert not gradient[2].any()
    one = LOSS.gradient(logits.detach(), TARGETS[0])
    assert torch.equal(one, LOSS.gradient(logits.detach(), TARGETS[:1].expand(3, LENGTH)))


def test_a_texts_quality_is_the_share_of_its_tokens_that_are_most_likely() -> None:
    logits = torch.zeros(3, WORDS, LENGTH)
    logits[0, 1, 0] = logits[0, 4, 1] = logits[0, 0, 2] = logits[1, 3, 0] = 1.0
    assert LOSS.quality(logits, TARGETS).tolist() == [pytest.approx(2 / 3), 0.0, 0.0]


@given(values=st.lists(st.floats(width=32), min_size=WORDS * 2, max_size=WORDS * 2), target=st.integers(-1, WORDS - 1))
def test_quality_is_never_outside_its_bounds(values: list[float], target: int) -> None:
    """The price of a private score rests on it."""
    quality = LOSS.quality(torch.tensor(values).view(1, WORDS, 2), torch.tensor([[target, IGNORED]]))
    assert quality.shape == (1,)
    assert 0 <= float(quality) <= 1
    if not all(map(math.isfinite, values[::2])):
        assert float(quality) == 0


def test_no_loss_of_unlikely_targets_is_flat() -> None:
    logits = outputs()
    assert bool((LOSS.gradient(logits, LOSS.unlikely_targets(logits)).norm(dim=1) > 0.01).all())


def test_targets_have_a_place_for_each_position() -> None:
    assert target_shape(LOSS, (7,)) == (7,)
    assert target_shape(CROSS_ENTROPY, (7,)) == target_shape(SquaredError(), (7,)) == ()
    with pytest.raises(ValueError, match=r"^Expected labels\.shape=\(3, 3\) == \(3,\)\.$"):
        Records(features=torch.zeros(3, LENGTH), labels=TARGETS[:, :3])


@pytest.mark.parametrize(
    ("loss", "sequences", "words"),
    [
        (CROSS_ENTROPY, True, r"^Expected loss=next_token with dataset\.name=notes: its records are token sequences"),
        (LOSS, False, r"^Expected dataset\.name=notes to have token sequences as records with loss=next_token"),
    ],
)
def test_a_data_set_of_the_other_kind_is_refused(loss: NextToken, sequences: bool, words: str) -> None:
    dataset = SimpleNamespace(name="notes", per_position=sequences, label_names=())
    with pytest.raises(ValueError, match=words):
        check_labels_fit_loss(loss, dataset)  # type: ignore[arg-type]
    check_labels_fit_loss(loss, SimpleNamespace(name="notes", per_position=not sequences, label_names=()))  # type: ignore[arg-type]


def test_metrics_of_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^Expected score\.metric=f1 to be accuracy with loss=next_token\.$"):
        check_metric_fits_classes(PrivateHoldout(fraction=0.1, metric="f1"), 2, LOSS)
    with pytest.raises(ValueError, match=r"^Expected dataset\.classes=1 >= 2 with loss=next_token\.$"):
        LOSS.check(1)


class Echo(nn.Module):
    """Says that the next token is the one that follows in the alphabet, except after the last."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.sizes.append(len(tokens))
        return functional.one_hot((tokens.long() + 1).clamp(max=WORDS - 1), WORDS).transpose(1, 2).float()


def records() -> Records:
    return Records(features=torch.tensor([[0, 1, 2, 3], [0, 2, 3, 0], [4, 0, 0, 0]]).float(), labels=LABELS)


LABELS = torch.tensor([[1, 2, 3, IGNORED], [2, 3, IGNORED, IGNORED], [IGNORED] * 4])


def test_a_text_adds_its_share_and_the_rest_to_the_pair_of_counts() -> None:
    counts = score_counts.count_right_and_wrong_units(Echo(), records(), "cpu", np.random.default_rng(0), LOSS)
    assert counts.tolist() == pytest.approx([1.5, 1.5])
    for left_out in range(3):
        others = records().select(np.array([row for row in range(3) if row != left_out]))
        rng = np.random.default_rng(0)
        difference = counts - score_counts.count_right_and_wrong_units(Echo(), others, "cpu", rng, LOSS)
        assert np.linalg.norm(difference) <= 1 + 1e-12


def test_many_outputs_are_scored_in_small_passes_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = score_counts.quality_per_record(Echo(), records(), "cpu", LOSS)
    monkeypatch.setattr(score_counts, "_FLOATS", 2 * WORDS * LENGTH)
    model = Echo()
    assert score_counts.quality_per_record(model, records(), "cpu", LOSS).tolist() == expected.tolist()
    assert set(model.sizes[1:]) == {2}, "after one blank record"
