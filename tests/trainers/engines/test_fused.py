"""What the fused engine takes, what it refuses by name, and that it is exact where it does not refuse."""

from __future__ import annotations

import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task, Unsupported
from dpsweep.trainers.methods.transforms import Clip, Normalize
from tests.exactness import CLASSES, Model, assert_exact, filled, noise, rows_alone
from tests.trainers.gradients import units_of_sizes


def test_embeddings_count_every_word_of_an_example_once() -> None:
    words = torch.tensor([[0, 1, 1, 4], [2, 2, 2, 2], [3, 0, 3, 1], [0, 0, 0, 0]])
    for padding in (None, 0):
        table = nn.Embedding(5, 6, padding_idx=padding)
        model = filled(
            nn.Sequential(table, nn.LayerNorm(6), nn.Linear(6, 4), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3))
        )
        for transform in (Clip(clip_norm=0.3), Clip(clip_norm=100.0)):
            assert_exact(model, words, transform, 3)


def test_branches_may_share_an_activation() -> None:
    model = Model(
        lambda self, x: self.out((h := self.a(x).tanh()) * self.b(h) + self.c(h) + h),
        a=nn.Linear(4, 5), b=nn.Linear(5, 5), c=nn.Linear(5, 5, bias=False), out=nn.Linear(5, 3),
    )  # fmt: skip
    assert_exact(filled(model), noise(6, 4), Clip(clip_norm=0.5), 4)


def test_layers_may_be_partly_frozen() -> None:
    model = filled(nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 3)))
    for frozen in (model[0].weight, model[1].bias, model[3].weight, model[4].bias):
        frozen.requires_grad_(False)
    assert_exact(model, noise(5, 4), Clip(clip_norm=0.5))
    assert not model[0].weight.requires_grad
    assert model[4].weight.requires_grad


normalizations = st.sampled_from(["none", "group", "layer"])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    widths=st.lists(st.tuples(st.sampled_from([2, 4, 6]), st.booleans(), normalizations), max_size=3),
    examples=st.integers(1, 7),
    chunk=st.integers(1, 8),
    features=st.integers(1, 5),
    clip_norm=st.sampled_from([1e-3, 0.7, 1e3]),
)
def test_random_perceptrons_are_exact(widths, examples, chunk, features, clip_norm) -> None:
    layers: list[nn.Module] = []
    before = features
    for width, bias, normalization in widths:
        layers += [nn.Linear(before, width, bias=bias), nn.Tanh()]
        layers += {"none": [], "group": [nn.GroupNorm(2, width)], "layer": [nn.LayerNorm(width)]}[normalization]
        before = width
    model = filled(nn.Sequential(*layers, nn.Linear(before, CLASSES)))
    assert_exact(model, noise(examples, features), Clip(clip_norm=clip_norm), chunk)


KINDS = {"linear": lambda: nn.Linear(4, 4), "group": lambda: nn.GroupNorm(2, 4), "layer": lambda: nn.LayerNorm(4)}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    nodes=st.lists(
        st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 9), st.integers(0, 9), st.booleans()),
        min_size=1,
        max_size=5,
    ),
    examples=st.integers(1, 5),
    chunk=st.integers(1, 6),
    clip_norm=st.sampled_from([1e-3, 0.7, 1e3]),
)
def test_random_graphs_with_shared_activations_are_exact(nodes, examples, chunk, clip_norm) -> None:
    """Each layer reads any value computed before; its output is added to another, or multiplied by it."""

    def forward(self: nn.Module, values: Tensor) -> Tensor:
        known = [values]
        for number, (_, source, other, product) in enumerate(nodes):
            found = getattr(self, f"layer{number}")(known[source % len(known)])
            beside = known[other % len(known)]
            known.append((found * beside if product else found + beside).tanh())
        return self.head(sum(known[1:]))

    layers = {f"layer{number}": KINDS[node[0]]() for number, node in enumerate(nodes)}
    model = filled(Model(forward, **layers, head=nn.Linear(4, CLASSES)))
    assert_exact(model, noise(examples, 4), Clip(clip_norm=clip_norm), chunk)


@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e100])
def test_tiny_and_huge_gradients_are_exact(scale) -> None:
    model = filled(nn.Sequential(nn.Linear(4, CLASSES)))
    with torch.no_grad():
        model[0].weight /= scale
    for transform in (Clip(clip_norm=0.5), Normalize(regularizer=0.1)):
        assert_exact(model, noise(5, 4) * scale, transform, 2)


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, CLASSES))
    model[1].weight = model[0].weight
    return model


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, CLASSES))
    model[0].register_forward_hook(lambda module, arguments, output: 2 * output)
    return model


class Own(nn.Linear):
    """A subclass, which does something else with its weight."""

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(values) + values @ self.weight.square().t()


def test_a_subclass_of_a_layer_with_a_rule_is_what_its_own_forward_says() -> None:
    assert_exact(filled(nn.Sequential(Own(4, CLASSES))), noise(5, 4), Clip(clip_norm=0.5), 2)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (tied(), "1=Linear to share no parameter"),
        (hooked(), "0=Linear to have no hooks"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), "to be called with tensors of one row for each"),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True)), "1=ReLU to overwrite nothing"),
        (nn.Embedding(4, 3, max_norm=1.0), "model=Embedding to have max_norm=None"),
        (nn.Embedding(4, 3, scale_grad_by_freq=True), "model=Embedding to have .* scale_grad_by_freq=False"),
        (nn.EmbeddingBag(4, 3, max_norm=1.0), "model=EmbeddingBag to have max_norm=None"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_a_look_at_the_model_rules_out_is_refused_by_name(model, message) -> None:
    with pytest.raises(Unsupported, match=rf"Expected .*{message}"):
        Fused().bounded_gradient_sum_and_norms(
            model, Minibatch(torch.ones(2, 4), torch.zeros(2, dtype=torch.int64)), Task(transform=Clip(clip_norm=1.0))
        )


def linears(function) -> nn.Module:
    return filled(Model(function, a=nn.Linear(4, 4), b=nn.Linear(4, CLASSES)))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda self, x: self.b(self.a(self.a(x))), "a=Linear to be called once in a pass;"),
        (lambda self, x: self.b(x), "a=Linear to be called once in a pass, and the loss to depend on it"),
        (lambda self, x: self.b(x + 0 * self.a(x).detach()), "a=Linear to be called once in a pass, and the loss"),
        (
            lambda self, x: self.b(checkpoint(lambda h: self.a(h).tanh(), x, use_reentrant=False)),
            "a=Linear to be called once in a pass;",
        ),
        (lambda self, x: self.b(self.a(x[:, None].repeat(1, 2, 1).flatten(0, 1))[::2]), "a=Linear to be .* one row"),
        (lambda self, x: self.b(self.a(x.flip(0)).flip(0)), "model=Model to use its parameters in its layers alone"),
        (lambda self, x: self.b(self.a(x) + x @ self.a.weight), "model=Model to use its parameters in its layers"),
        (lambda self, x: self.b(self.a(x).tanh_()), "model=Model to run on random examples and under hooks"),
        (
            lambda self, x: self.b((h := x.clone()) + self.a(h) + h.mul_(2)),
            "a=Linear to have inputs that are not overwritten",
        ),
    ],
    ids=[
        "twice",
        "never",
        "cut off",
        "recomputed",
        "unfolded",
        "reordered",
        "borrowed",
        "in place",
        "changed",
    ],
)
def test_what_only_a_pass_shows_is_refused_too(function, message) -> None:
    model, inputs, targets = linears(function), noise(5, 4), torch.arange(5) % CLASSES
    with pytest.raises(Unsupported, match=message):
        Fused().bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets), Task(transform=Clip(clip_norm=1.0)))
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("positions", "message"), [(3, "model=Model to use its parameters"), (5, "a=Linear to be .* one")]
)
def test_positions_are_not_taken_for_examples_also_where_there_are_as_many(positions, message) -> None:
    model = linears(lambda self, x: self.b(self.a(x.transpose(0, 1)).tanh().mean(dim=0)))
    with pytest.raises(Unsupported, match=message):
        Fused().bounded_gradient_sum_and_norms(
            model,
            Minibatch(noise(positions, positions, 4), torch.zeros(positions).long()),
            Task(transform=Clip(clip_norm=1)),
        )


@pytest.mark.parametrize("chunk", [1, None])
@pytest.mark.parametrize("sizes", [(2, 1), (1, 1, 1)])
def test_units_of_several_examples_are_refused_whatever_is_drawn(chunk, sizes) -> None:
    """An engine that took units of one record would be changed by the first patient with two."""
    model = filled(nn.Sequential(nn.Linear(4, CLASSES)))
    with pytest.raises(Unsupported, match=r"^Expected model=Sequential to be trained on units of one example each;"):
        Fused().bounded_gradient_sum_and_norms(
            model,
            units_of_sizes(noise(3, 4), torch.zeros(3, dtype=torch.int64), sizes),
            Task(transform=Clip(clip_norm=1.0), chunk=chunk),
        )


@pytest.mark.parametrize("drawn", [(), (1, 1, 1), (2, 1)])
def test_auto_chooses_the_engine_of_units_by_what_is_declared_alone(caplog, drawn) -> None:
    with caplog.at_level("INFO", logger="dpsweep.engine"):
        Auto().bounded_gradient_sum_and_norms(
            filled(nn.Sequential(nn.Linear(4, CLASSES))),
            units_of_sizes(noise(sum(drawn), 4), torch.zeros(sum(drawn), dtype=torch.int64), drawn),
            Task(transform=Clip(clip_norm=1.0)),
        )
    assert [record.message.split(":")[0] for record in caplog.records] == ["engine opacus"]


def test_auto_takes_what_fused_refuses_and_says_which_runs(caplog) -> None:
    engine = Auto()
    inputs, targets, transform = noise(5, 4), torch.arange(5) % CLASSES, Clip(clip_norm=0.5)
    for function, said in (
        (lambda self, x: self.b(self.a(x).tanh()), "engine fused"),
        (lambda self, x: self.b(self.a(self.a(x).tanh())), "engine opacus: Expected a=Linear to be called once"),
    ):
        model = linears(function)
        rows = rows_alone(model, inputs, targets)
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="dpsweep"):
            for _ in range(2):
                total, norms = engine.bounded_gradient_sum_and_norms(
                    model, Minibatch(inputs, targets), Task(transform=transform, chunk=2)
                )
        assert torch.allclose(norms, rows.norm(dim=1))
        assert torch.allclose(total, transform.factors(rows.norm(dim=1)) @ rows)
        (message,) = [record.getMessage() for record in caplog.records]
        assert message.startswith(said)


def test_layers_that_torch_func_runs_again_are_named_in_the_log(caplog) -> None:
    with caplog.at_level(logging.INFO, logger="dpsweep"):
        for model in (nn.Sequential(nn.Linear(4, 3)), nn.Sequential(nn.Linear(4, 4), nn.PReLU(), Own(4, 3))):
            batch = Minibatch(noise(2, 4), torch.zeros(2, dtype=torch.int64))
            for _ in range(2):
                Fused().bounded_gradient_sum_and_norms(model.double(), batch, Task(transform=Clip(clip_norm=1.0)))
    said = [record.getMessage() for record in caplog.records]
    assert said == ["engine fused: torch.func runs these layers a second time, which is slower: 1=PReLU, 2=Own"] * 2


def test_engines_are_values() -> None:
    assert Auto() == Auto()
    assert Fused() == Fused()
    assert hash(Fused()) == hash(Fused())
    used = Fused()
    used.bounded_gradient_sum_and_norms(
        nn.Linear(4, 3),
        Minibatch(torch.ones(1, 4), torch.zeros(1, dtype=torch.int64)),
        Task(transform=Clip(clip_norm=1.0)),
    )
    assert used == Fused()
    assert repr(used) == "Fused(precision='float32')"


def test_the_inputs_are_left_as_they_are_also_beside_a_broken_example() -> None:
    model, inputs = filled(nn.Sequential(nn.Linear(4, CLASSES))), noise(5, 4)
    inputs[2, 1] = torch.nan
    before = inputs.clone()
    Fused().bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, torch.zeros(5, dtype=torch.int64)), Task(transform=Clip(clip_norm=1.0))
    )
    assert torch.equal(inputs.nan_to_num(99.0), before.nan_to_num(99.0))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    power=st.floats(-44, 38),
    offset=st.floats(0, 110),
    bound=st.sampled_from([1e-19, 1e-6, 1.0, 1e6]),
    normalize=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_bound_is_strict_in_float32_from_subnormal_to_overflowing_gradients(
    power, offset, bound, normalize, seed
) -> None:
    """`offset` saturates the softmax, so that output gradients shrink to nothing while inputs are huge."""
    model = filled(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, CLASSES)), seed).float()
    with torch.no_grad():
        model[2].bias[0] += offset
    inputs = (noise(1, 6, seed=seed) * 10.0**power).float()
    transform = Normalize(regularizer=bound) if normalize else Clip(clip_norm=bound)
    for only_last in (False, True):
        net = model[2] if only_last else model
        values = inputs[:, :4] if only_last else inputs
        total, norms = Fused().bounded_gradient_sum_and_norms(
            net, Minibatch(values, torch.zeros(1, dtype=torch.int64)), Task(transform=transform)
        )
        assert float(total.double().norm()) <= transform.norm_bound
        assert not total.any() or bool(norms.isfinite().all())


@pytest.mark.parametrize("ratio", [0.55, 0.6, 0.75, 0.9])
def test_the_bound_is_strict_where_a_subnormal_output_gradient_meets_a_huge_input(ratio) -> None:
    """A factor times a subnormal number may round up to twice what it is, and the input makes it large again."""
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([103.0, 0.0]))
    inputs, target = torch.full((1, 4), 1e38), torch.zeros(1, dtype=torch.int64)
    _, norms = Fused().bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, target), Task(transform=Clip(clip_norm=1.0))
    )
    assert 0 < float(norms) < 1e-6
    transform = Clip(clip_norm=ratio * float(norms))
    total, _ = Fused().bounded_gradient_sum_and_norms(model, Minibatch(inputs, target), Task(transform=transform))
    assert float(total.double().norm()) <= transform.norm_bound
