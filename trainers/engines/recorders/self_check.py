"""A self-check of the fused engine: compares its per-example gradients of a model with torch's own.

The list of layers does not show whether examples are rows in the same order everywhere in the model, nor whether a
parameter is used outside its layer. So three random examples, never data, pass through a float64 copy of the model, and
each per-example gradient is compared with torch's own gradient of this example alone, parameter by parameter. The
copy's weights are perturbed and the targets are the least likely ones: with zero weights or a flat loss, a wrong
gradient could go unnoticed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss
from dpsweep.trainers.engines.gradients.layer_gradients import LayerGradient, joint_norms
from dpsweep.trainers.engines.gradients.parameters import in_places, trainable
from dpsweep.trainers.engines.gradients.single_examples import perturb
from dpsweep.trainers.engines.gradients.supported_layers import Unsupported
from dpsweep.trainers.engines.recorders.recorded_layers import recorded_layers
from dpsweep.trainers.engines.recorders.tape import recording
from dpsweep.trainers.models.checks.probe_inputs import draw_probes

_PROBES = 3
_SEED = 20160701
_CLOSE = 1e-8
_NOISE = 1e-12


def prove(
    model: nn.Module, inputs: Tensor, layout: torch.memory_format = torch.contiguous_format, loss: Loss = CROSS_ENTROPY
) -> int:
    """Raises Unsupported unless the recorded per-example gradients are correct, for inputs of this shape and dtype.

    Returns the number of gradient entries stored per example, which determines the memory; factored gradients are free.
    """
    generator = torch.Generator().manual_seed(_SEED)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for so small a computation, waiting for threads takes longer than the work
    try:
        twin = perturb(copy.deepcopy(model).to("cpu", torch.float64).train(), generator)
        parameters = trainable(twin)
        kind = torch.float64 if inputs.is_floating_point() else inputs.dtype
        probes = draw_probes(twin, generator, _PROBES, *inputs.shape[1:], kind=kind).to(kind)
        with torch.no_grad():
            targets = loss.unlikely(twin(probes))
        with recording(twin, recorded_layers(twin), layout) as tape:
            recorded = tape.play(probes, targets, loss)
        for ours, norm, theirs in _gradients(twin, parameters, recorded, probes, targets, loss):
            if not _same(parameters, ours, norm, theirs):
                raise Unsupported("", model, "to use its parameters in its layers alone, one row for each example")
        return sum(gradient.stored for gradient in recorded.values())
    except Unsupported:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as cause:
        reason = (str(cause).splitlines() or [type(cause).__name__])[0]
        raise Unsupported("", model, f"to run on random examples and under hooks ({reason})") from cause
    finally:
        torch.set_num_threads(threads)


def _gradients(
    model: nn.Module,
    parameters: Sequence[nn.Parameter],
    recorded: Mapping[nn.Parameter, LayerGradient],
    probes: Tensor,
    targets: Tensor,
    loss: Loss,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Each example's recorded gradient [P], its recorded norm, and torch's gradient of this example alone [P]."""
    norms = joint_norms(recorded.values())
    for row, factors in enumerate(torch.eye(_PROBES, dtype=torch.float64)):
        flat = torch.zeros(sum(parameter.numel() for parameter in parameters), dtype=torch.float64)
        places = in_places(parameters, flat)
        for parameter, gradient in recorded.items():
            gradient.add_to(places[parameter], factors)
        example_loss = loss(model(probes[row : row + 1]), targets[row : row + 1])
        gradients = torch.autograd.grad(example_loss, list(parameters), materialize_grads=True)
        yield flat, norms[row], torch.cat([gradient.flatten() for gradient in gradients])


def _same(parameters: Sequence[nn.Parameter], ours: Tensor, norm: Tensor, theirs: Tensor) -> bool:
    """Whether two gradients agree for every parameter, up to a relative error and rounding of the whole gradient."""
    exact = theirs.norm()
    pairs = zip(in_places(parameters, ours).values(), in_places(parameters, theirs).values(), strict=True)
    noise = _NOISE * (1 + exact)
    agree = all((part - expected).norm() <= _CLOSE * expected.norm() + noise for part, expected in pairs)
    return agree and bool((norm - exact).abs() <= _CLOSE * exact + noise)
