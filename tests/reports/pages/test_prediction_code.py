"""The code of model cards, for every kind of data set and every model of ours: it says what our pipeline says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

from dpsweep.accounting.stored_names.stored_classes import current_path_of_class
from dpsweep.accounting.stored_names.tags import HOMES
from dpsweep.reports.pages.prediction_code import (
    declared_preprocessing,
    prediction_snippet,
    source_of_module_and_imports,
)
from dpsweep.sweeper.trial.spec import build_object_of_config_part
from dpsweep.trainers.data.arrays import bounded_records
from dpsweep.trainers.data.columns import Column
from dpsweep.trainers.data.feature_columns import inputs_of_columns
from dpsweep.trainers.data.mismatches import mismatches_refused
from dpsweep.trainers.data.preprocessing import hashed_word_counts_of_texts
from dpsweep.trainers.data.sets.adult import CATEGORIES, COLUMNS, encode_rows_as_inputs
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights as build_model
from tests.alone import BLOCKER, answers

CONF = Path(__file__).parents[3] / "conf"
DATASETS = {path.stem: yaml.safe_load(path.read_text())["dataset"] for path in sorted(CONF.glob("dataset/*.yaml"))}
TABLE = {
    "_target_": "dpsweep.trainers.data.sets.own_tables.Table",
    **{"name": "heart", "file": "heart.csv", "records": 100, "shape": [2], "classes": 2, "unit": "record"},
    **{"label": "ill", "labels": ["no", "yes"], "bounds": {"pressure": [80, 200], "age": [18, 90]}},
}
NPZ = {
    "_target_": "dpsweep.trainers.data.sets.own_arrays.Npz",
    **{"name": "own", "path": "own.npz", "features": "x", "labels": "y", "records": 9, "test_records": 0},
    **{"shape": [2, 3], "classes": 3, "unit": "record", "bounds": [-1.0, 3.0]},
}
SYMPTOMS = TABLE | {"label": ["fever", "cough", "rash"], "classes": 3}
MARKS = NPZ | {"label_names": ["fever", "cough", "rash"]}
GAPS = {"name": "own", "path": "own.npz", "file": "own.csv", "records": 100, "shape": [3], "classes": 3, "label": "l"}
GAPS |= {"labels": ["a", "b", "c"], "bounds": [0, 1], "source": {"_target_": "my_data.Mine"}}


WARDS = TABLE | {"shape": [4], "categories": {"ward": ["a", "b"]}, "other": "zeros"}
GAPPED = TABLE | {
    **{"shape": [9], "categories": {"größe": ["süd", "nord"]}, "other": "category", "date_format": "%d.%m.%Y"},
    **{"dates": {"admitted": ["2020-01-01", "2020-12-31"]}},
    "missing": {"age": 50, "admitted": "2020-07-01", "größe": "unbekannt"},
}
CODED = GAPPED | {"na_values": ["NA", "-99", "u\u0308"]}
GAPPED_ROWS = [
    {"pressure": 111.0, "age": age, "admitted": day, "größe": place}
    for age, day, place in (
        *(("30", "01.02.2020", "su\u0308d"), ("", "31.12.2021", "nord"), (30.5, "", ""), ("7", "29.02.2020", "west")),
    )
]
TARGET = {key: value for key, value in TABLE.items() if key != "labels"}
TARGET |= {"classes": 1, "target": [50, 250], "target_unit": "mmHg"}
PICTURES = ("hugging_face", "image_folder")
OF_A_MODELS_FOLDER = ("sst2_hf", "text_sequences", "text_table")


def adult_inputs(rows: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    cells = {line: list(row.values()) for line, row in enumerate(rows)}
    return torch.from_numpy(encode_rows_as_inputs(cells, DATASETS["adult"]["bounds"], "adult.data"))


def adult_rows() -> list[dict[str, str]]:
    return [
        {
            name: CATEGORIES[name][place % len(CATEGORIES[name])] if name in CATEGORIES else str(20 * place)
            for name in COLUMNS
        }
        for place in range(4)
    ]


def table_inputs(rows: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    low, high = np.array([18.0, 80.0]), np.array([90.0, 200.0])
    numbers = np.array([[float(row["age"]), float(row["pressure"])] for row in rows])
    return torch.from_numpy(((np.clip(numbers, low, high) - low) / (high - low)).astype(np.float32))


def ward_inputs(rows: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    wards = torch.tensor([[float(row["ward"] == ward) for ward in ("a", "b")] for row in rows])
    return torch.cat([table_inputs(rows), wards], dim=1)


def gapped_inputs(rows: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    declared: Any = build_object_of_config_part(GAPPED, "dataset")
    columns = {
        name: Column.from_cells(name, "heart.csv", {line: str(row[name]) for line, row in enumerate(rows)})
        for name in rows[0]
    }
    with mismatches_refused() as found:
        return torch.from_numpy(inputs_of_columns(declared.feature_columns, columns, found))


def npz_inputs(rows: Sequence[Any]) -> torch.Tensor:
    records = bounded_records(np.array(rows), np.zeros(len(rows), dtype=np.int64), (-1.0, 3.0))
    return records.inputs(slice(None), "cpu")


def pooled(rows: Sequence[Any]) -> torch.Tensor:
    images = np.array(rows, dtype=np.uint8).reshape(-1, 1, 14, 2, 14, 2).mean((3, 5), dtype=np.float32)
    return torch.from_numpy(images) / 255.0


def counted(rows: Sequence[str]) -> torch.Tensor:
    return torch.from_numpy(hashed_word_counts_of_texts(rows, 2048, 2)).float() / 2


CASES: dict[str, tuple[Mapping[str, Any], Callable[[Any], torch.Tensor], list[Any]]] = {
    "columns": (
        TABLE,
        table_inputs,
        [{"age": str(a), "pressure": str(p)} for a in (5, 30, 99) for p in (70, 111, 300)],
    ),
    "categories": (DATASETS["adult"], adult_inputs, adult_rows()),
    "unlisted": (
        WARDS,
        ward_inputs,
        [{"age": str(a), "pressure": "111", "ward": ward} for a in (5, 30, 99) for ward in ("a", "b", "c", "")],
    ),
    "gaps, days and values of other kinds": (GAPPED, gapped_inputs, GAPPED_ROWS),
    "array": (NPZ, npz_inputs, np.linspace(-2, 4, 48).reshape(8, 2, 3).tolist()),
    "pooled": (DATASETS["mnist_5k"], pooled, np.random.default_rng(1).integers(0, 256, (6, 1, 28, 28)).tolist()),
    "words": (DATASETS["sst2_words"], counted, ["A fine film, a FINE film!", "dull", "", "caf\u00e9 \u00fcber 12"]),
}


@pytest.mark.parametrize("case", CASES)
def test_labels_are_those_of_our_pipeline(case: str, tmp_path: Path) -> None:
    dataset, inputs_of, rows = CASES[case]
    form, (shape, classes) = declared_preprocessing(dataset), (tuple(dataset["shape"]), dataset["classes"])
    assert form is not None
    model = build_model(lambda: logistic(shape, classes), 3)
    with torch.no_grad():
        inputs = inputs_of(rows)
        model[1].weight -= model[1].weight.mean(dim=0)
        model[1].bias.zero_()
        model[1].bias.copy_(-model[1](inputs.flatten(1)).mean(dim=0))
    (tmp_path / "preprocessing.json").write_text(json.dumps(form))
    (tmp_path / "model.py").write_text(source_of_module_and_imports("dpsweep.trainers.models.fully_connected"))
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    expected = model(inputs).argmax(dim=1).tolist()
    assert len(set(expected)) > 1
    found = answers(
        tmp_path,
        prediction_snippet({"model": {"kind": "logistic"}}, dataset, form, "model.safetensors"),
        json.loads(json.dumps(rows)),
    )
    assert found == (expected if form["labels"] is None else [form["labels"][place] for place in expected])


@pytest.mark.parametrize("text", ["NA", "-99", "\u00fc", "NaN of JSON", None])
def test_a_text_that_stands_for_an_empty_cell_is_missing_in_the_code_too(text: str | None, tmp_path: Path) -> None:
    """Without this a missing value that is coded as a number would be clamped, and a category would be another one."""
    form = declared_preprocessing(CODED)
    assert form is not None
    cell = float("nan") if text == "NaN of JSON" else text
    (tmp_path / "preprocessing.json").write_text(json.dumps(form))
    (tmp_path / "model.py").write_text(source_of_module_and_imports("dpsweep.trainers.models.fully_connected"))
    model = build_model(lambda: logistic((9,), 2), 3)
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    code = prediction_snippet({"model": {"kind": "logistic"}}, CODED, form, "model.safetensors")
    row = {"pressure": 111.0, "age": 30, "admitted": "01.02.2020", "größe": "nord"}
    empty, coded = ({**row, "age": value, "admitted": value, "größe": value} for value in ("", cell))
    both = answers(tmp_path, f"{code}\nlabel = lambda row: inputs(row)[0].tolist()", [empty, coded])
    assert both[0] == both[1]
    assert both[0] != answers(tmp_path, f"{code}\nlabel = lambda row: inputs(row)[0].tolist()", [row])[0]


def test_numbers_are_told_in_the_unit_of_the_target(tmp_path: Path) -> None:
    form = declared_preprocessing(TARGET)
    assert form is not None
    assert (form["target"], form["target_unit"], form["labels"], form["output"]) == ([50, 250], "mmHg", None, "number")
    model = build_model(lambda: logistic((2,), 1), 3)
    (tmp_path / "preprocessing.json").write_text(json.dumps(form))
    (tmp_path / "model.py").write_text(source_of_module_and_imports("dpsweep.trainers.models.fully_connected"))
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    rows = [{"age": str(a), "pressure": str(p)} for a in (5, 30, 99) for p in (70, 111, 300)]
    with torch.no_grad():
        expected = 50 + 200 * model(table_inputs(rows))[:, 0]
    code = prediction_snippet({"model": {"kind": "logistic"}}, TARGET, form, "model.safetensors")
    assert answers(tmp_path, f"{code}\nlabel = number", rows) == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize("dataset", [SYMPTOMS, MARKS], ids=["table", "npz"])
def test_several_labels_are_told_by_name(dataset: dict[str, Any], tmp_path: Path) -> None:
    form, shape = declared_preprocessing(dataset), tuple(dataset["shape"])
    assert form is not None
    assert (form["output"], form["label_names"]) == ("labels", ["fever", "cough", "rash"])
    model = build_model(lambda: logistic(shape, 3), 3)
    (tmp_path / "preprocessing.json").write_text(json.dumps(form))
    (tmp_path / "model.py").write_text(source_of_module_and_imports("dpsweep.trainers.models.fully_connected"))
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    _, inputs_of, rows = CASES["columns" if dataset is SYMPTOMS else "array"]
    with torch.no_grad():
        right = (model(inputs_of(rows)) > 0).tolist()
    values = ("no", "yes") if dataset is SYMPTOMS else (False, True)
    code = prediction_snippet({"model": {"kind": "logistic"}}, dataset, form, "model.safetensors")
    assert answers(tmp_path, f"{code}\nlabel = labels", json.loads(json.dumps(rows))) == [
        {name: values[said] for name, said in zip(form["label_names"], row, strict=True)} for row in right
    ]


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set_of_ours_declares_its_preprocessing(name: str) -> None:
    dataset = {key: GAPS.get(key, "a" * 64) if value == "???" else value for key, value in DATASETS[name].items()}
    if name in PICTURES:
        dataset["shape"] = [1, 8, 8]
    if name in OF_A_MODELS_FOLDER:
        dataset["vocabulary"] = dataset["vocabulary"] | {"path": "/model", "sha256": "a" * 64, "words": 9, "padding": 0}
    if dataset["classes"] is None:
        dataset["classes"] = 9
    if name == "table":
        dataset |= {"bounds": {"a": [0, 1], "b": [0, 1], "c": [0, 1]}, "labels": GAPS["labels"]}
    form = declared_preprocessing(dataset)
    assert form is not None
    assert json.loads(json.dumps(form)) == form
    assert form["labels"] is None or len(form["labels"]) == form["classes"]
    if form["kind"] == "columns":
        width = sum(len(column.get("values", "1")) for column in form["columns"])
        assert [width] == form["shape"]
    compile(prediction_snippet({"model": {"kind": "logistic"}}, dataset, form, "model.safetensors"), name, "exec")
    assert build_object_of_config_part(dataset, "dataset").preprocessing["labels"] == form["labels"]
    told = json.dumps(form)
    assert all(str(dataset.get(key, "nowhere")) not in told for key in ("path", "source"))


@pytest.mark.parametrize(
    ("orientation", "words"),
    [("exif", "PIL.ImageOps.exif_transpose"), ("ignored", "as they are stored, whatever"), ("stored", 'inputs."""')],
)
def test_the_code_says_how_pictures_were_turned(orientation: str, words: str) -> None:
    given = {key: GAPS.get(key) if value == "???" else value for key, value in DATASETS["image_folder"].items()}
    dataset = given | {"shape": [1, 8, 8], "orientation": orientation}
    form = declared_preprocessing(dataset)
    assert form is not None
    assert form.get("orientation") == (None if orientation == "stored" else orientation)
    code = prediction_snippet({"model": {"kind": "logistic"}}, dataset, form, "model.safetensors")
    assert words in code
    assert "{orientation}" not in code
    compile(code, orientation, "exec")


MODELS = {
    "cnn": ((1, 16, 16), {"activation": "tempered_sigmoid"}),
    "linear": ((4,), {}),
    "logistic": ((4,), {}),
    "mlp": ((4,), {"widths": [3, 5], "activation": "tanh"}),
    "one_hidden": ((4,), {}),
    "resnet20": ((3, 8, 8), {}),
    "strided_cnn": ((1, 16, 16), {}),
    "vgg": ((1, 16, 16), {}),
    "wide_resnet": ((3, 8, 8), {"depth": 10, "widening": 1}),
}
CHECK = """
import importlib
import torch
for tag, (code, name, shape, classes, given) in cases.items():
    with open(tag + ".py", "w") as stream:
        stream.write(code)
    module = importlib.import_module(tag)
    if given is not None:
        model = getattr(module, name)(tuple(shape), classes, **given)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view(parameter.shape))
        torch.save(model(torch.linspace(-1, 1, 2 * model_numbers(shape)).view(2, *shape)).detach(), tag + ".pt")
"""


def test_the_code_of_every_model_of_ours_is_whole_without_us(tmp_path: Path) -> None:
    tags = [tag for tag in HOMES if HOMES[tag].startswith("dpsweep.trainers.models.")]
    assert set(tags) == {*MODELS, "bert", "hf", "hf_causal"}, "these have tests of their own"
    cases = {}
    for tag in tags:
        module, _, name = current_path_of_class({"kind": tag}).rpartition(".")
        shape, given = MODELS.get(tag, ((4,), None))
        cases[tag] = (source_of_module_and_imports(module), name, list(shape), 1 if tag == "linear" else 3, given)
    numbers = "import math\nmodel_numbers = math.prod\n"
    script = f"{BLOCKER}\nimport json\ncases = json.loads({json.dumps(json.dumps(cases))})\n{numbers}{CHECK}"
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for tag, (shape, given) in MODELS.items():
        _, name, _, classes, _ = cases[tag]
        module = __import__(current_path_of_class({"kind": tag}).rpartition(".")[0], fromlist=[name])
        model = getattr(module, name)(shape, classes, **given)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view(parameter.shape))
        expected = model(torch.linspace(-1, 1, 2 * int(np.prod(shape))).view(2, *shape)).detach()
        torch.testing.assert_close(torch.load(tmp_path / f"{tag}.pt"), expected)  # the number of threads may differ
