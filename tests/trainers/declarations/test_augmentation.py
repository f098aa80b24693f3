"""Copies of images: which there are, what their mean gradient may do to a sum, and where there are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.trial.blocks import most_stacked_points
from dpsweep.trainers.data.records import Records, Units
from dpsweep.trainers.declarations.augmentation import ShiftFlip
from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.methods.transforms import LENGTH_SHARE, Clip
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.gradient_sums import EngineSums

LINE = ("dataset=digits", "trainer=dpsgd", "accountant=rdp", "accountant.witnesses=[]")
Compose = Callable[[Sequence[str]], PricedPlan]


def rng() -> np.random.Generator:
    return np.random.Generator(np.random.Philox(7))


def test_copies_are_all_shifts_and_mirrors_alike() -> None:
    """Of a 3 x 4 image by one pixel: nine places, each as it is and mirrored."""
    images = torch.arange(24, dtype=torch.float32).view(2, 1, 3, 4)
    copies = ShiftFlip(multiplicity=9000, pixels=1).augmented_copies(images, rng())
    assert copies.shape == (18_000, 1, 3, 4)
    for image, own in zip(images, copies.split(9000), strict=True):
        padded = np.pad(image[0].numpy(), 1, mode="reflect")
        places = [padded[row : row + 3, column : column + 4] for row in range(3) for column in range(3)]
        known = {place.tobytes() for plain in places for place in (plain, plain[:, ::-1].copy())}
        kinds, counts = np.unique([copy.numpy().tobytes() for copy in own], return_counts=True)
        assert set(kinds.tolist()) == known
        assert len(known) == 18
        assert ((counts - 500) ** 2 / 500).sum() < 17 + 6 * np.sqrt(2 * 17)


def test_channels_move_together_and_an_empty_batch_stays_empty() -> None:
    image = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(1)).expand(2, 3, 8, 8)
    copies = ShiftFlip(multiplicity=5, pixels=4).augmented_copies(image, rng())
    assert torch.equal(copies[:, 0], copies[:, 2])
    assert ShiftFlip(multiplicity=5, pixels=4).augmented_copies(image[:0], rng()).shape == (0, 3, 8, 8)


@dataclass(frozen=True)
class Opposites:
    """Two copies of every example: itself, and a large one of the other sign."""

    multiplicity: int = 2

    def check_shape(self, shape: Sequence[int]) -> None:
        """Any."""

    def augmented_copies(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        return torch.stack([inputs, -100 * inputs], dim=1).flatten(0, 1)


@pytest.mark.parametrize("owners", [None, [0, 1, 1, 2, 0]])
def test_the_mean_gradient_of_all_copies_is_bounded_once(owners: list[int] | None) -> None:
    """By hand in float64: of each unit's examples and their copies the mean, and that cut to 0.1."""
    generator = torch.Generator().manual_seed(3)
    units = None if owners is None else Units(names=(b"a", b"b", b"c"), of=np.array(owners))
    labels = torch.tensor([0, 1, 2, 1, 0])
    records = Records(features=torch.randn(5, 1, 3, 3, generator=generator), labels=labels, units=units)
    model = build_model_with_seeded_weights(lambda: logistic((1, 3, 3), 3), 1)
    sums = EngineSums(
        models=[model],
        engine=Auto(),
        records=records,
        device="cpu",
        chunk=3,
        augmentation=Opposites(),
        draws=[rng()],
    )
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()[None].clone()
    count = records.number_of_units
    batch = Batch(units=np.arange(count), sizes=np.array([count]), common=True, places=count, most=count)
    found = sums.over([0], [Clip(clip_norm=0.1)])(weights, batch)
    twin = build_model_with_seeded_weights(lambda: logistic((1, 3, 3), 3), 1).double()
    expected = torch.zeros(weights.shape[1], dtype=torch.float64)
    for unit in range(count):
        own = [record for record in range(5) if (owners or range(5))[record] == unit]
        rows = [
            gradient(twin, scale * records.features[[record]].double(), labels[[record]])
            for record in own
            for scale in (1, -100)
        ]
        mean = torch.stack(rows).mean(dim=0)
        expected += mean * min(1.0, LENGTH_SHARE * 0.1 / float(mean.norm()))
    assert torch.allclose(found[0].double(), expected, rtol=1e-4, atol=1e-5)
    assert float(found.norm()) <= 0.1 * count


def gradient(model: nn.Module, inputs: Tensor, label: Tensor) -> Tensor:
    parts = torch.autograd.grad(cross_entropy(model(inputs), label), list(model.parameters()))
    return torch.cat([part.flatten() for part in parts])


def test_no_augmentation_leaves_no_trace_and_one_is_trained_by_itself(compose_priced: Compose) -> None:
    plain, none, some = (
        compose_priced([*LINE, *more]).plan for more in ((), ("augmentation=none",), ("augmentation=shift_flip",))
    )
    assert plain.id == none.id != some.id
    assert plain.event == some.event, "it costs nothing"
    assert [most_stacked_points(plan.trials[0].config) > 0 for plan in (plain, some)] == [True, False]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["augmentation.pixels=8"], "Expected dataset.shape=[1, 8, 8] to be (channels, height, width)"),
        (["engine=fused"], "Expected engine=fused to be auto or opacus if a unit has several examples."),
        (["dataset=regression", "loss=squared_error", "model=linear"], "to be (channels, height, width)"),
        (["augmentation.multiplicity=0"], "Expected multiplicity=0 >= 1"),
    ],
)
def test_what_cannot_be_augmented_is_refused(compose_priced: Compose, overrides: list[str], sentence: str) -> None:
    with pytest.raises(BadInput) as refusal:
        compose_priced([*LINE, "augmentation=shift_flip", *overrides])
    assert sentence in str(refusal.value)
