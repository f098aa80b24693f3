"""Refuses models in which per-example gradients do not exist, or which would use randomness that is not the
trial's.

Clipping bounds a record's influence only if example i's loss depends on example i alone. Layers known to
break that are refused by name. Everything else is probed with random inputs, never with data: changing or
differentiating by one example must leave the others' outputs as they are, and a pass, in training or in
evaluation, must change neither the model's parameters and buffers nor torch's global generator. Words cannot be
differentiated by; they are changed alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from dpsweep.trainers.models.checks.probe_inputs import draw_probes

_PROBES = 3
_COMPANY_SCALES = (1.0, 10.0, 100.0)
_SEED = 20160701
_TOLERANCE = 1e-9
_ALONE = "to treat every example on its own"


def refuse_mixing(model: nn.Module, example_shape: tuple[int, ...]) -> None:
    """Raises ValueError unless `model` treats each example of a batch on its own, in training and in evaluation.

    The model and torch's global generator are left as they were.
    """
    refuse_by_name(model)
    twin = _twin(model)
    state, before = torch.get_rng_state(), _copies(twin)
    try:
        for mode in (True, False):
            _probe(twin.train(mode), example_shape)
        _require(torch.equal(state, torch.get_rng_state()), model, "to draw nothing from torch's global generator")
    finally:
        torch.set_rng_state(state)
    after = _copies(twin)
    unchanged = before.keys() == after.keys() and all(torch.equal(after[name], old) for name, old in before.items())
    _require(unchanged, model, "to keep no statistics of its inputs")


def _copies(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers as they are now, also those that no state_dict holds."""
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach().clone() for name, tensor in named}


def refuse_by_name(model: nn.Module) -> None:
    """Raises ValueError for layers known to mix examples or to draw from torch's global generator."""
    for name, module in model.named_modules():
        _refuse_layer(name or "model", module)


def _refuse_layer(name: str, module: nn.Module) -> None:
    kind = type(module).__name__
    if isinstance(module, _BatchNorm) or (isinstance(module, _InstanceNorm) and module.track_running_stats):
        raise ValueError(f"Expected {name}={kind} {_ALONE}; use GroupNorm.")
    dropping = isinstance(module, (_DropoutNd, nn.RReLU)) and getattr(module, "p", 1.0) > 0
    if dropping or (isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and module.dropout > 0):
        raise ValueError(f"Expected {name}={kind} to draw nothing from torch's global generator; leave dropout out.")
    for key, parameter in module._parameters.items():
        if parameter is not None and is_lazy(parameter):
            raise ValueError(f"Expected {name}={kind} to be made with the shape of its {key}.")


def _probe(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Each example must neither influence nor notice its company, whatever the company is."""
    generator = torch.Generator().manual_seed(_SEED)
    batch = draw_probes(model, generator, _PROBES, *shape)
    outputs = _outputs(model, batch.requires_grad_(batch.is_floating_point()))
    if outputs.ndim != 2 or len(outputs) != _PROBES:
        raise ValueError(f"Expected outputs.shape={list(outputs.shape)} == [{_PROBES}, classes].")
    weights = _noise(generator, *outputs.shape)
    for row in range(_PROBES) if batch.requires_grad else ():
        _require(_only(row, (outputs[row] * weights[row]).sum(), batch), model, _ALONE)
    with torch.no_grad():
        for others in _companies(model, generator, _PROBES, *shape):
            others[0] = batch[0]
            alike = torch.allclose(outputs[0], model(others)[0], rtol=_TOLERANCE, atol=_TOLERANCE)
            _require(alike, model, _ALONE)


def _twin(model: nn.Module) -> nn.Module:
    """A copy of the model in float64, in training mode."""
    try:
        return copy.deepcopy(model).to("cpu", torch.float64).train()
    except Exception as error:  # the user's own code may raise anything
        kind = type(model).__name__
        raise ValueError(f"Expected model={kind} to be one that copy.deepcopy takes: {told(error)}.") from error


def _outputs(model: nn.Module, batch: Tensor) -> Tensor:
    """What the model says of a batch."""
    try:
        outputs: Tensor = model(batch)
    except Exception as error:  # the user's own code may raise anything
        raise ValueError(
            f"Expected model={type(model).__name__} to take random float64 inputs of shape={list(batch.shape)}: "
            f"{told(error)}."
        ) from error
    if not isinstance(outputs, Tensor):
        raise ValueError(f"Expected model={type(model).__name__} to give a tensor, got {type(outputs).__name__}.")
    return outputs


def told(error: Exception) -> str:
    """An error of the user's code in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")


def _companies(model: nn.Module, generator: torch.Generator, *shape: int) -> Iterator[Tensor]:
    """Examples of several sizes and both signs; of words, which have neither, as many."""
    for scale in _COMPANY_SCALES:
        company = draw_probes(model, generator, *shape)
        yield from (scale * company, -scale * company) if company.is_floating_point() else (company,)


def _noise(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _only(row: int, output: Tensor, batch: Tensor) -> bool:
    """Whether the derivative of one example's output by every other example's input is exactly zero."""
    (gradient,) = torch.autograd.grad(output, batch, retain_graph=True, materialize_grads=True)
    gradient[row] = 0
    return not gradient.any()


def _require(holds: bool, model: nn.Module, condition: str) -> None:
    if not holds:
        raise ValueError(f"Expected model={type(model).__name__} {condition}.")
