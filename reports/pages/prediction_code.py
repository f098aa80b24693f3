"""The code that goes with a model: its source as one file, and the way from a raw row to a label, with torch alone.

The source is that of a module and of the modules of dpsweep that it imports, copied from their files; nothing is
imported. A test builds every model of conf/ from it in an interpreter that cannot import dpsweep.

Invariant of the declared preprocessing: its only sources are the winner's declaration in the plan and dpsweep's code.
No file of the data set is opened, no class of the user is imported, and no path is written.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import (
    class_name_without_module,
    current_path_of_class,
    fields_without_class_name,
    tag_or_path_of_class,
)
from dpsweep.accounting.stored_names.tags import tag_of_path
from dpsweep.reports.content.trial_config import (
    BaseModel,
    FrozenFeatures,
    require_stored_integer,
    stored_dataset_attribute_or_none,
)
from dpsweep.reports.pages.templates import fill_template

PREPROCESSING = "preprocessing.json"
OUTPUTS = ("class", "number")
SEVERAL, NEXT_TOKEN = "labels", "next_token"
"""The outputs of a model that predicts several labels of a record, and of a language model."""


def declared_preprocessing(dataset: Mapping[str, Any], features: FrozenFeatures | None = None) -> dict[str, Any] | None:
    """The preprocessing of a data set's declaration, None if only a class of the user defines it.

    If the inputs are frozen `features`, the settings of their extractor are in it. It is also None for an older
    version's declaration that cannot be read: the model is released without it.
    """
    form = stored_dataset_attribute_or_none(dataset, "preprocessing")
    if not isinstance(form, Mapping):
        return None
    classes = require_stored_integer("dataset.classes", dataset["classes"])
    return {
        **form,
        "shape": [require_stored_integer("dataset.shape", length) for length in dataset["shape"]],
        "classes": classes,
        "output": form.get("output", OUTPUTS[classes == 1]),
        **({"features": features.settings_for_release} if features else {}),
    }


MODEL_CODE = "model.py"
_HEAD = '''"""The code of this model, as it was trained: it needs torch, and safetensors where it reads a file."""

from __future__ import annotations
'''


def source_of_module_and_imports(module: str, head: str = _HEAD) -> str:
    """The source of a dpsweep module and of the dpsweep modules that it imports, each once, in import order.

    `head` is the text before them: a docstring and the `__future__` imports.
    """
    package = module.partition(".")[0]
    parts = [_source_without_imports(source, package) for source in _sources_in_import_order(module, package, set())]
    return "\n".join([head, *parts])


def _sources_in_import_order(module: str, package: str, seen: set[str]) -> Iterator[str]:
    if module in seen:
        return
    seen.add(module)
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise BadInput(f"Expected {module} to be a module of this version of dpsweep.")
    source = Path(spec.origin).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if name := _imported_module(node, package):
            yield from _sources_in_import_order(name, package, seen)
    yield source


def _imported_module(node: ast.AST, package: str) -> str | None:
    """The module of this package that a statement imports names from, if any."""
    inner = isinstance(node, ast.ImportFrom) and node.module is not None and node.module.partition(".")[0] == package
    return node.module if inner and isinstance(node, ast.ImportFrom) else None


def _source_without_imports(source: str, package: str) -> str:
    """The source with `pass` in place of this package's imports, and without `__future__` imports (see _HEAD)."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if isinstance(node, ast.ImportFrom) and (future or _imported_module(node, package)):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [f"{' ' * node.col_offset}pass" if node.col_offset else ""] + [""] * (last - first - 1)
    return "\n".join(lines) + "\n"


EXTRACTOR, ADAPTER = "extractor.py", "adapter.py"
ADAPTER_MODULE = "dpsweep.trainers.models.replaced_layers"
_BUILDERS = {
    "hf": "dpsweep.trainers.models.hugging_face.build_random_text_classifier",
    "hf_causal": "dpsweep.trainers.models.hugging_face.build_random_causal_model",
}
"""By a model's tag: the function that builds it from a file of all its weights, where the model's own reads others."""

_LONGEST_EXAMPLE = 16
"""Largest number of columns for which the example row is written out."""


def prediction_snippet(
    config: Mapping[str, Any],
    dataset: Mapping[str, Any],
    form: Mapping[str, Any] | None,
    weights: str,
    features: FrozenFeatures | None = None,
) -> str:
    """The code for a winner's configuration, the declaration of its data set, and its declared preprocessing.

    `features` are the frozen features that are the model's inputs, if any. Raises `BadInput` if a key of the
    configuration cannot be an argument of a function.
    """
    shape = tuple(require_stored_integer("dataset.shape", length) for length in dataset["shape"])
    inputs = (features.feature_count,) if features else shape
    imports, call = _import_line_and_model_call(config["model"], inputs, dataset)
    if config.get("adapter"):
        imports, call = _import_line_and_call_with_adapter(imports, call, config["adapter"])
    extractor, example = "", _example_row_code(form, dataset)
    if features and form is not None and features.can_be_rebuilt_by_readers:
        extractor = features.extractor_class
        imports += f"\nfrom {EXTRACTOR.removesuffix('.py')} import {extractor}, InputForm  # {EXTRACTOR} lies beside it"
    elif features:
        example = f"torch.ones({features.feature_count})"
    texts = stored_dataset_attribute_or_none(dataset, "na_values") if dataset.get("na_values") else None
    return fill_template(
        "prediction.py.j2",
        form=form,
        features=features,
        shape=shape,
        imports=imports,
        extractor=extractor,
        call=call,
        weights=weights,
        preprocessing=PREPROCESSING,
        predicted=_name_of_prediction_function(form, dataset),
        has_adapter=bool(config.get("adapter")),
        columns_have_bounds_alone=texts is None and _have_bounds_alone(form),
        empty_texts="" if texts is None else json.dumps(list(texts)),
        example=example,
    )


def _name_of_prediction_function(form: Mapping[str, Any] | None, dataset: Mapping[str, Any]) -> str:
    """The function of the code that predicts from a row: `next_token`, `labels`, `number` or `label`."""
    if form is not None and form.get("output") in (NEXT_TOKEN, SEVERAL):
        return str(form["output"])
    return "number" if dataset["classes"] == 1 else "label"


def _have_bounds_alone(form: Mapping[str, Any] | None) -> bool:
    """Whether each column of a declared table is a number that is never missing."""
    columns = () if form is None else form.get("columns", ())
    return all(column.keys() == {"name", "low", "high"} for column in columns)


def is_dpsweep_model(model: Mapping[str, Any]) -> bool:
    """Whether a model is one of dpsweep's, whose code lies beside the card."""
    return tag_of_path(tag_or_path_of_class(model)) is not None


def name_of_module_that_builds_model(model: Mapping[str, Any]) -> str:
    """The module of dpsweep with the code that builds this model from a file of all its weights."""
    return _BUILDERS.get(tag_or_path_of_class(model), current_path_of_class(model)).rpartition(".")[0]


def _import_line_and_call_with_adapter(source: str, call: str, adapter: Mapping[str, Any]) -> tuple[str, str]:
    """The same lines for the model with its adapter, whose initial weights the file of weights replaces."""
    kind = class_name_without_module(adapter)
    fields = ", ".join(f"{key}={value!r}" for key, value in fields_without_class_name(adapter).items())
    imported = f"from {ADAPTER.removesuffix('.py')} import {kind}, attach_adapters  # {ADAPTER} lies beside this card"
    return f"{source}\n{imported}", f"attach_adapters({call}, {kind}({fields}))"


def adapter_snippet(config: Mapping[str, Any], dataset: Mapping[str, Any], weights: str) -> str:
    """The code that builds the winner from the reader's own copy of the pretrained folder and the adapter's file.

    The folder's weights are compared with the checksum of those that the training started from.
    """
    factory = current_path_of_class(config["model"]).rpartition(".")[2]
    fields = {**fields_without_class_name(config["model"]), "path": "/whole/path/of/your/copy"}
    shape = tuple(require_stored_integer("dataset.shape", length) for length in dataset["shape"])
    arguments = ", ".join(f"{key}={value!r}" for key, value in fields.items())
    source, call = _import_line_and_call_with_adapter(
        f"from {MODEL_CODE.removesuffix('.py')} import {factory}",
        f"{factory}({shape}, {require_stored_integer('dataset.classes', dataset['classes'])}, {arguments})",
        config["adapter"],
    )
    return (
        f"from safetensors.torch import load_file\n\n{source}\n\nmodel = {call}\n"
        f'model.load_state_dict(load_file("{weights}"), strict=False)  # the other weights are the folder\'s\n'
        "model.eval()"
    )


def _import_line_and_model_call(
    model: Mapping[str, Any], shape: tuple[int, ...], dataset: Mapping[str, Any]
) -> tuple[str, str]:
    """The line that imports the model's factory, and the call of the factory for inputs of this shape."""
    module, _, factory = _BUILDERS.get(tag_or_path_of_class(model), current_path_of_class(model)).rpartition(".")
    base = BaseModel.from_trial_config({"model": model})
    fields = fields_without_class_name(model) if base is None else base.arguments_to_rebuild_model
    if invalid := [key for key in fields if not key.isidentifier()]:
        raise BadInput(f"Expected model.{invalid[0]} to be the name of an argument.")
    arguments = [
        str(shape),
        str(require_stored_integer("dataset.classes", dataset["classes"])),
        *(f"{key}={value!r}" for key, value in fields.items()),
    ]
    if is_dpsweep_model(model):
        source = f"from {MODEL_CODE.removesuffix('.py')} import {factory}  # {MODEL_CODE} lies beside this card"
    else:
        source = f"from {module} import {factory}  # your own class: it must be importable"
    return source, f"{factory}({', '.join(arguments)})"


def _example_cell(column: Mapping[str, Any]) -> object:
    """An invented value of a column: the middle of its bounds, its first day, or its first category."""
    if "values" in column:
        return column["values"][0]
    if "first_day" in column:
        return datetime.strptime(column["first_day"], "%Y-%m-%d").strftime(column["format"])
    return (column["low"] + column["high"]) / 2


def _example_row_code(form: Mapping[str, Any] | None, dataset: Mapping[str, Any]) -> str:
    """An invented example row: the middle of every bound."""
    if form is None or form["kind"] == "array":
        return f"torch.zeros({str(list(form['raw_shape'] if form else dataset['shape']))[1:-1]})"
    if form["kind"] == "words":
        return '"a text of your own"'
    if form["kind"] == "tokens":
        return str([require_stored_integer("padding", form["padding"])])
    columns = form["columns"]
    if len(columns) > _LONGEST_EXAMPLE and not any("first_day" in column for column in columns):
        if not any("values" in column for column in columns):
            return '{column["name"]: column["low"] for column in declared["columns"]}'
        return (
            '{column["name"]: column["values"][0] if "values" in column else column["low"] '
            'for column in declared["columns"]}'
        )
    middles = {column["name"]: _example_cell(column) for column in columns}
    return "\n".join(
        ["{", *(f"    {json.dumps(name)}: {json.dumps(middle)}," for name, middle in middles.items()), "}"]
    )
