"""The code that goes with a model: its source as one file, and the way from a raw row to a label, with torch alone.

The source is that of a module and of the modules of dpsweep that it imports, copied from their files; nothing is
imported. A test builds every model of conf/ from it in an interpreter that cannot import dpsweep.

Invariant of the declared preprocessing: its only sources are the winner's declaration in the plan and dpsweep's code.
No file of the data set is opened, no class of the user is imported, and no path is written.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
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
from dpsweep.accounting.validation import require_stored_integer
from dpsweep.reports.content.trial_config import BaseModel, FrozenFeatures, stored_dataset_attribute_or_none

PREPROCESSING = "preprocessing.json"
OUTPUTS = ("class", "number")
SEVERAL = "labels"
"""The output of a model that predicts several labels of a record."""


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


NEXT_TOKEN = "next_token"
"""The output of a language model, as its preprocessing declares it."""

SEQUENCE = '''
def inputs(row):
    """The token numbers of a text in the declared vocabulary, as inputs."""
    if not 1 <= len(row) <= declared["length"]:
        raise ValueError(f"Expected 1 to {declared['length']} tokens, got {len(row)}.")
    numbers = torch.full((1, declared["length"]), float(declared["padding"]))
    numbers[0, : len(row)] = torch.tensor(row)
    return numbers
'''
_FUNCTIONS = '''
def logits(row):
    """The logits [len(row), words] of the token after each token of the row."""
    with torch.no_grad():
        return model(inputs(row))[0].T[: len(row)]


def next_token(row):
    """The most likely token number after the row."""
    return int(logits(row)[-1].argmax())


def save(folder):
    """Writes a folder that AutoModelForCausalLM.from_pretrained reads."""
    {saving}
'''
_PLAIN = "model.network.save_pretrained(folder)"
_MERGED = """from adapter import copy_with_merged_adapters  # the adapter becomes part of the other weights

    copy_with_merged_adapters(model).network.save_pretrained(folder)"""


def is_language_model_preprocessing(form: Mapping[str, Any] | None) -> bool:
    """Whether this preprocessing is that of a language model."""
    return form is not None and form.get("output") == NEXT_TOKEN


def token_prediction_and_saving_code(config: Mapping[str, Any]) -> str:
    """The functions that predict from a row, and the one that saves the model for transformers."""
    return _FUNCTIONS.replace("{saving}", _MERGED if config.get("adapter") else _PLAIN).strip("\n")


EXTRACTOR, ADAPTER = "extractor.py", "adapter.py"
ADAPTER_MODULE = "dpsweep.trainers.models.replaced_layers"
INPUTS, FEATURES = "inputs", "features"
"""The functions of the code whose outputs are a model's inputs."""

_BUILDERS = {
    "hf": "dpsweep.trainers.models.hugging_face.build_random_text_classifier",
    "hf_causal": "dpsweep.trainers.models.hugging_face.build_random_causal_model",
}
"""By a model's tag: the function that builds it from a file of all its weights, where the model's own reads others."""

_LONGEST_EXAMPLE = 16
"""Largest number of columns for which the example row is written out."""

_NUMBERS = '''
def inputs(row):
    """A row, with a value by the name of each column, as the model's inputs."""
    numbers = []
    for column in declared["columns"]:
        low, high, number = column["low"], column["high"], float(row[column["name"]])
        if not math.isfinite(number):
            raise ValueError(f"Expected {column['name']}={number} to be finite.")
        numbers.append((min(max(number, low), high) - low) / (high - low))
    return torch.tensor([numbers])
'''
_COLUMNS = '''
def day(text, form):
    """The number of a day."""
    return float(datetime.strptime(text, form).toordinal())


def inputs(row):
    """A row, with a value by the name of each column, as the model's inputs; None, NaN or an empty text is missing."""
    numbers = []
    for column in declared["columns"]:
        cell = row[column["name"]]
        value = "" if cell is None or cell != cell else unicodedata.normalize("NFC", str(cell).strip())
{empty}        if "values" in column:
            value, unlisted = value or column.get("missing", ""), column.get("unlisted", "refused")
            if value not in column["values"] and unlisted == "refused":
                raise ValueError(f"Expected {column['name']}={value!r} to be in its list.")
            numbers += [float(value == each) for each in column["values"]]
            numbers += [float(value not in column["values"])] * (unlisted == "category")
        else:
            gap = "missing" in column and not value
            if gap:
                number = column["missing"]
            elif "first_day" in column:
                number = day(value, column["format"]) - day(column["first_day"], "%Y-%m-%d")
            else:
                number = float(value)
            if not math.isfinite(number):
                raise ValueError(f"Expected {column['name']}={value} to be a finite number.")
            low, high = column["low"], column["high"]
            numbers += [(min(max(number, low), high) - low) / (high - low), *[float(gap)] * ("missing" in column)]
    return torch.tensor([numbers])
'''
_ARRAY = '''
def inputs(row):
    """The numbers of one record, of shape {shape}, as the model's inputs.{orientation}"""
    numbers = torch.as_tensor(row, dtype=torch.float64).reshape(1, *declared["raw_shape"])
    {steps}
    return numbers.float()
'''
_ORIENTATIONS = {
    "exif": """

    Pictures were turned as their EXIF data say before their numbers were taken: PIL.ImageOps.exif_transpose.
    """,
    "ignored": """

    Pictures were taken as they are stored, whatever their EXIF data say on their orientation.
    """,
}
"""What the code says of pictures, by the `orientation` of their declared preprocessing, if it states one."""

_WORDS = '''
def inputs(row):
    """A text, read as {encoding}, as the model's inputs: the number of its words in each bucket."""
    counts = torch.zeros(1, declared["buckets"])
    key, size = declared["key"].encode(), declared["digest_bytes"]
    for word in re.findall(declared["pattern"], row.lower()):
        digest = blake2b(word.encode("utf-8", "surrogateescape"), digest_size=size, key=key).digest()
        counts[0, int.from_bytes(digest, "big") % declared["buckets"]] += 1
    return counts.clamp(max=declared["most"]) / declared["most"]
'''
_TOKENS = '''
def inputs(row):
    """The token numbers of a text in the declared vocabulary, with its begin and end tokens, as inputs."""
    longest = declared["length"]
    kept = row if len(row) <= longest else [*row[: longest - 1], row[-1]]
    numbers = torch.full((1, longest), float(declared["padding"]))
    numbers[0, : len(kept)] = torch.tensor(kept)
    return numbers
'''
_EXTRACTED = """
extractor = {name}(**declared["features"]["settings"])
network = extractor.module(InputForm(shape={shape}, preprocessing=declared))


def features(row):
    \"\"\"The frozen features of one record.\"\"\"
    return network(inputs(row))
"""
_OWN_FEATURES = '''
def features(row):
    """The frozen features of one record, {size} numbers of your module, scaled to norm {norm}."""
    numbers = torch.as_tensor(row, dtype=torch.float32).reshape(1, {size})
    return numbers * {norm} / numbers.norm()
'''
_UNKNOWN = '''
def inputs(row):
    """One input of the model, of shape {shape}, as your data set returns it."""
    return torch.as_tensor(row, dtype=torch.float32).reshape(1, *{shape})
'''
_IMPORTS = {
    "columns": "import json\nimport math\nimport unicodedata\nfrom datetime import datetime\n\n",
    "array": "import json\n\n",
    "words": "import json\nimport re\nfrom hashlib import blake2b\n\n",
    "tokens": "import json\n\n",
}


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
    source, call = _import_line_and_model_call(
        config["model"], (features.feature_count,) if features else shape, dataset
    )
    if config.get("adapter"):
        source, call = _import_line_and_call_with_adapter(source, call, config["adapter"])
    extracted, example = [], _example_row_code(form, dataset)
    if features and form is not None and features.can_be_rebuilt_by_readers:
        name = features.extractor_class
        source += f"\nfrom {EXTRACTOR.removesuffix('.py')} import {name}, InputForm  # {EXTRACTOR} lies beside it"
        extracted = [
            _inputs_function_code(form, dataset).strip("\n"),
            _EXTRACTED.format(name=name, shape=shape).strip("\n"),
        ]
    elif features:
        extracted = [_OWN_FEATURES.format(size=features.feature_count, norm=features.row_norm).strip("\n")]
        example = f"torch.ones({features.feature_count})"
    head = ["import torch\nfrom safetensors.torch import load_file", source]
    if form is not None:
        head[0] = _IMPORTS[str(form["kind"])] + head[0]
        head.append(f'with open("{PREPROCESSING}") as stream:\n    declared = json.load(stream)')
    parts = [
        "\n\n".join(head),
        *(extracted or [_inputs_function_code(form, dataset).strip("\n")]),
        f'model = {call}\nmodel.load_state_dict(load_file("{weights}"))\nmodel.eval()',
        token_prediction_and_saving_code(config)
        if is_language_model_preprocessing(form)
        else _label_or_number_function_code(form, dataset, FEATURES if features else INPUTS),
        f"row = {example}  # put your own "
        f"here\nprint({NEXT_TOKEN if is_language_model_preprocessing(form) else _predicted_noun(form, dataset)}(row))",
    ]
    return "\n\n\n".join(parts)


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


def _inputs_function_code(form: Mapping[str, Any] | None, dataset: Mapping[str, Any]) -> str:
    shape = tuple(require_stored_integer("dataset.shape", length) for length in dataset["shape"])
    if form is None:
        return _UNKNOWN.format(shape=shape)
    if form["kind"] == "array":
        steps = "\n    ".join(_preprocessing_code_lines(form))
        code = _ARRAY.replace("{shape}", str(tuple(form["raw_shape"]))).replace("{steps}", steps)
        code = code.replace("{orientation}", _ORIENTATIONS.get(str(form.get("orientation")), ""))
        return code if steps else code.replace("    \n", "")
    if form["kind"] == "words":
        return _WORDS.replace("{encoding}", str(form["encoding"]))
    if form["kind"] == "tokens":
        return SEQUENCE if is_language_model_preprocessing(form) else _TOKENS
    texts = list(stored_dataset_attribute_or_none(dataset, "na_values")) if dataset.get("na_values") else []
    if not texts and all(column.keys() == {"name", "low", "high"} for column in form["columns"]):
        return _NUMBERS
    line = f'        value = "" if value in {json.dumps(texts)} else value  # dataset.na_values\n'
    return _COLUMNS.replace("{empty}", line if texts else "")


def _preprocessing_code_lines(form: Mapping[str, Any]) -> Sequence[str]:
    """The lines that preprocess an array of numbers, without those that have no effect."""
    steps = []
    if form["bounds"] is not None:
        steps.append('numbers = numbers.clamp(*declared["bounds"])')
    if form["pool"] > 1:
        steps.append('numbers = torch.nn.functional.avg_pool2d(numbers, declared["pool"])')
    if (form["scale"], form["mean"], form["std"]) != (1.0, 0.0, 1.0):
        steps.append('numbers = (numbers / declared["scale"] - declared["mean"]) / declared["std"]')
    return steps


RANGE = '    low, high = declared["target"]  # outputs are scaled\n'


def _predicted_noun(form: Mapping[str, Any] | None, dataset: Mapping[str, Any]) -> str:
    if form is not None and form.get("output") == SEVERAL:
        return SEVERAL
    return "number" if dataset["classes"] == 1 else "label"


def _label_or_number_function_code(form: Mapping[str, Any] | None, dataset: Mapping[str, Any], inputs: str) -> str:
    verb = _predicted_noun(form, dataset)
    named = form is not None and form["labels"] is not None
    scaled = form is not None and "target" in form
    number = "low + (high - low) * float(outputs[0])" if scaled else "float(outputs[0])"
    value = 'declared["labels"][int(output > 0)]' if named else "bool(output > 0)"
    answer = {
        "number": number,
        SEVERAL: f'{{name: {value} for name, output in zip(declared["label_names"], outputs)}}',
        "label": 'declared["labels"][int(outputs.argmax())]' if named else "int(outputs.argmax())",
    }[verb]
    return (
        f'def {verb}(row):\n    """The model\'s prediction for one row."""\n    with torch.no_grad():\n'
        f"        outputs = model({inputs}(row))[0]\n"
        f"{RANGE if scaled else ''}    return {answer}"
    )


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
