"""`dpsweep declare FILE`: a data set's YAML with a ??? wherever something is the user's to say, from a table's header.

No record is read, so what is written tells nothing of them. With `--public` the user declares the records public: then
ranges and values are taken from them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.durable_files import make_folder_and_missing_parents
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.printing import escape_invisible_characters, print_line
from dpsweep.trainers.data.columns import ColumnKind, TableColumn
from dpsweep.trainers.data.mismatches import Mismatches, nearest_name_text
from dpsweep.trainers.data.table_files import table_reader_for_file
from dpsweep.trainers.data.text_tables import Dialect

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PUBLIC = "--public"
OPEN = "???"
FOLDER = Path("conf") / "dataset"
DIALECT_KEYS = ("delimiter", "decimal", "encoding")
KEYS = ("name", "label", *DIALECT_KEYS)
LEFT_OUT = "left out"
MOST_VALUES = 30
"""The most values of a public column that are listed as categories."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_YAML_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])


@dataclass(frozen=True, kw_only=True)
class DeclaredColumn:
    """What is written of a column: the group of the declaration, its value there, and a comment."""

    group: str
    value: str
    comment: str


def write_declaration(arguments: Sequence[str]) -> None:
    """Writes `conf/dataset/NAME.yaml` for a table and says what to do with it."""
    words = [word for word in arguments if word != PUBLIC]
    settings = dict(word.partition("=")[::2] for word in words[1:])
    for word in words[1:]:
        if word.startswith("dataset.") and word.partition("=")[0].removeprefix("dataset.") in KEYS:
            raise BadInput(f"`{word}` is `{word.removeprefix('dataset.')}` for declare.")
    if not words or not set(settings) <= set(KEYS) or not all(settings.values()):
        raise BadInput(f"Expected a table, and then {', '.join(f'{key}=...' for key in KEYS)} or {PUBLIC} at most.")
    file, is_public = words[0], PUBLIC in arguments
    name = settings.get("name") or re.sub(r"[^A-Za-z0-9_-]+", "_", Path(file).name.partition(".")[0]).strip("_")
    path = FOLDER / f"{name}.yaml"
    if path.exists():
        raise BadInput(f"Expected {path} to be a new file: remove it, or give name=...")
    try:
        delimiter, decimal, encoding = map(settings.get, DIALECT_KEYS)
        dialect = Dialect(delimiter=delimiter, decimal=decimal, encoding=encoding)
    except ValueError as cause:
        raise BadInput(str(cause)) from cause
    table = table_reader_for_file(name or "a data set", file, None, dialect)
    kinds = table.kinds_of_columns()
    if not name or not kinds:
        raise BadInput(f"Expected {file} to have a header with names, and a name for the data set (name=...).")
    label = settings.get("label")
    if label is not None and label not in kinds:
        raise BadInput(
            f"Expected label={label} to be a column of {file}.{nearest_name_text(label, list(kinds), 'name')}"
        )
    read = table.read_columns([column for column in kinds if column]) if is_public else None
    make_folder_and_missing_parents(path.parent)
    text = "\n".join(_yaml_lines(name, file, label, kinds, settings, read)) + "\n"
    path.write_text(text, encoding="utf-8")
    print_line(f"{path} is written, from {'all records' if is_public else 'the header alone: no record was read'}.")
    command = f"dpsweep plan --config-dir {FOLDER.parent} dataset={name}"
    print_line(f"Fill in each {OPEN} from what is known beforehand, then: {command}")


def _yaml_lines(
    name: str,
    file: str,
    label: str | None,
    kinds: Mapping[str, ColumnKind | None],
    settings: Mapping[str, str],
    read: Mapping[str, TableColumn] | None,
) -> Iterator[str]:
    """The lines of the file."""
    columns = {
        column: _declared_column(kind, None if read is None else read[column])
        for column, kind in kinds.items()
        if column and column != label
    }
    labels = None if read is None or label is None else _listed_values(read[label])
    whence = (
        "from its records, which you declared public" if read is not None else "from its header: no record was read"
    )
    yield "# @package _global_"
    yield f"# Of {escape_invisible_characters(file)}, {whence}. Fill in each {OPEN} from what is known"
    yield "# beforehand: whatever is computed from private records is a query that nobody has paid for."
    yield "defaults:"
    yield "  - table"
    yield "  # - override /loss: squared_error # of a number: target: [low, high], classes: 1 and no labels"
    yield ""
    yield "dataset:"
    yield f"  name: {_yaml_text(name)}"
    yield f"  file: {_yaml_text(file)}"
    for key in DIALECT_KEYS:
        if key in settings:
            yield f"  {key}: {_yaml_text(settings[key])}"
    if None in kinds.values():
        yield '  # decimal: comma, date_format: "%d.%m.%Y" and na_values: [NA] say how the cells are written'
    yield "  # missing: {COLUMN: 170} says what an empty cell counts as; then a number or a day is two inputs"
    if read is not None:
        yield "  public: true # nothing protects these records"
    count = OPEN if read is None else str(len(next(iter(read.values())).texts()))
    yield f"  records: {count} # about how many rows there are, a number that you may publish"
    shape = _number_of_inputs(columns.values())
    yield f"  shape: {shape} # [n] for n inputs: a number or a day is one, a category one for each of its values"
    choices = ", ".join(_yaml_text(column) for column in kinds if column)
    yield f"  label: {OPEN if label is None else _yaml_text(label)} # the column to predict, one of {choices}"
    listed_labels = OPEN if labels is None else _yaml_list(labels)
    yield f"  labels: {listed_labels} # its values, in their order; or target: [low, high] of a number"
    yield f"  classes: {OPEN if labels is None else len(labels)} # how many these are"
    for group, meaning in (
        ("bounds", "numbers, by the range that is possible; take out what is not to be learned from"),
        ("dates", "days, by the first and the last possible one"),
        ("categories", "names, by their values"),
    ):
        listed = {column: one for column, one in columns.items() if one.group == group}
        yield f"  {group}:{'' if listed else ' {}'} # {meaning}"
        for column, one in listed.items():
            yield f"    {_yaml_text(column)}: {one.value} # {one.comment}"
    for column, one in columns.items():
        if one.group == LEFT_OUT:
            yield f"  # left out: {_yaml_text(column)}, {one.comment}"
    yield "  # where a person has several rows: unit: patient, unit_column: the column that tells patients apart,"
    yield "  # units: about how many there are, contribution_cap: the most rows of one that are used"
    yield "  unit: record"
    yield ""
    yield "privacy:"
    yield f"  delta: {OPEN if read is None else '1.0e-5'} # below 1 / records, or 1 / units"
    if read is None:
        yield "budget: # what you allow the account in all, sweep after sweep"
        yield f"  epsilon: {OPEN}"
        yield f"  delta: {OPEN}"
        yield "# sampler: {batch_size: 250} # at most four fifths of the records or units: a fifth is for scores"


def _declared_column(kind: ColumnKind | None, column: TableColumn | None) -> DeclaredColumn:
    """What is written of a column by its kind, or by its values where they are public."""
    if column is not None:
        return _column_of_public_values(column)
    if kind is ColumnKind.DAY:
        return DeclaredColumn(group="dates", value=OPEN, comment="[2015-01-01, 2024-12-31]")
    if kind is ColumnKind.NAME:
        return DeclaredColumn(group="categories", value=OPEN, comment="[one, other]")
    comment = (
        "[low, high]" if kind is ColumnKind.NUMBER else "[low, high]; names belong below categories, days below dates"
    )
    return DeclaredColumn(group="bounds", value=OPEN, comment=comment)


def _column_of_public_values(column: TableColumn) -> DeclaredColumn:
    """The range of public numbers, or the values of a public category."""
    numbers = _numbers_or_none(column)
    if numbers is not None:
        low, high = float(numbers.min()), float(numbers.max())
        return DeclaredColumn(
            group="bounds", value=f"[{low:g}, {high if high > low else low + 1:g}]", comment="as found"
        )
    values = _listed_values(column)
    if 1 <= len(values) <= MOST_VALUES:
        return DeclaredColumn(group="categories", value=_yaml_list(values), comment="as found")
    return DeclaredColumn(group=LEFT_OUT, value="", comment=f"{len(values)} values")


def _numbers_or_none(column: TableColumn) -> NDArray[np.float64] | None:
    """The numbers of a column without missing ones; None if any value is something else, or there is none."""
    found = Mismatches()
    try:
        numbers = column.numbers(found)
        found.require_none()
    except BadInput:
        return None
    kept: NDArray[np.float64] = numbers[[not math.isnan(number) for number in numbers]]
    return kept if len(kept) else None


def _listed_values(column: TableColumn) -> list[str]:
    """The distinct values that are there."""
    return sorted(set(column.texts()) - {""})


def _number_of_inputs(columns: Iterable[DeclaredColumn]) -> str:
    """The number of inputs in brackets, open if a column is."""
    total = 0
    for column in columns:
        if column.value == OPEN:
            return OPEN
        if column.group != LEFT_OUT:
            total += 1 if column.group == "bounds" else len(json.loads(column.value))
    return f"[{total}]"


def _yaml_text(text: str) -> str:
    """A text as YAML, in quotes where it needs them."""
    plain = _PLAIN.fullmatch(text) and text.casefold() not in _YAML_WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


def _yaml_list(values: Sequence[str]) -> str:
    return json.dumps(list(values), ensure_ascii=False)
