"""Whether what is held of a model's layers are its gradients, example by example: tried out, not believed.

A look at the layers cannot tell that examples are rows in the same order everywhere in the model, nor that no parameter
is used past the layer that owns it. So three random examples, never data, are sent through a copy in float64, and each
one's gradient is compared with torch's own for this example alone, parameter by parameter. The copy's weights are moved
off where they are, and the targets are the least likely ones: where weights start at zero, or the loss is flat, a wrong
gradient would not show.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss
from dpsweep.trainers.engines.gradients.backward_hooks import recording
from dpsweep.trainers.engines.gradients.layer_gradients import DenseGradient, LayerGradient, joint_norms
from dpsweep.trainers.engines.gradients.parameters import in_places, trainable
from dpsweep.trainers.engines.gradients.supported_layers import Unsupported, supported_layers
from dpsweep.trainers.models.checks.probe_inputs import draw_probes

_PROBES = 3
_SEED = 20160701
_CLOSE = 1e-8
_NOISE = 1e-12


def prove(
    model: nn.Module, inputs: Tensor, layout: torch.memory_format = torch.contiguous_format, loss: Loss = CROSS_ENTROPY
) -> int:
    """Raises Unsupported unless examples' gradients are held as they are, for inputs of this shape and kind.

    Says how many numbers are held of each example because they cannot be left as factors: what memory goes to.
    """
    generator = torch.Generator().manual_seed(_SEED)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so little work in float64 waits for other threads longer than it takes
    try:
        twin = moved(copy.deepcopy(model).to("cpu", torch.float64).train(), generator)
        parameters = trainable(twin)
        kind = torch.float64 if inputs.is_floating_point() else inputs.dtype
        probes = draw_probes(twin, generator, _PROBES, *inputs.shape[1:], kind=kind).to(kind)
        with torch.no_grad():
            targets = loss.unlikely(twin(probes))
        with recording(twin, supported_layers(twin), layout) as tape:
            held = tape.play(probes, targets, loss)
        for ours, norm, theirs in _gradients(twin, parameters, held, probes, targets, loss):
            if not _same(parameters, ours, norm, theirs):
                raise Unsupported("", model, "to use its parameters in its layers alone, one row for each example")
        return sum(
            each.rows[0].numel() for each in held.values() if isinstance(each, DenseGradient) and each.rows.ndim > 2
        )
    except Unsupported:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as cause:
        told = (str(cause).splitlines() or [type(cause).__name__])[0]
        raise Unsupported("", model, f"to run on random examples and under hooks ({told})") from cause
    finally:
        torch.set_num_threads(threads)


def moved(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """The model with other weights, by as much as torch would draw them from."""
    with torch.no_grad():
        for parameter in trainable(model):
            limit = 1 / math.sqrt(parameter[0].numel() if parameter.ndim else 1)
            parameter.add_(torch.empty_like(parameter).uniform_(-limit, limit, generator=generator))
    return model


def _gradients(
    model: nn.Module,
    parameters: Sequence[nn.Parameter],
    held: Mapping[nn.Parameter, LayerGradient],
    probes: Tensor,
    targets: Tensor,
    loss: Loss,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Each example's gradient [P] from what is held of all, the norm said of it, and its gradient on its own."""
    norms = joint_norms(held.values())
    for row, factors in enumerate(torch.eye(_PROBES, dtype=torch.float64)):
        flat = torch.zeros(sum(parameter.numel() for parameter in parameters), dtype=torch.float64)
        places = in_places(parameters, flat)
        for parameter, each in held.items():
            each.add_to(places[parameter], factors)
        own = loss(model(probes[row : row + 1]), targets[row : row + 1])
        alone = torch.autograd.grad(own, list(parameters), materialize_grads=True)
        yield flat, norms[row], torch.cat([gradient.flatten() for gradient in alone])


def _same(parameters: Sequence[nn.Parameter], ours: Tensor, norm: Tensor, theirs: Tensor) -> bool:
    """Whether gradients agree for every parameter, up to rounding: its own, and noise from those of the others."""
    exact = theirs.norm()
    pairs = zip(in_places(parameters, ours).values(), in_places(parameters, theirs).values(), strict=True)
    noise = _NOISE * (1 + exact)
    agree = all((mine - alone).norm() <= _CLOSE * alone.norm() + noise for mine, alone in pairs)
    return agree and bool((norm - exact).abs() <= _CLOSE * exact + noise)
