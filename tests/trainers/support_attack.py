"""An attack on the floating-point form of noise: which values a noisy sum takes tells whether a record was there.

numpy's float32 normal numbers are, but for seven in a thousand, multiples of one of 256 steps by whole numbers of 23
bits: near 0 they are few, and most float32 numbers there are none of them. Where all other records' gradients are 0, as
those of pixels that are black in every image, a noisy sum without the record is such a multiple times the noise's
standard deviation; with it, hardly ever. One step from known weights gives the noisy sum away.
Source: Mironov 2012; the steps are those of Doornik 2005 with 256 layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.named_methods import DpSgd
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import Streams
from dpsweep.trainers.training.gradient_sums import StackedSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run

SHAPE, CLASSES, BATCH, SIGMA = (1, 28, 28), 10, 16, 8.0
ROWS = 21
BLACK = ROWS * 28
SMALL, CLOSE = 2.0**-10, 1.01 * 2.0**-24
_R, _AREA, _MANTISSA = 3.6541528853610088, 0.00492867323399, 2.0**23


def steps_of_float32_noise() -> NDArray[np.float64]:
    """The 256 numbers whose multiples numpy's float32 normal numbers are."""
    widths = [_R]
    while len(widths) < 255:
        widths.append(math.sqrt(-2 * math.log(_AREA / widths[-1] + math.exp(-(widths[-1] ** 2) / 2))))
    widths.append(_AREA / math.exp(-(_R**2) / 2))
    return np.array(widths, dtype=np.float32).astype(np.float64) / _MANTISSA


def on_support(noise: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of these small numbers [n] float32 noise takes."""
    whole = noise[:, None] / steps_of_float32_noise()
    return (np.abs(whole - np.rint(whole)) <= CLOSE * np.abs(whole)).any(axis=1)


def looks_absent(noisy: NDArray[np.float64]) -> bool:
    """The attacker's guess from noisy sums, in standard deviations, where the others' gradients are 0."""
    return bool(on_support(noisy[np.abs(noisy) < SMALL]).all())


def records(*, present: bool) -> Records:
    """Images whose upper three quarters are black, but for that of the record in question."""
    generator = torch.Generator().manual_seed(2)
    features = torch.rand(BATCH, *SHAPE, generator=generator)
    features[: BATCH - present, :, :ROWS] = 0
    return Records(features=features[: BATCH - 1 + present], labels=torch.arange(BATCH - 1 + present) % CLASSES)


@dataclass(frozen=True)
class Release:
    """The models of many runs of one step on everybody, each with noise of its own, from streams by the run's name."""

    lr: float
    present: bool
    times: int
    streams: Callable[[str], Streams]

    def noisy_sums(self) -> NDArray[np.float64]:
        """What each run's final weights say of its noisy sum [times, BLACK * CLASSES], in standard deviations."""
        run = Run(
            trainer=DpSgd(lr=self.lr, clip_norm=1.0),
            sampler=Poisson(batch_size=BATCH),
            schedule=Constant(),
            noise_multiplier=SIGMA,
            steps=1,
            train_records=BATCH,
        )
        models = [build_model_with_seeded_weights(lambda: logistic(SHAPE, CLASSES), 1) for _ in range(self.times)]
        for model in models:
            torch.nn.init.zeros_(model[1].weight)
        data = records(present=self.present)
        sums = StackedSums(stack=Stack.from_model(models[0]), records=data, device="cpu")
        streams = [self.streams(f"{self.present} {place}") for place in range(self.times)]
        train_together([run] * self.times, models, sums, data, streams, device="cpu")
        return np.stack([read(model[1].weight, self.lr) for model in models])


def read(weights: Tensor, lr: float) -> NDArray[np.float64]:
    """Exact: the weights were 0, and learning rate, batch and noise are powers of two."""
    moved = -weights.detach().double().numpy()[:, :BLACK].reshape(-1)
    return moved * (BATCH / lr / SIGMA)


def right_guesses(lr: float, times: int, streams: Callable[[str], Streams]) -> int:
    """How often, of 2 * times releases of which half have the record, the attacker says whether it was there."""
    absent, present = (
        [looks_absent(noisy) for noisy in Release(lr, there, times, streams).noisy_sums()] for there in (False, True)
    )
    return sum(absent) + times - sum(present)
