"""Laws over every data set of conf/dataset and every grid of conf/grid."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content

if TYPE_CHECKING:
    from dpsweep.trainers.data.interface import DataSet

CONF = Path(__file__).parents[3] / "conf"
OPEN: dict[str, Any] = {
    "table": {
        "dataset": {
            "name": "table",
            "file": "visits.csv",
            "records": 2000,
            "shape": [2],
            "classes": 2,
            "label": "ill",
            "labels": [0, 1],
            "bounds": {"age": [18, 90], "weight": [40, 150]},
        },
        "privacy": {"delta": 1e-5},
        "budget": {"epsilon": 6.0, "delta": 1e-4},
    },
    "npz": {
        "dataset": {
            "name": "npz",
            "path": "visits.npz",
            "records": 2000,
            "shape": [2],
            "classes": 2,
            "bounds": [0, 255],
        },
        "privacy": {"delta": 1e-5},
        "budget": {"epsilon": 6.0, "delta": 1e-4},
    },
    "arrays": {
        "dataset": {
            "name": "arrays",
            "path": "visits",
            "records": 2000,
            "shape": [2],
            "classes": 2,
            "bounds": [0, 255],
        },
        "privacy": {"delta": 1e-5},
        "budget": {"epsilon": 6.0, "delta": 1e-4},
    },
    "torch_dataset": {
        "dataset": {
            "name": "torch_dataset",
            "source": {"_target_": "visits.Visits", "root": "/data/visits"},
            "records": 2000,
            "shape": [2],
            "classes": 2,
            "bounds": [0, 1],
        },
        "privacy": {"delta": 1e-5},
        "budget": {"epsilon": 6.0, "delta": 1e-4},
    },
    "hugging_face": {
        "dataset": {
            "name": "hugging_face",
            "path": "reviews/train",
            "records": 2000,
            "shape": [3, 64, 64],
            "classes": 2,
            "labels": [0, 1],
        },
        "privacy": {"delta": 1e-5},
        "budget": {"epsilon": 6.0, "delta": 1e-4},
    },
    "image_folder": {
        "dataset": {
            "name": "image_folder",
            "path": "photos",
            "records": 2000,
            "shape": [3, 64, 64],
            "classes": 2,
            "labels": ["cat", "dog"],
        },
        "privacy": {"delta": 1e-5},
        "budget": {"epsilon": 6.0, "delta": 1e-4},
    },
    "text_table": {
        "dataset": {
            "name": "text_table",
            "file": "reviews.csv",
            "records": 2000,
            "classes": 2,
            "text": "review",
            "label": "stars",
            "labels": [0, 1],
        },
        "privacy": {"delta": 1e-5},
        "budget": {"epsilon": 24.0, "delta": 1e-4},
    },
    "text_sequences": {
        "dataset": {"name": "text_sequences", "file": "notes.csv", "records": 2000, "text": "note"},
        "privacy": {"delta": 1e-5},
        "budget": {"epsilon": 24.0, "delta": 1e-4},
    },
    "sst2_roberta": {"dataset": {"vocabulary": {"file": "/models/roberta/tokenizer.json", "sha256": "0" * 64}}},
}
"""What the YAMLs leave to the user, with an example of what a user might say."""

FOLDER = {"model": {"path": "/models/bert"}}
TOKENIZER = {"vocabulary": {"path": "/models/bert", "sha256": "0" * 64, "words": 100, "padding": 0}}
PLANNED: dict[str, Any] = {name: {"dataset": TOKENIZER} for name in ("sst2_hf", "text_table")}
PLANNED["text_sequences"] = {"dataset": {**TOKENIZER, "classes": 100}}
"""What planning reads from a model's folder."""

DATA_SETS: dict[str, Any] = {
    file.stem: OmegaConf.to_container(
        OmegaConf.merge(OmegaConf.load(file), OPEN.get(file.stem, {}), PLANNED.get(file.stem, {}))
    )
    for file in sorted(CONF.glob("dataset/*.yaml"))
}
ACCOUNTS = dict.fromkeys(("sst2_tokens", "sst2_words", "sst2_roberta", "sst2_hf"), "sst2")
"""Data sets of the same records as another one, whose account theirs is."""
SECOND = ("radius", "regularizer", "clip_norm", "transform.regularizer", "transform.clip_norm")
"""What a grid varies beside the learning rate."""
OFFICIAL = [name for name, conf in DATA_SETS.items() if "files" in conf["dataset"]]
TRAINERS = tuple(sorted({path.stem for path in (CONF / "trainer").glob("*.yaml")} - {"by_grid"}))
DEFAULT_AXES: dict[str, Any] = {
    name: axes
    for file in sorted(CONF.glob("trainer/axes/*.yaml"))
    for name, axes in OmegaConf.to_container(OmegaConf.load(file)).items()
}
GRIDS: dict[str, Any] = {
    file.stem: OmegaConf.to_container(OmegaConf.load(file)) for file in sorted(CONF.glob("grid/*.yaml"))
}
GRIDS["small"]["axes"] = DEFAULT_AXES
GRIDS["few"]["axes"] = {
    name: axes
    for file in sorted(CONF.glob("trainer/few/*.yaml"))
    for name, axes in OmegaConf.to_container(OmegaConf.load(file)).items()
}


def unreachable(dataset: Any, nowhere: str) -> DataSet:
    """The same data set, published at an address that refuses connections."""
    if not hasattr(dataset, "files"):
        return dataset  # type: ignore[no-any-return]
    return dataclasses.replace(dataset, files=dataclasses.replace(dataset.files, url=nowhere))  # type: ignore[no-any-return]


def leaves(conf: Any, open_keys: set[str], path: str = "") -> set[str]:
    """The dotted keys of what was said, down to where the YAML has its ???."""
    if not isinstance(conf, dict) or path in open_keys:
        return {path}
    return {leaf for key, value in conf.items() for leaf in leaves(value, open_keys, f"{path}.{key}".lstrip("."))}


LABELS_OR_TARGET = ("table",)
"""Data sets whose user says one of two keys, so that both have a value."""


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_user_is_asked_for_what_only_the_user_knows_and_for_nothing_else(name: str) -> None:
    written = OmegaConf.merge(FOLDER, OmegaConf.load(CONF / "dataset" / f"{name}.yaml"))
    asked, open_keys = OPEN.get(name), OmegaConf.missing_keys(written)
    said = leaves(asked, open_keys) if asked else set()
    assert open_keys == said - ({"dataset.labels"} if name in LABELS_OR_TARGET else set())


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_data_set_declares_itself(name: str) -> None:
    conf: Any = DATA_SETS[name]
    dataset = instantiate(conf["dataset"])
    fields = {field.name for field in dataclasses.fields(dataset)}
    left_out = {"left_out"} - set(conf["dataset"])  # named by the data sets that leave records out
    assert fields - {"public"} - left_out == set(conf["dataset"]) - {"_target_", "_recursive_"}
    assert not dataset.public, "nobody's records are declared public but by whoever runs a sweep"
    assert dataset.name == ACCOUNTS.get(name, name)
    assert dataset.unit == "record"
    assert isinstance(dataset.shape, tuple)
    said = {"defaults", "dataset", "sampler", "steps", "privacy", "budget"}
    assert set(conf) - {"loss", "weights", "plan"} == said


@pytest.mark.parametrize(("name", "account"), ACCOUNTS.items())
def test_who_shares_an_account_has_its_records_and_its_budget(name: str, account: str) -> None:
    one, other = DATA_SETS[name], DATA_SETS[account]
    assert one["budget"] == other["budget"]
    assert one["dataset"]["files"] == other["dataset"]["files"]
    assert one["dataset"]["records"] == other["dataset"]["records"]


BY_THE_LAW = (
    "adult",
    "arrays",
    "cifar10",
    "enron",
    "hugging_face",
    "image_folder",
    "npz",
    "sst2",
    "table",
    "torch_dataset",
)
"""Data sets whose default is one run by the law of docs/search.md."""


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_default_sweep_fits_its_account_three_times(name: str) -> None:
    conf: Any = DATA_SETS[name]
    budget, asked, records = conf["budget"], conf["privacy"], conf["dataset"]["records"]
    assert 3 * asked["epsilon"] <= budget["epsilon"]
    assert 3 * asked["delta"] <= budget["delta"] < 1 / records
    (grid,) = [entry["override /grid"] for entry in conf["defaults"] if "override /grid" in entry]
    assert (grid == "one") is (name in BY_THE_LAW)
    if name in BY_THE_LAW:
        assert {conf["steps"], conf["sampler"]["batch_size"], conf["weights"]["ema"]} == {"auto"}
    else:
        assert grid in GRIDS
        assert 1 <= conf["sampler"]["batch_size"] <= 0.8 * records


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_official_files_hold_what_is_declared(name: str, request: pytest.FixtureRequest, nowhere: str) -> None:
    conf: Any = DATA_SETS[name]
    dataset = unreachable(instantiate(conf["dataset"]), nowhere)
    folder = request.getfixturevalue("user_data") if "files" in conf["dataset"] else None
    if name == "torch_dataset":
        pytest.skip("a class of the user's own")
    try:
        dataset.locate(folder)
    except BadInput as absent:
        pytest.skip(str(absent))
    assert dataset.verify(folder)
    private, public = dataset.load(folder)
    assert (len(private), 0 if public is None else len(public)) == (dataset.records, dataset.test_records)
    for records in [private] if public is None else [private, public]:
        assert tuple(records.features.shape[1:]) == dataset.shape
        inputs = records.inputs(slice(0, 1000), "cpu")
        assert inputs.dtype == torch.float32
        if dataset.classes == 1:
            assert records.labels.dtype == torch.float32
            continue
        assert sorted(set(records.labels.tolist())) == list(range(dataset.classes))
        words = dataset.vocabulary
        assert inputs.min() >= (0 if words else -1)
        assert inputs.max() <= (words.words - 1 if words else 1)


def holding(folder: Path, name: str, contents: dict[str, bytes]) -> Any:
    """A data set of conf/dataset, of these files instead of the official ones, which its YAML takes for official."""
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    sums = {file: hashlib.md5(content).hexdigest() for file, content in contents.items()}
    conf: Any = DATA_SETS[name]
    dataset = instantiate(conf["dataset"])
    return dataclasses.replace(dataset, files=dataclasses.replace(dataset.files, contents=sums, folders=()))


@pytest.mark.parametrize("name", OFFICIAL)
def test_a_data_set_is_recognised_by_its_private_files_alone(name: str, tmp_path: Path) -> None:
    conf: Any = DATA_SETS[name]
    contents = {
        file: f"the contents of {file}, which nobody parses".encode() for file in conf["dataset"]["files"]["contents"]
    }
    public = [file for file in contents if re.search("test|t10k|valid|dev", file)]
    private = [content for file, content in contents.items() if file not in public]
    assert private
    assert bool(public) == (conf["dataset"]["test_records"] > 0)
    held = holding(tmp_path, name, contents).verify(tmp_path)
    assert sorted(content.digest for content in held) == sorted(Content.from_chunks([one]).digest for one in private)


@pytest.mark.parametrize("name", OFFICIAL)
def test_a_damaged_file_is_found_before_anything_is_charged(name: str, tmp_path: Path) -> None:
    conf: Any = DATA_SETS[name]
    contents = {file: file.encode() for file in conf["dataset"]["files"]["contents"]}
    dataset = holding(tmp_path, name, contents)
    for file in contents:
        (tmp_path / file).write_bytes(b"damaged")
        with pytest.raises(BadInput, match=rf"of the contents of {tmp_path}/{file}, got"):
            dataset.verify(tmp_path)
        (tmp_path / file).write_bytes(contents[file])


@pytest.mark.parametrize("name", OFFICIAL)
def test_absent_and_offline_is_one_sentence_with_the_next_step(name: str, tmp_path: Path, nowhere: str) -> None:
    conf: Any = DATA_SETS[name]
    if any(Path(folder).is_dir() for folder in conf["dataset"]["files"]["folders"] if folder.startswith("/")):
        pytest.skip("this machine carries the files in a system folder")
    with pytest.raises(
        BadInput, match=rf"^{ACCOUNTS.get(name, name)} is not in .*: put .* into {tmp_path}/.* and say data="
    ) as refusal:
        unreachable(instantiate(conf["dataset"]), nowhere).locate(tmp_path)
    for file in conf["dataset"]["files"]["downloads"]:
        assert file in str(refusal.value)


@pytest.mark.parametrize("name", DATA_SETS)
def test_declaring_imports_neither_torch_nor_pooch(name: str) -> None:
    conf: Any = DATA_SETS[name]
    module, _, kind = conf["dataset"]["_target_"].rpartition(".")
    heavy = "('torch', 'pooch', 'sklearn')"
    code = f"import sys, {module} as m; m.{kind}; print([x for x in {heavy} if x in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=CONF.parent, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("name", GRIDS)
def test_every_grid_has_axes_of_distinct_positive_numbers(name: str) -> None:
    conf: Any = GRIDS[name]
    assert conf["trainers"]
    assert set(conf["trainers"]) <= set(conf["axes"])
    for trainer, axes in conf["axes"].items():
        if trainer == "output_perturbation":
            assert axes["steps"] == [1]
            continue
        declared = OmegaConf.load(CONF / "trainer" / f"{trainer}.yaml")
        places = [name for name in SECOND if OmegaConf.select(declared, name) is not None and trainer != "script"]
        assert list(axes)[:2] == ["trainer.lr", *(f"trainer.{name}" for name in places[:1])]
        own = [key for key in axes if key != "privacy.noise_multiplier"]
        assert all(OmegaConf.select(declared, key.removeprefix("trainer.")) is not None for key in own)
        for values in axes.values():
            assert len(set(values)) == len(values) >= 1
            numbers = [value for value in values if value != "auto"]
            assert all(isinstance(value, float) and math.isfinite(value) and value > 0 for value in numbers)


def test_the_papers_grids_have_the_papers_sizes() -> None:
    sizes: dict[tuple[str, str], int] = {}
    for (grid, conf), trainer in itertools.product(GRIDS.items(), TRAINERS):
        axes = conf["axes"].get(trainer)
        sizes[grid, trainer] = math.prod(map(len, axes.values())) if axes else 0
    assert sizes["paper_a", "dpsgd"] == sizes["paper_a", "dpnsgd"] == 7 * 5
    assert sizes["paper_b", "dpsgd"] == 10 * 4
    assert sizes["paper_b", "dpadam"] == sizes["paper_b", "dpadamwosm"] == sizes["paper_b", "adadp"] == 4
    assert sizes["paper_b", "dpmomentum"] == 10 * 4 * 7
    assert sizes["paper_a", "dpnadam"] == 5 * 5


@pytest.mark.parametrize("name", ["small", "cifar10"])
def test_the_grids_of_data_sets_have_every_method(name: str) -> None:
    """But for output perturbation where the model is none that it takes, and scripts, which make their own."""
    unsuited = {"output_perturbation", "script"} if name == "cifar10" else set()
    assert set(GRIDS[name]["axes"]) == set(TRAINERS) - unsuited
