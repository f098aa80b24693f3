"""Keywords of the Python functions: the overrides that they stand for, and the sentence for one that is none."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

import dpsweep
from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.keywords import KEYWORDS, overrides_with_keywords
from dpsweep.sweeper.planning.keys import documented_keys

METHODS = ["dpsgd", "dpnsgd"]
FIXED = {"dataset": "digits", "epsilon": 3, "steps": 2, "accountant": "rdp", "page": False}


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))


def test_every_keyword_is_a_key_of_the_configuration() -> None:
    assert {key for key in KEYWORDS.values() if key not in documented_keys()} <= {"trainer.script"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (1e-5, "1e-05"),
        (None, "null"),
        (True, "true"),
        (np.float64(0.5), "0.5"),
        ([0.1, 1], "0.1,1"),
        (range(2), "0,1"),
        (np.logspace(-1, 1, 3), "0.1,1.0,10.0"),
        ((0, 2), "[0,2]"),
        ({"share": 0.1, "parts": 2}, "{share: 0.1, parts: 2}"),
        (Path("my data/x.csv"), "'my data/x.csv'"),
        ("null", "'null'"),
        ("12", "'12'"),
        ("it's", r"'it\'s'"),
    ],
)
def test_values_are_written_in_hydras_grammar(value: object, text: str) -> None:
    (word,) = overrides_with_keywords([], {"budget.sealed": value})
    assert word == f"budget.sealed={text}"
    parsed = OverridesParser.create().parse_override(word)
    assert parsed.is_sweep_override() == isinstance(value, list | range | np.ndarray)


def test_a_dictionary_holds_keys_below_its_keyword() -> None:
    """Those of a class of the user's are added: dpsweep's own model may have other keys, or the same ones."""
    own = {"_target_": "my_model.Net", "width": [8, 16], "layers": (1, 2)}
    assert overrides_with_keywords([], {"model": own, "privacy": {"epsilon": 3}}) == [
        *("model._target_=my_model.Net", "++model.width=8,16", "++model.layers=[1,2]", "privacy.epsilon=3"),
    ]
    with pytest.raises(BadInput, match=r"Expected model\.width to be given once"):
        overrides_with_keywords(["+model.width=3"], {"model": own})


def test_the_plan_is_that_of_the_words() -> None:
    words = ["trainer.lr=1,2", "trainer.clip_norm=1", "privacy.epsilon=3", "accountant=rdp", "page=false"]
    by_keywords = dpsweep.plan(["trainer=dpsgd"], lr=[1, 2], clip_norm=1, **FIXED)
    assert by_keywords.id == dpsweep.plan(["dataset=digits", "trainer=dpsgd", "steps=2", *words]).id


def test_an_axis_that_one_method_lacks_is_the_others_axis() -> None:
    points = dpsweep.plan(trainer=METHODS, lr=[1, 2], clip_norm=[0.5, 1, 4], **FIXED).points
    clipped, normalized = (points[points["method"] == method] for method in METHODS)
    assert sorted(zip(clipped["trainer.lr"], clipped["trainer.clip_norm"], strict=True)) == [
        (lr, bound) for lr in (1, 2) for bound in (0.5, 1, 4)
    ]
    assert set(normalized["trainer.lr"]) == {1, 2}
    assert normalized["trainer.clip_norm"].isna().all()


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"epsilonn": 3}, "Expected epsilonn=3 to be a keyword. Near names: epsilon."),
        ({"learning_rate": 0.1}, "Expected learning_rate=0.1 in dpsweep's words: lr=0.1."),
        ({"augmult": 4}, "**{'augmentation.multiplicity': ...}"),
        ({"epochs": 3, "dataset": "digits"}, "Expected epochs=3 in dpsweep's words: steps="),
        ({"foo": 1}, "Expected foo=1 to be a keyword. `dpsweep help` lists the keys"),
        ({"model": object()}, "Expected model to be numbers, texts, tuples or dictionaries, got object"),
        ({"lr": []}, "Expected lr=[] to have at least one value."),
        ({"lr": 1, "trainer.lr": 2}, "Expected trainer.lr to be given once"),
        ({"steps": 4}, "Expected steps to be given once, got it once more as steps=4."),
        ({"sampler.batch_sise": 4}, "Did you mean sampler.batch_size?"),
    ],
)
def test_a_wrong_keyword_is_one_sentence(keywords: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput, match=re.escape(sentence)):
        dpsweep.sweep(["steps=3"], **keywords)


@pytest.mark.parametrize("overrides", ["dataset=digits", 3, [3], {"dataset": "digits"}, None])
def test_what_is_no_list_of_overrides_is_refused(overrides: object) -> None:
    with pytest.raises(BadInput, match="to be a list of words"):
        dpsweep.plan(overrides)  # type: ignore[arg-type]
