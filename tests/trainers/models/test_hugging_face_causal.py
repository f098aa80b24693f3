"""Causal language models: transformers' logits, torch.func's gradients text by text, and padding that plays no part."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn import functional

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.sweeper.planning.base_weights import config_with_base_weight_facts
from dpsweep.trainers.data.records import IGNORED, next_token_targets
from dpsweep.trainers.declarations.adapters import Lora
from dpsweep.trainers.declarations.losses import NextToken
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Engine, Minibatch, Task
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.vmap import Vmap
from dpsweep.trainers.methods.transforms import Clip, Normalize, Unbounded
from dpsweep.trainers.models.checks import require_output_shape, require_separate_examples
from dpsweep.trainers.models.replaced_layers import LoraLinear, attach_adapters, copy_with_merged_adapters
from dpsweep.trainers.models.weights import (
    WeightDelta,
    check_saved_weights_reload,
    construct_user_model,
    load_weights_into_model,
    save_model,
)
from tests.trainers.pretrained_folders import BERT, CAUSAL, OTHERS, UNTIED, causal_folder, pretrained_folder

LENGTH, WORDS = 7, 14
LOSS = NextToken()
CASES = [(True, "none"), (True, "decoder"), (False, "none"), (False, "head"), (False, "decoder")]
EACH = pytest.mark.parametrize(("tied", "trained"), CASES, ids=[f"{'tied' * t or 'untied'}-{w}" for t, w in CASES])


def made(tied: bool = True, trained: str = "none", seed: int = 1, length: int = LENGTH) -> nn.Module:
    """A tiny GPT-2 with drawn weights, and adapters where all else is frozen; B is not zero, as after some steps."""
    pytest.importorskip("transformers", reason="pip install 'dpsweep[hf]'")
    from dpsweep.trainers.models.hugging_face import build_random_causal_model

    settings: dict[str, Any] = {"architecture": CAUSAL if tied else UNTIED, "padding": 0, "trained": trained}
    model = construct_user_model(lambda: build_random_causal_model((length,), WORDS, **settings), "hf_causal", seed)
    generator = torch.Generator().manual_seed(seed)
    if trained == "none":
        attach_adapters(model, Lora(rank=2, alpha=3.0, targets=("c_attn",)), generator)
        for module in model.modules():
            if isinstance(module, LoraLinear):
                nn.init.normal_(module.lora_B.weight, std=0.3, generator=generator)
    return model


def texts(length: int = LENGTH) -> tuple[Tensor, Tensor]:
    """Texts of 7, 5, 2, 1 and 3 tokens, filled up with padding, and their next tokens."""
    tokens = torch.randint(1, WORDS, (5, LENGTH), generator=torch.Generator().manual_seed(4))
    tokens *= torch.arange(LENGTH) < torch.tensor([7, 5, 2, 1, 3])[:, None]
    tokens = functional.pad(tokens, (0, length - LENGTH))
    return tokens, torch.from_numpy(next_token_targets(tokens.numpy(), 0))


def torch_funcs(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Each text's gradient [n, P] by torch.func from transformers' own logits, one text without padding at a time."""
    frozen = {name: value for name, value in model.named_parameters() if not value.requires_grad}
    trained = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}

    def loss(weights: dict[str, Tensor], text: Tensor) -> Tensor:
        named = {name.removeprefix("network."): value for name, value in (frozen | weights).items()}
        logits = functional_call(model.network, named, (), {"input_ids": text[None]}).logits[0]
        return functional.cross_entropy(logits[:-1], text[1:]) if len(text) > 1 else 0 * logits.sum()

    lengths = ((targets != IGNORED).sum(dim=1) + 1).tolist()
    rows = [grad(loss)(trained, text[:length]) for text, length in zip(inputs, lengths, strict=True)]
    return torch.stack([torch.cat([row[name].flatten() for name in trained]) for row in rows])


@EACH
def test_the_fused_engine_gives_torch_funcs_gradients_text_by_text(tied: bool, trained: str) -> None:
    model = made(tied, trained).double().train()
    inputs, targets = texts()
    expected = torch_funcs(model, inputs, targets)
    assert expected.norm(dim=1)[[0, 1, 2, 4]].min() > 1e-3
    assert not expected[3].any(), "a text of one token has nothing to predict"
    for row in range(len(inputs)):
        alone = Minibatch(inputs[row : row + 1], targets[row : row + 1])
        total, norms = Fused().bounded_gradient_sum_and_norms(model, alone, Task(transform=Unbounded(), loss=LOSS))
        assert torch.allclose(total, expected[row], rtol=1e-9, atol=1e-12)
        assert torch.allclose(norms, expected[row].norm(), rtol=1e-9)
    total, norms = Fused().bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=Unbounded(), loss=LOSS)
    )
    assert torch.allclose(norms, expected.norm(dim=1), rtol=1e-9)
    assert torch.allclose(total, expected.sum(dim=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", [Vmap(), Opacus()], ids=["vmap", "opacus"])
def test_the_other_engines_give_the_same(engine: Engine) -> None:
    model = made().double().train()
    inputs, targets = texts()
    expected = torch_funcs(model, inputs, targets)
    total, norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=Unbounded(), loss=LOSS)
    )
    assert torch.allclose(norms, expected.norm(dim=1), rtol=1e-9)
    assert torch.allclose(total, expected.sum(dim=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tied", [True, False])
def test_padding_changes_no_gradient(tied: bool) -> None:
    """Neither how much of it there is, nor which number stands for it."""
    model = made(tied).double()
    task = Task(transform=Clip(clip_norm=0.05), loss=LOSS)
    inputs, targets = texts()
    expected = Fused().bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets), task)
    longer = Fused().bounded_gradient_sum_and_norms(model, Minibatch(*texts(12)), task)
    places = torch.arange(LENGTH) > (targets != IGNORED).sum(dim=1, keepdim=True)
    assert places.any()
    other = Fused().bounded_gradient_sum_and_norms(model, Minibatch(inputs.where(~places, 9), targets), task)
    for sums in (longer, other):
        assert torch.allclose(sums[0], expected[0], rtol=1e-10, atol=1e-14)
        assert torch.allclose(sums[1], expected[1], rtol=1e-10)


@pytest.mark.parametrize("transform", [Clip(clip_norm=0.02), Normalize(regularizer=0.01)], ids=["clip", "normalize"])
@pytest.mark.parametrize("tied", [True, False])
def test_no_text_contributes_more_than_the_bound(tied: bool, transform: Clip | Normalize) -> None:
    model = made(tied)
    inputs, targets = texts()
    exact = torch_funcs(made(tied).double(), inputs, targets).norm(dim=1)
    assert exact.max() > 0.02
    for row in range(len(inputs)):
        alone = Minibatch(inputs[row : row + 1], targets[row : row + 1])
        total, norms = Fused().bounded_gradient_sum_and_norms(model, alone, Task(transform=transform, loss=LOSS))
        assert float(total.norm()) <= transform.norm_bound
        assert float(norms) >= float(exact[row]) * (1 - 1e-4)
    total, _ = Fused().bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=transform, loss=LOSS, chunk=3)
    )
    assert float(total.norm()) <= len(inputs) * transform.norm_bound


@pytest.mark.parametrize("kind", ["llama", "bert decoder"])
def test_other_causal_models_are_bounded_by_the_fused_engine(kind: str) -> None:
    pytest.importorskip("transformers", reason="pip install 'dpsweep[hf]'")
    from dpsweep.trainers.models.hugging_face import build_random_causal_model

    architecture = {"llama": OTHERS["llama"], "bert decoder": {**BERT, "is_decoder": True}}[kind]
    model = construct_user_model(
        lambda: build_random_causal_model((LENGTH,), WORDS, architecture=architecture, padding=0), "hf_causal", 1
    )
    names = ("query", "value", "q_proj", "v_proj")
    attach_adapters(model, Lora(rank=2, alpha=2.0, targets=names), torch.Generator().manual_seed(1))
    require_separate_examples(model, (LENGTH,))
    inputs, targets = texts()
    expected = torch_funcs(model, inputs, targets)
    total, norms = Fused().bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=Unbounded(), loss=LOSS)
    )
    assert torch.allclose(norms, expected.norm(dim=1), rtol=1e-3)
    assert torch.allclose(total.float(), expected.sum(dim=0), rtol=1e-3, atol=1e-5)


def test_texts_are_treated_alone_and_every_row_has_finite_outputs() -> None:
    model = made()
    require_separate_examples(model, (LENGTH,))
    require_output_shape(model, (LENGTH,), WORDS, (LENGTH,))
    outputs = model(torch.tensor([[0] * LENGTH, [99] * LENGTH, [-1] * LENGTH]).float())
    assert outputs.isfinite().all()
    assert torch.equal(outputs[0], outputs[1])
    with pytest.raises(ValueError, match=r"^Expected outputs\.shape=\[3, 14, 7\] == \[3, 14\], as dataset\.classes\.$"):
        require_output_shape(model, (LENGTH,), WORDS)
    with pytest.raises(ValueError, match=r"== \[3, 7, 7\], as dataset\.classes and the positions"):
        require_output_shape(nn.Linear(LENGTH, LENGTH), (LENGTH,), LENGTH, (LENGTH,))


@EACH
def test_only_what_is_declared_is_trained(tied: bool, trained: str) -> None:
    names = [name for name, value in made(tied, trained).named_parameters() if value.requires_grad]
    assert names
    assert not any("wte" in name or "wpe" in name for name in names)
    assert ("network.lm_head.weight" in names) is (not tied and trained != "none")
    assert all(".lora_" in name for name in names) is (trained == "none")


def completed(folder: Path, **settings: Any) -> dict[str, Any]:
    """The arguments of `hf_causal` as planning completes them."""
    node = {"kind": "hf_causal", "path": str(folder), **settings}
    dataset = {"classes": None, "vocabulary": {"kind": "folder_tokenizer", "path": str(folder)}}
    config = config_with_base_weight_facts({"model": node, "dataset": dataset})
    assert config["dataset"]["classes"] == config["model"]["architecture"].get("vocab_size", WORDS)
    return {key: value for key, value in config["model"].items() if key != "kind"}


def built(arguments: dict[str, Any], length: int = LENGTH) -> nn.Module:
    from dpsweep.trainers.models.hugging_face import hf_causal

    return construct_user_model(lambda: hf_causal((length,), WORDS, **arguments), "hf_causal", 1)


@pytest.mark.parametrize("architecture", [CAUSAL, UNTIED], ids=["tied", "untied"])
def test_the_logits_are_those_of_transformers(architecture: dict[str, Any], tmp_path: Path) -> None:
    folder = causal_folder(tmp_path / "gpt2", architecture)
    model = built(completed(folder)).train()
    import transformers

    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    inputs, targets = texts()
    ours = model(inputs)
    for row, length in enumerate(((targets != IGNORED).sum(dim=1) + 1).tolist()):
        expected = theirs(input_ids=inputs[row : row + 1, :length]).logits[0]
        assert torch.allclose(ours[row, :, :length].T, expected, atol=1e-5)
    assert not any(value.requires_grad for value in model.parameters())
    assert (model.network.lm_head.weight is model.network.transformer.wte.weight) is (architecture is CAUSAL)


def test_a_body_without_a_head_will_do_if_the_head_is_tied(tmp_path: Path) -> None:
    folder = causal_folder(tmp_path / "gpt2")
    expected = built(completed(folder))(texts()[0])
    tensors = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): value for name, value in tensors.items() if name != "lm_head.weight"}
    save_file(bare, folder / "body.safetensors")
    (folder / "model.safetensors").unlink()
    assert torch.equal(built(completed(folder))(texts()[0]), expected)
    untied = causal_folder(tmp_path / "untied", UNTIED)
    save_file(bare, untied / "model.safetensors")
    with pytest.raises(BadInput, match=r"to have lm_head\.weight of shape \[14, 8\], as GPT2LMHeadModel needs\.$"):
        built(completed(untied))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trained": "some"}, r"^Expected model\.trained=some to be one of none, head, decoder\.$"),
        ({"trained": "head"}, r"^Expected model\.trained=head to be none: this head shares the weights"),
        ({"padding": 99}, r"^Expected 0 <= model\.padding=99 < 14\.$"),
        ({"sha256": "0" * 64}, r"^Expected model\.path=.* to have weights with sha256=0000"),
        ({"length": 13}, r"^Expected dataset\.shape=\[13\] to be \[length\], at most 12 tokens\.$"),
        (
            {"architecture": {"model_type": "t5"}},
            r"to describe an architecture of AutoModelForCausalLM, got T5Config\.$",
        ),
        ({"architecture": {**CAUSAL, "vocab_size": 15}}, r"^Expected dataset\.classes=14 == 15, the words of the lang"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    arguments = completed(causal_folder(tmp_path / "gpt2")) | settings
    with pytest.raises(BadInput, match=words):
        built({key: value for key, value in arguments.items() if key != "length"}, arguments.get("length", LENGTH))


def test_a_folder_that_is_no_causal_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^Expected model\.path to be a causal language model: BertLMHeadModel reads"):
        built(completed(pretrained_folder(tmp_path / "bert")))


@pytest.mark.parametrize("tied", [True, False])
def test_a_merged_model_gives_the_same_logits_and_has_no_adapter(tied: bool) -> None:
    model = made(tied).double()
    merged = copy_with_merged_adapters(model)
    inputs, _ = texts()
    assert torch.allclose(merged(inputs), model(inputs), rtol=1e-10)
    assert not any(isinstance(module, LoraLinear) for module in merged.modules())
    assert any(isinstance(module, LoraLinear) for module in model.modules())
    linear = attach_adapters(
        nn.Sequential(nn.Linear(4, 3).requires_grad_(False)), Lora(rank=2, alpha=1.0, targets=("0",))
    )
    nn.init.normal_(linear[0].lora_B.weight)
    values = torch.linspace(-1, 1, 8).view(2, 4)
    assert torch.allclose(copy_with_merged_adapters(linear)(values), linear(values), atol=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_training_changes_adapters_alone_and_the_file_has_the_same_delta(tied: bool, tmp_path: Path) -> None:
    model = made(tied)
    check_saved_weights_reload(model)
    before, initial = WeightDelta.from_untrained_model(model), copy.deepcopy(model)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.add_(0.5)
    save_model(model, tmp_path)
    before.check_weight_changes_and_saved_file(model, tmp_path, noisy=True)
    loaded = load_weights_into_model(made(tied, seed=2), tmp_path)
    for (name, now), then in zip(loaded.named_parameters(), initial.parameters(), strict=True):
        assert torch.allclose(now - then, torch.tensor(0.5 if ".lora_" in name else 0.0)), name
    with torch.no_grad():
        model.network.lm_head.weight[0, 0] += 1e-3
    save_model(model, tmp_path)
    with pytest.raises(ContractBroken, match=r"^Training changed network\.\w+.*weight, which is frozen"):
        before.check_weight_changes_and_saved_file(model, tmp_path, noisy=True)
