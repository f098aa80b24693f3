"""Low-rank adapters: what they compute, what is trained, and that each text's gradient is bounded alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from dpsweep.trainers.declarations.adapters import Lora
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task, trainable_parameters
from dpsweep.trainers.methods.transforms import Clip, Normalize, Unbounded
from dpsweep.trainers.models.checks import require_separate_examples
from dpsweep.trainers.models.replaced_layers import LoraLinear, attach_adapters
from dpsweep.trainers.models.weights import construct_user_model
from tests.trainers.pretrained_folders import ARCHITECTURES, OTHERS

TARGETS = {"bert": ("query", "value"), "gpt2": ("c_attn",)}
LENGTH, CLASSES = 7, 3
KINDS = pytest.mark.parametrize("kind", TARGETS)


def adapted(kind: str, trained: str = "head", seed: int = 1) -> nn.Module:
    """A tiny encoder with adapters, all of whose weights are drawn; B is not zero, as after some steps."""
    pytest.importorskip("transformers", reason="pip install 'dpsweep[hf]'")
    from dpsweep.trainers.models.hugging_face import build_random_text_classifier

    settings = {"architecture": ARCHITECTURES[kind], "padding": 0, "trained": trained}
    model = construct_user_model(lambda: build_random_text_classifier((LENGTH,), CLASSES, **settings), "hf", seed)
    generator = torch.Generator().manual_seed(seed)
    if trained == "head":
        attach_adapters(model, Lora(rank=2, alpha=3.0, targets=TARGETS[kind]), generator)
        for module in model.modules():
            if isinstance(module, LoraLinear):
                nn.init.normal_(module.lora_B.weight, std=0.3, generator=generator)
    return model


def texts(examples: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(1, 14, (examples, LENGTH), generator=generator)
    tokens *= torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (examples, 1), generator=generator)
    return tokens, torch.randint(CLASSES, (examples,), generator=generator)


def torch_funcs(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Each text's gradient [n, P] by torch.func, one text after another."""
    frozen = {name: value for name, value in model.named_parameters() if not value.requires_grad}
    trained = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}

    def loss(weights: dict[str, Tensor], text: Tensor, target: Tensor) -> Tensor:
        return CROSS_ENTROPY(functional_call(model, (frozen | weights), (text[None],)), target[None])

    rows = [grad(loss)(trained, text, target) for text, target in zip(inputs, targets, strict=True)]
    return torch.stack([torch.cat([row[name].flatten() for name in trained]) for row in rows])


@KINDS
def test_the_fused_engine_gives_torch_funcs_gradients_example_by_example(kind: str) -> None:
    model = adapted(kind).double().train()
    inputs, targets = texts()
    expected = torch_funcs(model, inputs, targets)
    assert expected.norm(dim=1).min() > 1e-3
    for row in range(len(inputs)):
        alone = Minibatch(inputs[row : row + 1], targets[row : row + 1])
        total, norms = Fused().bounded_gradient_sum_and_norms(model, alone, Task(transform=Unbounded()))
        assert torch.allclose(total, expected[row], rtol=1e-9, atol=1e-12)
        assert torch.allclose(norms, expected[row].norm(), rtol=1e-9)
    total, norms = Fused().bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=Unbounded())
    )
    assert torch.allclose(norms, expected.norm(dim=1), rtol=1e-9)
    assert torch.allclose(total, expected.sum(dim=0), rtol=1e-9, atol=1e-12)


@KINDS
@pytest.mark.parametrize("transform", [Clip(clip_norm=0.05), Normalize(regularizer=0.01)], ids=["clip", "normalize"])
def test_no_text_contributes_more_than_the_bound(kind: str, transform: Clip | Normalize) -> None:
    model = adapted(kind)
    inputs, targets = texts(8)
    exact = torch_funcs(adapted(kind).double(), inputs, targets).norm(dim=1)
    for row in range(len(inputs)):
        alone = Minibatch(inputs[row : row + 1], targets[row : row + 1])
        total, norms = Fused().bounded_gradient_sum_and_norms(model, alone, Task(transform=transform))
        assert float(total.norm()) <= transform.norm_bound
        assert float(norms) >= float(exact[row]) * (1 - 1e-4)
    total, _ = Fused().bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=transform, chunk=3)
    )
    assert float(total.norm()) <= len(inputs) * transform.norm_bound


@KINDS
def test_only_adapters_and_the_head_are_trained(kind: str) -> None:
    model = adapted(kind)
    names = [name for name, value in model.named_parameters() if value.requires_grad]
    assert all(name.startswith("head.") or ".lora_" in name for name in names)
    assert sum(".lora_" in name for name in names) == 2 * 2 * len(TARGETS[kind])
    assert len(trainable_parameters(model)) == len(names)


@KINDS
def test_a_new_adapter_changes_nothing_and_draws_by_its_generator(kind: str) -> None:
    from dpsweep.trainers.models.hugging_face import build_random_text_classifier

    inputs, _ = texts()
    plain = construct_user_model(
        lambda: build_random_text_classifier((LENGTH,), CLASSES, architecture=ARCHITECTURES[kind], padding=0), "hf", 5
    )
    expected = plain(inputs)
    lora = Lora(rank=2, alpha=3.0, targets=TARGETS[kind])
    attach_adapters(plain, lora, torch.Generator().manual_seed(1))
    assert torch.equal(plain(inputs), expected)
    drawn = [module.lora_A.weight for module in plain.modules() if isinstance(module, LoraLinear)]
    assert all(0 < float(weight.detach().std()) < 1 for weight in drawn)
    assert not torch.equal(drawn[0], drawn[1])


def test_the_layer_is_the_formula() -> None:
    layer = LoraLinear(nn.Linear(4, 3).requires_grad_(False), 4, 3, rank=2, scale=1.5)
    layer.draw_initial_weights(torch.Generator().manual_seed(1))
    nn.init.normal_(layer.lora_B.weight, generator=torch.Generator().manual_seed(2))
    values = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(3))
    merged = layer.base_layer.weight + 1.5 * layer.lora_B.weight @ layer.lora_A.weight
    assert torch.allclose(layer(values), values @ merged.T + layer.base_layer.bias, atol=1e-6)


def test_any_model_with_frozen_layers_takes_adapters() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 5).requires_grad_(False), nn.Tanh(), nn.Linear(5, 2))
    attach_adapters(model, Lora(rank=1, alpha=1.0, targets=("1",)))
    assert isinstance(model[1], LoraLinear)
    require_separate_examples(model, (6,))


@KINDS
def test_texts_are_treated_alone_and_every_row_has_finite_outputs(kind: str) -> None:
    model = adapted(kind)
    require_separate_examples(model, (LENGTH,))
    outputs = model(torch.tensor([[0] * LENGTH, [99] * LENGTH, [-1] * LENGTH, [5] + [0] * (LENGTH - 1)]).float())
    assert outputs.isfinite().all()
    assert torch.equal(outputs[0], outputs[1])


def test_the_weights_of_an_encoder_can_be_trained() -> None:
    """Full fine-tuning of BERT through the fused engine."""
    model = adapted("bert", trained="encoder").double()
    inputs, targets = texts(3)
    _, norms = Fused().bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets), Task(transform=Unbounded()))
    assert torch.allclose(norms, torch_funcs(model, inputs, targets).norm(dim=1), rtol=1e-9)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_architectures_are_bounded_by_the_fused_engine(kind: str) -> None:
    pytest.importorskip("transformers", reason="pip install 'dpsweep[hf]'")
    from dpsweep.trainers.models.hugging_face import build_random_text_classifier

    padding = OTHERS[kind].get("pad_token_id", 0)
    model = construct_user_model(
        lambda: build_random_text_classifier((LENGTH,), CLASSES, architecture=OTHERS[kind], padding=padding), "hf", 1
    )
    names = ("query", "value", "q_proj", "v_proj", "q_lin", "v_lin")
    attach_adapters(model, Lora(rank=2, alpha=2.0, targets=names), torch.Generator().manual_seed(1))
    require_separate_examples(model, (LENGTH,))
    inputs, targets = texts()
    expected = torch_funcs(model, inputs + padding, targets)
    total, norms = Fused().bounded_gradient_sum_and_norms(
        model, Minibatch(inputs + padding, targets), Task(transform=Unbounded())
    )
    assert torch.allclose(norms, expected.norm(dim=1), rtol=1e-4)
    assert torch.allclose(total.float(), expected.sum(dim=0), rtol=1e-3, atol=1e-5)


def test_what_does_not_fit_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 5).requires_grad_(False), nn.Linear(5, 2))
    with pytest.raises(
        ValueError, match=r"^Expected adapter.targets=\[query\] to name a layer of the model; its linear layers: 1, 2.$"
    ):
        attach_adapters(model, Lora(rank=1, alpha=1.0, targets=("query",)))
    with pytest.raises(ValueError, match=r"^Expected 2 to be frozen with adapter=lora"):
        attach_adapters(model, Lora(rank=1, alpha=1.0, targets=("2",)))
    with pytest.raises(ValueError, match=r"its linear layers: none.$"):
        attach_adapters(nn.Flatten(), Lora(rank=1, alpha=1.0, targets=("query",)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rank": 0}, "Expected adapter.rank=0"),
        ({"rank": 2.5}, "Expected adapter.rank=2.5"),
        ({"alpha": 0.0}, "Expected adapter.alpha=0.0"),
        ({"targets": ()}, "Expected adapter.targets="),
        ({"targets": (3,)}, "Expected adapter.targets="),
    ],
)
def test_a_declaration_refuses_bad_numbers(settings: dict[str, object], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        Lora(**{"rank": 2, "alpha": 1.0, "targets": ("query",), **settings})
