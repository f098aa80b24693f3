"""Canaries that are records: they go through the model and the engine like every other record.

Inputs of different canaries have few numbers in common and labels are drawn at random, so that their gradients are
nearly orthogonal and nobody would predict the labels. The white-box score of a canary is the inner product of each
noisy step with the canary's own gradient at the weights before the step; the black-box score is by how much its loss
fell in the course of training.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, jvp

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.records import IGNORED, Records, Scaling
from dpsweep.trainers.data.units import Units
from dpsweep.trainers.declarations.losses import Loss

TIMES = 4.0
"""The norm of a canary's inputs, in mean norms of the inputs that it is put among, which are at least 1 here."""

FAR = 4.0
"""Standard deviations of the numbers that are predicted between their mean and the label of a canary."""

NAME = b"audit canary "


def as_inputs(records: Records) -> Records:
    """The same records, with features that are the model's inputs."""
    scaled = records.inputs(slice(None), records.features.device)
    return replace(records, features=scaled, scaling=Scaling(), stored=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordCanaries:
    """`records` [m] are the canaries, whose features are a model's inputs, as those of all records here."""

    records: Records

    @classmethod
    def among(
        cls, records: Records, count: int, classes: int, words: int | None, rng: np.random.Generator
    ) -> RecordCanaries:
        """So many canaries for these records, whose labels are below `classes`; numbers if there is one class.

        `words` is the size of the vocabulary if inputs are token numbers, else None.
        """
        features = _tokens(records, count, words, rng) if words is not None else _sparse(records, count, rng)
        return cls(records=Records(features=features, labels=_labels(records, features, count, classes, rng)))

    def inserted(self, records: Records, coins: NDArray[np.bool_], adjacency: Adjacency) -> Records:
        """The records with the canaries that are present.

        Where one is replaced, canary i takes the place of record i; where one is added, it comes after the others.
        """
        chosen = self.records.select(coins)
        if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
            if len(coins) > len(records):
                raise ValueError(f"Expected audit.records_canaries={len(coins)} <= {len(records)}, the records.")
            features, labels = records.features.clone(), records.labels.clone()
            places = torch.from_numpy(np.flatnonzero(coins))
            features[places], labels[places] = chosen.features, chosen.labels
            return replace(records, features=features, labels=labels, stored=None)
        return replace(
            records,
            features=torch.cat([records.features, chosen.features]),
            labels=torch.cat([records.labels, chosen.labels]),
            units=None if records.units is None else _with_more(records.units, np.flatnonzero(coins)),
            stored=None,
        )

    def losses(self, model: nn.Module, loss: Loss, device: torch.device | str) -> NDArray[np.float64]:
        """The loss of each canary [m] under the model."""
        inputs, targets = self._all(device)
        with torch.no_grad():
            outputs = model(inputs)
            values = [float(loss(outputs[i : i + 1], targets[i : i + 1])) for i in range(len(targets))]
        return np.array(values)

    def alignments(
        self, model: nn.Module, weights: Tensor, direction: Tensor, loss: Loss, device: torch.device | str
    ) -> Tensor:
        """The inner products [m] of a direction [P] with each canary's gradient at these weights [P].

        It is one pass in forward mode: the change of the outputs along the direction, times the loss's gradient.
        """
        inputs, targets = self._all(device)
        names, likes = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True)
        at, along = (_named(names, likes, vector) for vector in (weights, direction))

        def outputs(parameters: dict[str, Tensor]) -> Tensor:
            return cast(Tensor, functional_call(model, parameters, (inputs,)))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch, as it loads its forward mode
            values, change = jvp(outputs, (at,), (along,))[:2]
        products: Tensor = loss.gradient(values.detach(), targets) * change
        return products.detach().flatten(1).sum(dim=1).double().cpu()

    def _all(self, device: torch.device | str) -> tuple[Tensor, Tensor]:
        return self.records.inputs(slice(None), device), self.records.targets(slice(None), device)


@dataclass(kw_only=True, eq=False)
class Alignment:
    """An observer of a training: adds up the alignments of its noisy steps with each canary's gradient."""

    canaries: RecordCanaries
    model: nn.Module
    loss: Loss
    device: torch.device | str
    total: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.total = np.zeros(len(self.canaries.records))

    def __call__(self, weights: Tensor, gradient: Tensor, noise_std: float) -> None:
        """Adds the alignments of one step."""
        direction = gradient / (noise_std or 1.0)
        self.total += self.canaries.alignments(self.model, weights, direction, self.loss, self.device).numpy()


def _named(names: Sequence[str], likes: Sequence[nn.Parameter], vector: Tensor) -> dict[str, Tensor]:
    """The parts of a flat vector by the names of the parameters."""
    parts = torch.split(vector.detach(), [like.numel() for like in likes])
    return {name: part.view(like.shape) for name, like, part in zip(names, likes, parts, strict=True)}


def _sparse(records: Records, count: int, rng: np.random.Generator) -> Tensor:
    """Inputs that are 0 but for a few numbers, disjoint where they fit, and of a norm that stands out."""
    shape = tuple(records.features.shape[1:])
    size = int(np.prod(shape))
    each = max(1, size // count)
    norms = records.features.flatten(1).norm(dim=1)
    value = TIMES * max(1.0, float(norms.mean()) if len(norms) else 1.0) / each**0.5
    places = np.concatenate([rng.permutation(size) for _ in range(-(-count * each // size))])
    features = torch.zeros(count, size)
    for canary in range(count):
        features[canary, torch.from_numpy(places[canary * each : (canary + 1) * each])] = value
    return features.view(count, *shape)


def _tokens(records: Records, count: int, words: int, rng: np.random.Generator) -> Tensor:
    """Token numbers, each drawn at random."""
    drawn = rng.integers(0, words, (count, *records.features.shape[1:]))
    return torch.from_numpy(drawn).to(records.features.dtype)


def _labels(records: Records, features: Tensor, count: int, classes: int, rng: np.random.Generator) -> Tensor:
    """A label drawn at random for each canary: a class, the next tokens, or a number far from the others."""
    if records.labels.ndim > 1:
        labels = torch.full(features.shape, IGNORED, dtype=torch.int64)
        labels[:, :-1] = features[:, 1:].long()
        return labels
    if records.labels.dtype == torch.int64:
        return torch.from_numpy(rng.integers(0, classes, count))
    signs = torch.from_numpy(np.where(rng.random(count) < 0.5, -1.0, 1.0)).float()
    return records.labels.mean() + FAR * records.labels.std() * signs


def _with_more(units: Units, canaries: NDArray[np.int64]) -> Units:
    """The units, and one more for each canary."""
    names = (*units.names, *(NAME + str(canary).encode() for canary in canaries.tolist()))
    return Units(names=names, of=np.concatenate([units.of, len(units.names) + np.arange(len(canaries))]))
