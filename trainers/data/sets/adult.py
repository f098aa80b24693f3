"""The Adult census data: whether a person earns more than 50000 dollars a year.

Every input is a function of its own record and of public constants: numbers are clamped to the bounds of the
data set's YAML and scaled to [0, 1], categories are one-hot over the lists that the data's documentation
publishes. Rows with a missing value ('?') are left out; this depends on each row alone. With `left_out` null they are
kept, and a missing category is all zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.columns import Column, checked_public_bounds, positions_in_list
from dpsweep.trainers.data.feature_columns import ZEROS, CategoryColumn, NumberColumn
from dpsweep.trainers.data.mismatches import mismatches_refused
from dpsweep.trainers.data.official_files import FromFiles
from dpsweep.trainers.data.preprocessing import preprocessing_form_of_feature_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dpsweep.trainers.data.official_files import Arrays
    from dpsweep.trainers.data.preprocessing import Form

NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
CATEGORIES: dict[str, tuple[str, ...]] = {
    key: tuple(values.split())
    for key, values in {
        "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
        "education": "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th "
        "7th-8th 12th Masters 1st-4th 10th Doctorate 5th-6th Preschool",
        "marital-status": "Married-civ-spouse Divorced Never-married Separated Widowed "
        "Married-spouse-absent Married-AF-spouse",
        "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
        "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing "
        "Transport-moving Priv-house-serv Protective-serv Armed-Forces",
        "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
        "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
        "sex": "Female Male",
        "native-country": "United-States Cambodia England Puerto-Rico Canada Germany "
        "Outlying-US(Guam-USVI-etc) India Japan Greece South China Cuba Iran Honduras "
        "Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
        "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala "
        "Nicaragua Scotland Thailand Yugoslavia El-Salvador Trinadad&Tobago Peru Hong "
        "Holand-Netherlands",
    }.items()
}
COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)
PRIVATE_FILE, PUBLIC_FILE = "adult.data", "adult.test"
MISSING = "?"
INCOMES = ("<=50K", ">50K")
WIDTH = len(NUMBERS) + sum(map(len, CATEGORIES.values()))


@dataclass(frozen=True, kw_only=True)
class Adult(FromFiles):
    """Rows of the 1994 census extract, complete ones unless `left_out` is None; adult.test is public.

    `bounds` gives each number's public range.
    Shapes: features float32 [n, 105] in [0, 1], in the file's column order.
    Source: Kohavi, Scaling Up the Accuracy of Naive-Bayes Classifiers, KDD 1996; the lists are from adult.names.
    """

    leaves_out = "rows with a missing value"
    sizes = (WIDTH,)
    private_files = (PRIVATE_FILE,)
    bounds: Mapping[str, tuple[float, float]]

    def _check_declared_fields(self) -> None:
        object.__setattr__(self, "bounds", checked_public_bounds(self.bounds))
        if set(self.bounds) != set(NUMBERS):
            raise ValueError(f"Expected dataset.bounds={sorted(self.bounds)} for {sorted(NUMBERS)}.")

    @property
    def preprocessing(self) -> Form:
        """The columns in the file's order."""
        other = ZEROS if self.left_out is None else None
        forms = [
            NumberColumn(name=key, bounds=self.bounds[key]).form
            if key in self.bounds
            else CategoryColumn(name=key, values=CATEGORIES[key], other=other).form
            for key in COLUMNS
        ]
        return preprocessing_form_of_feature_columns(forms, INCOMES)

    def _private_and_public_arrays(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The rows of adult.data, then those of adult.test."""
        for file in (PRIVATE_FILE, PUBLIC_FILE):
            rows = parse_rows_by_line_number(contents[file], file)
            if self.left_out is not None:
                rows = {line: row for line, row in rows.items() if MISSING not in row}
            incomes = Column.from_cells("income", file, {line: row[-1].rstrip(".") for line, row in rows.items()})
            with mismatches_refused() as found:
                labels = positions_in_list(incomes, INCOMES, found)
            yield encode_rows_as_inputs(rows, self.bounds, file), labels


def parse_rows_by_line_number(content: bytes, file: str) -> dict[int, list[str]]:
    """The rows by line number: 14 attributes and the income; comments and blank lines are skipped."""
    rows = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
        if line.strip() and not line.startswith("|"):
            row = [value.strip() for value in line.split(",")]
            if len(row) != len(COLUMNS) + 1:
                raise BadInput(f"Expected {len(COLUMNS) + 1} values in line {number} of {file}, got {len(row)}.")
            rows[number] = row
    return rows


def encode_rows_as_inputs(
    rows: Mapping[int, Sequence[str]], bounds: Mapping[str, tuple[float, float]], file: str
) -> NDArray[np.float32]:
    """The inputs float32 [n, 105]: clamped and scaled numbers, one-hot categories, zeros for a missing one."""
    blocks: list[NDArray[np.float64]] = []
    with mismatches_refused() as found:
        for place, key in enumerate(COLUMNS):
            column = Column.from_cells(key, file, {line: row[place] for line, row in rows.items()})
            if key in bounds:
                blocks.append(NumberColumn(name=key, bounds=bounds[key]).inputs(column, found))
            else:
                listed = (*CATEGORIES[key], MISSING)
                blocks.append(np.eye(len(listed))[positions_in_list(column, listed, found)][:, :-1])
    return np.concatenate(blocks, axis=1).astype(np.float32)
