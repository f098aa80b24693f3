"""Output perturbation: fits a strongly convex model to a certified distance from its minimum, then adds noise."""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpsweep.trainers.data.records import Records
from dpsweep.trainers.methods.output_perturbation import INEXACT, OutputPerturbation
from dpsweep.trainers.randomness import Streams, add_gaussian_noise_on_lattice
from dpsweep.trainers.training.run import BatchSizes, Journal, Outcome, Run

_ROUNDS, _SEARCH = 20, "strong_wolfe"


def fit_by_output_perturbation(
    run: Run, model: nn.Module, records: Records, streams: Streams, journal: Journal, device: str
) -> Outcome:
    """Trains `model` in place by output perturbation: one access to the records, marked in the journal beforehand."""
    method, started = run.trainer, perf_counter()
    if not isinstance(method, OutputPerturbation) or records.units is not None:
        raise ValueError("Expected output perturbation with units of one record each.")
    layer = _require_only_linear_layer(model.to(device))
    journal.mark_next_interval(run.steps)
    index = slice(0, len(records))
    features = clip_rows(records.inputs(index, device).flatten(1).double(), method.feature_norm)
    exact = minimise_loss(
        features, records.targets(index, device), layer.out_features, method, records=run.train_records
    )
    std = run.noise_multiplier * method.minimum_shift_bound(run.train_records)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(add_gaussian_noise_on_lattice(exact.cpu().numpy(), std, streams.noise)))
        if layer.bias is not None:
            layer.bias.zero_()
    return Outcome(
        event=run.event,
        numbers=layer.weight.numel(),
        steps=1,
        diverged=not bool(layer.weight.isfinite().all()),
        stopped=False,
        seconds=perf_counter() - started,
        batch_sizes=BatchSizes(smallest=len(records), mean=float(len(records)), largest=len(records)),
    )


def clip_rows(features: Tensor, norm: float) -> Tensor:
    """Rows [n, d] clipped to norm `norm`; rows that are not finite become zero."""
    lengths = torch.linalg.vector_norm(features, dim=1, keepdim=True)
    clipped = features * (norm / lengths).clamp(max=1)
    return torch.where(lengths.isfinite(), clipped, torch.zeros_like(clipped)).nan_to_num(nan=0.0)


def minimise_loss(
    features: Tensor, targets: Tensor, classes: int, method: OutputPerturbation, *, records: int
) -> Tensor:
    """Weights [classes, d] within a certified distance of INEXACT * moved_by from the minimum.

    The distance is at most the gradient's norm over l2. L-BFGS usually reaches it fast; otherwise gradient descent with
    step size 1 / smoothness always does.
    """
    weights = features.new_zeros(classes, features.shape[1]).requires_grad_()
    tolerance = method.l2 * INEXACT * method.minimum_shift_bound(records)

    def objective() -> Tensor:
        total = cross_entropy(features @ weights.t(), targets, reduction="sum")
        return total / records + method.l2 / 2 * weights.square().sum()

    def gradient() -> Tensor:
        return torch.autograd.grad(objective(), weights)[0]

    def closure() -> Tensor:
        weights.grad = gradient()
        return objective()

    solver = torch.optim.LBFGS([weights], max_iter=100, tolerance_grad=0, tolerance_change=0, line_search_fn=_SEARCH)
    for _ in range(_ROUNDS):
        if float(gradient().norm()) <= tolerance:
            return weights.detach()
        solver.step(closure)  # type: ignore[no-untyped-call]
    smoothness = len(features) / records * method.feature_norm**2 / 2 + method.l2
    while float((slope := gradient()).norm()) > tolerance:
        with torch.no_grad():
            weights -= slope / smoothness
    return weights.detach()


def _require_only_linear_layer(model: nn.Module) -> nn.Linear:
    layers = [module for module in model.modules() if not isinstance(module, (nn.Sequential, nn.Flatten))]
    if len(layers) != 1 or not isinstance(layers[0], nn.Linear):
        raise ValueError(f"Expected model={type(model).__name__} to be one linear layer.")
    return layers[0]
