"""Tables as hospitals and offices have them: each oddity is read right, or refused with its cause and its mending."""

from __future__ import annotations

import bz2
import dataclasses
import datetime
import gzip
import io
import lzma
import unicodedata
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.sets.own_tables import Table

TABLE = Table(
    name="visits",
    records=3,
    shape=(4,),
    classes=2,
    unit="record",
    file="visits.csv",
    label="krank",
    labels=("ja", "nein"),
    bounds={"größe": (100, 200), "alter": (0, 100)},
    categories={"station": ("süd", "nord")},
)
PLAIN = "größe,alter,station,krank\n150,50,süd,ja\n125,25,nord,nein\n200,100,süd,ja\n"
INPUTS = [[0.5, 0.5, 1, 0], [0.25, 0.25, 0, 1], [1, 1, 1, 0]]
"""alter, größe, and the two stations: in the alphabetical order of the columns."""

BY_PATIENT = dataclasses.replace(TABLE, unit="patient", unit_column="fall", units=2, contribution_cap=2)


def replaced(*pairs: tuple[str, str]) -> str:
    text = PLAIN
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def zipped(*texts: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, text in enumerate(texts):
            archive.writestr(f"{place}.csv", text)
    return buffer.getvalue()


def inputs_of(table: Table, folder: Path, content: bytes) -> list[list[float]]:
    (folder / table.file).write_bytes(content)
    return loaded(table, folder)


def loaded(table: Table, folder: Path) -> list[list[float]]:
    table.locate(folder)
    table.verify(folder)
    records = table.load(folder)[0]
    assert records.labels.tolist() == [0, 1, 0]
    return [[round(float(value), 4) for value in row] for row in records.features]


READ: dict[str, tuple[bytes, dict[str, Any]]] = {
    "UTF-8": (PLAIN.encode(), {}),
    "UTF-8 with a mark": (PLAIN.encode("utf-8-sig"), {}),
    "UTF-16 with a mark": (PLAIN.encode("utf-16"), {}),
    "UTF-16 without a mark": (PLAIN.encode("utf-16-le"), {"encoding": "utf-16-le"}),
    "Latin-1, declared": (PLAIN.encode("latin-1"), {"encoding": "latin-1"}),
    "cp1252, declared": (PLAIN.encode("cp1252"), {"encoding": "cp1252"}),
    "a file that is decomposed": (unicodedata.normalize("NFD", PLAIN).encode(), {}),
    "a declaration that is decomposed": (
        PLAIN.encode(),
        {"bounds": {unicodedata.normalize("NFD", "größe"): (100, 200), "alter": (0, 100)}},
    ),
    "semicolons": (PLAIN.replace(",", ";").encode(), {}),
    "tabs": (PLAIN.replace(",", "\t").encode(), {}),
    "pipes": (PLAIN.replace(",", "|").encode(), {}),
    "a delimiter that is declared": (PLAIN.replace(",", "^").encode(), {"delimiter": "^"}),
    "a delimiter by its word": (PLAIN.replace(",", " ").encode(), {"delimiter": "space"}),
    "semicolons and decimal commas": (
        replaced(("125", "125,0"), ("50,", "50;")).replace(",", ";").replace("125;0", "125,0").encode(),
        {"decimal": "comma"},
    ),
    "the line of spreadsheets before the header": (("sep=;\r\n" + PLAIN.replace(",", ";")).encode(), {}),
    "blank lines": (("\n\n" + PLAIN.replace("\n", "\n\n")).encode(), {}),
    "carriage returns": (PLAIN.replace("\n", "\r\n").encode(), {}),
    "carriage returns alone": (PLAIN.replace("\n", "\r").encode(), {}),
    "no line end at the end": (PLAIN.rstrip().encode(), {}),
    "rows of empty cells at the end": ((PLAIN + ",,,\n,,,\n").encode(), {}),
    "a delimiter at the end of each line": (PLAIN.replace("\n", ",\n").encode(), {}),
    "a delimiter at the end of each row alone": (replaced(("ja\n", "ja,\n")).encode(), {}),
    "quotes around everything": (
        "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in PLAIN.splitlines()).encode(),
        {},
    ),
    "a delimiter, a quote and a line end in a cell": (
        replaced(
            ("krank\n", "krank,notiz\n"), ("süd,ja\n", 'süd,ja,"a ""b"", c\nd"\n'), ("nein\n", "nein,\n")
        ).encode(),
        {},
    ),
    "spaces around cells and names": (replaced((",", " , "), ("süd", "\u00a0süd ")).encode(), {}),
    "gzip": (gzip.compress(PLAIN.encode()), {}),
    "bzip2": (bz2.compress(PLAIN.encode()), {}),
    "xz": (lzma.compress(PLAIN.encode()), {}),
    "zip": (zipped(PLAIN), {}),
    "gzip, Latin-1 and semicolons": (
        gzip.compress(PLAIN.replace(",", ";").encode("latin-1")),
        {"encoding": "latin-1"},
    ),
    "exponents and signs": (replaced(("150", "+1.5e2"), ("25,nord", "025.0,nord")).encode(), {}),
    "another column twice": (
        "\n".join(f"{line},x,x" for line in PLAIN.splitlines()).encode(),
        {},
    ),
    "a gap with a constant": (replaced(("125", "")).encode(), {"missing": {"größe": 125}, "shape": (5,)}),
    "a word for a gap": (
        replaced(("125", "k.A.")).encode(),
        {"missing": {"größe": 125}, "na_values": ["k.A."], "shape": (5,)},
    ),
    "labels in quotes with blanks": (
        replaced(("ja", '" ja  "'), ("nein", "nicht bekannt")).encode(),
        {"labels": ("ja", "nicht bekannt")},
    ),
}


@pytest.mark.parametrize("oddity", READ)
def test_it_is_read_right(tmp_path: Path, oddity: str) -> None:
    content, declared = READ[oddity]
    expected = INPUTS
    if "shape" in declared:
        expected = [[age, height, float(place == 1), *ward] for place, (age, height, *ward) in enumerate(INPUTS)]
    assert inputs_of(dataclasses.replace(TABLE, **declared), tmp_path, content) == expected


REFUSED: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "Latin-1, undeclared, in the header": (
        PLAIN.encode("latin-1"),
        {},
        r"the header of visits\.csv to be UTF-8, got b'gr\\xf6\\xdfe'\. dataset\.encoding=cp1252",
    ),
    "Latin-1, undeclared, in a cell": (
        replaced(("größe", "hoehe")).encode("latin-1"),
        {"bounds": {"hoehe": (100, 200), "alter": (0, 100)}},
        r"station in line 2 of visits\.csv to be UTF-8, got .*\. dataset\.encoding=cp1252",
    ),
    "an encoding beside a mark": (
        PLAIN.encode("utf-16"),
        {"encoding": "cp1252"},
        r"dataset\.encoding=cp1252 to be left out: visits\.csv starts with a mark of UTF-16",
    ),
    "UTF-16 without a mark": (PLAIN.encode("utf-16-le"), {}, r"visits\.csv to be a text, got bytes of 0.*utf-16-le"),
    "UTF-16 that is cut": (
        PLAIN.encode("utf-16")[:-1],
        {},
        r"visits\.csv to be a readable CSV file, got: .*truncated data",
    ),
    "a header of another case": (
        replaced(("alter", "Alter")).encode(),
        {},
        r"one column alter in .*, got 0\. The nearest name is 'Alter'",
    ),
    "a header twice": (
        replaced(("größe,alter", "alter,alter")).encode(),
        {},
        r"one column alter in the header of visits\.csv, got 2",
    ),
    "no header": (
        PLAIN.split("\n", 1)[1].encode(),
        {},
        r"one column krank in the header of visits\.csv, got 0\. Known: '150'",
    ),
    "an unknown delimiter": (
        PLAIN.replace(",", "^").encode(),
        {},
        r"the one name 'größe\^alter.*': dataset\.delimiter says",
    ),
    "an undeclared category": (
        replaced(("süd", "Süd")).encode(),
        {},
        r"station in line 2 of visits\.csv to be a declared value, got 'Süd'; 2 rows have such a value\. The nearest "
        r"declared value is 'süd'\. .*dataset\.other=zeros",
    ),
    "an undeclared label": (
        replaced(("nein", "Nein")).encode(),
        {},
        r"krank in line 3 .* got 'Nein'\. The nearest declared value is 'nein'",
    ),
    "labels as floats": (
        replaced(("ja", "1.0"), ("nein", "0.0")).encode(),
        {"labels": (0, 1)},
        r"krank in line 2 .* to be a declared value, got '1\.0'; 3 rows have such a value\. .* '1'",
    ),
    "an empty cell of a number": (
        replaced(("125", "")).encode(),
        {},
        r"größe in line 3 of visits\.csv to have a number, got an empty cell\. dataset\.missing=\{größe: \.\.\.\}",
    ),
    "an empty cell of a category": (
        replaced(("nord", "")).encode(),
        {},
        r"station in line 3 .* to have a category, got .*missing=\{station: unknown\}",
    ),
    "an empty label": (replaced(("nein", "")).encode(), {}, r"krank in line 3 .* got an empty cell"),
    "a word for a gap": (
        replaced(("125", "NA")).encode(),
        {},
        r"größe in line 3 .* got 'NA'\. dataset\.na_values=\['NA'\] says",
    ),
    "a decimal comma, undeclared": (
        PLAIN.replace(",", ";").replace("125", "125,5").encode(),
        {},
        r"größe in line 3 .* got '125,5'\. A decimal comma is declared by dataset\.decimal=comma",
    ),
    "marks between thousands": (
        replaced(("125", '"1,125"')).encode(),
        {},
        r"größe in line 3 .* got '1,125'\. .*marks between thousands",
    ),
    "marks between thousands beside decimal commas": (
        PLAIN.replace(",", ";").replace("125", "1.125,5").encode(),
        {"decimal": "comma"},
        r"größe in line 3 .* got '1\.125,5'",
    ),
    "underscores in numbers": (replaced(("125", "1_25")).encode(), {}, r"größe in line 3 .* got '1_25'"),
    "booleans as numbers": (
        replaced(("125", "True")).encode(),
        {},
        r"größe in line 3 .* got 'True'\. Declare the column in dataset\.categories",
    ),
    "a decimal comma between commas": (
        replaced(("125", "125,5")).encode(),
        {},
        r"4 values in line 3 .*, got 5\. A number with a decimal comma needs",
    ),
    "a short row": (replaced((",nord,nein", ",nord")).encode(), {}, r"4 values in line 3 of visits\.csv, got 3"),
    "quotes that are not doubled": (
        replaced(("nord", '"no"rd"')).encode(),
        {},
        r"readable CSV file, got: .*quotes within quotes are doubled",
    ),
    "a gzip file that is cut": (gzip.compress(PLAIN.encode())[:-9], {}, r"readable CSV file, got: "),
    "an archive of two files": (zipped(PLAIN, PLAIN), {}, r"visits\.csv to be an archive of one file, got 2"),
    "an old Excel file": (b"\xd0\xcf\x11\xe0" + bytes(99), {}, r"a text table, got an old Excel .*save it as \.xlsx"),
    "a Parquet file by another name": (b"PAR1" + bytes(99), {}, r"a text table, got a Parquet file; name it \.parquet"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(99), {}, r"a text table, got compressed by zstd"),
    "a binary file": (bytes(range(256)), {}, r"visits\.csv to be a text"),
    "nothing": (b"", {}, r"one column krank in the header of visits\.csv, got 0"),
}


@pytest.mark.parametrize("oddity", REFUSED)
def test_it_is_refused_with_its_cause(tmp_path: Path, oddity: str) -> None:
    content, declared, sentence = REFUSED[oddity]
    table = dataclasses.replace(TABLE, **declared)
    (tmp_path / table.file).write_bytes(content)
    for read in (table.verify, table.load):
        with pytest.raises(BadInput, match=rf"^Expected .*{sentence}"):
            read(tmp_path)


def test_the_same_table_is_recognised_in_every_compression(tmp_path: Path) -> None:
    contents = []
    for name, content in (
        ("a.csv", PLAIN.encode()),
        ("b.csv.gz", gzip.compress(PLAIN.encode())),
        ("c.zip", zipped(PLAIN)),
    ):
        (tmp_path / name).write_bytes(content)
        contents.append(dataclasses.replace(TABLE, file=name).verify(tmp_path))
    assert contents[0] == contents[1] == contents[2]


def test_what_is_not_declared_is_accepted_openly(tmp_path: Path) -> None:
    content = replaced(("nord", "west")).encode()
    zeros = dataclasses.replace(TABLE, other="zeros")
    assert inputs_of(zeros, tmp_path, content)[1] == [0.25, 0.25, 0, 0]
    assert zeros.preprocessing["columns"][2] == {"name": "station", "values": ["süd", "nord"], "unlisted": "zeros"}
    own = dataclasses.replace(TABLE, other="category", shape=(5,))
    assert inputs_of(own, tmp_path, content)[1] == [0.25, 0.25, 0, 0, 1]
    assert own.input_names == ("alter", "größe", "station: süd", "station: nord", "station: (other)")
    unknown = dataclasses.replace(TABLE, missing={"station": "unbekannt"}, shape=(5,))
    assert inputs_of(unknown, tmp_path, replaced(("nord", "")).encode())[1] == [0.25, 0.25, 0, 0, 1]
    south = dataclasses.replace(TABLE, missing={"station": "süd"})
    assert inputs_of(south, tmp_path, replaced(("nord", "")).encode())[1] == [0.25, 0.25, 1, 0]


@pytest.mark.parametrize(
    ("day", "form"), [("2020-01-11", "%Y-%m-%d"), ("11.01.2020", "%d.%m.%Y"), ("01/11/20", "%m/%d/%y")]
)
def test_days_count_from_the_first_declared_one(tmp_path: Path, day: str, form: str) -> None:
    table = dataclasses.replace(
        TABLE, bounds={"alter": (0, 100)}, dates={"größe": ("2020-01-01", "2020-01-21")}, date_format=form
    )
    assert inputs_of(table, tmp_path, replaced(("150", day), ("125", day), ("200", day)).encode())[0] == [
        0.5,
        0.5,
        1,
        0,
    ]
    with pytest.raises(
        BadInput, match=r"größe in line 3 .* to be a day as .* \(dataset\.date_format\), got '32\.13\.'"
    ):
        inputs_of(table, tmp_path, replaced(("150", day), ("125", "32.13."), ("200", day)).encode())
    gaps = dataclasses.replace(table, missing={"größe": "2020-01-06"}, shape=(5,))
    assert inputs_of(gaps, tmp_path, replaced(("150", day), ("125", ""), ("200", day)).encode())[1][1:3] == [0.25, 1]


def test_a_workbook_is_read_as_it_shows(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="writes the workbooks of this test")
    pytest.importorskip("python_calamine", reason="needs pip install 'dpsweep[excel]'")
    book = openpyxl.Workbook()
    for row in (
        ("größe", "alter", "station", "krank"),
        (150, 50.0, "süd", "ja"),
        (125, 25, " nord", "nein"),
        (200, 100, "süd", "ja"),
    ):
        book.active.append(row)
    book.save(tmp_path / "visits.xlsx")
    table = dataclasses.replace(TABLE, file="visits.xlsx")
    assert loaded(table, tmp_path) == INPUTS
    first = table.verify(tmp_path)
    book.active["A2"].font = openpyxl.styles.Font(bold=True)
    book.save(tmp_path / "visits.xlsx")
    assert table.verify(tmp_path) == first, "a format plays no part"
    book.active["A2"] = datetime.date(2020, 1, 11)
    book.save(tmp_path / "visits.xlsx")
    with pytest.raises(BadInput, match=r"größe in row 2 of visits\.xlsx .* got '2020-01-11'"):
        table.verify(tmp_path)
    book.create_sheet("notes")
    book.save(tmp_path / "visits.xlsx")
    with pytest.raises(BadInput, match=r"visits\.xlsx to have one sheet, got Sheet, notes"):
        table.verify(tmp_path)
    (tmp_path / "visits.xlsx").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(BadInput, match=r"visits\.xlsx to be a readable workbook"):
        table.verify(tmp_path)


def test_a_workbook_that_unpacks_to_more_than_memory_is_refused_by_its_directory(tmp_path: Path) -> None:
    with (
        zipfile.ZipFile(tmp_path / "visits.xlsx", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("xl/worksheets/sheet1.xml", "w") as sheet,
    ):
        for _ in range(600):
            sheet.write(bytes(10**6))
    with pytest.raises(BadInput, match=r"visits\.xlsx .* unpacks to 600 MB, more than 500: save it as CSV"):
        dataclasses.replace(TABLE, file="visits.xlsx").verify(tmp_path)


def parquet(folder: Path, name: str, **columns: Any) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs pip install 'dpsweep[arrow]'")
    import pyarrow.parquet

    whole = {
        "größe": [150, 125, 200],
        "alter": [50.0, 25.0, 100.0],
        "station": ["süd", "nord", "süd"],
        "krank": ["ja", "nein", "ja"],
    }
    pyarrow.parquet.write_table(pa.table(whole | columns), folder / name)


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    parquet(tmp_path / "parts", "part-0.parquet")
    parquet(tmp_path / "parts", "part-1.parquet", größe=[150.0, 125.0, 200.0])
    (tmp_path / "parts" / "_SUCCESS").touch()
    records = dataclasses.replace(TABLE, file="parts").load(tmp_path)[0]
    assert records.features.tolist() == [*INPUTS, *INPUTS]
    (tmp_path / "parts" / "year=2020").mkdir()
    with pytest.raises(BadInput, match=r"parts to have Parquet files and no folders, got year=2020"):
        dataclasses.replace(TABLE, file="parts").verify(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"visits needs .*empty: put it there"):
        dataclasses.replace(TABLE, file="empty").locate(tmp_path)


@pytest.mark.parametrize(
    ("columns", "declared"),
    [
        ({"krank": [1.0, 0.0, 1.0]}, {"labels": (1, 0)}),
        ({"station": [7.0, None, 7.0]}, {"categories": {"station": (7,)}, "missing": {"station": "keine"}}),
        ({"alter": [True, False, True]}, {"bounds": {"größe": (100, 200), "alter": (-1, 1)}}),
    ],
)
def test_types_that_pandas_writes_are_read(tmp_path: Path, columns: dict[str, Any], declared: dict[str, Any]) -> None:
    parquet(tmp_path, "visits.parquet", **columns)
    inputs = loaded(dataclasses.replace(TABLE, file="visits.parquet", **declared), tmp_path)
    ages = [1, 0.5, 1] if "alter" in columns else [row[0] for row in INPUTS]
    assert inputs == [[age, *row[1:]] for age, row in zip(ages, INPUTS, strict=True)]


def test_names_of_typed_columns_are_composed_as_well(tmp_path: Path) -> None:
    parquet(tmp_path, "visits.parquet")
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "visits.parquet")
    names = [unicodedata.normalize("NFD", name) for name in table.column_names]
    pyarrow.parquet.write_table(table.rename_columns(names), tmp_path / "visits.parquet")
    assert loaded(dataclasses.replace(TABLE, file="visits.parquet"), tmp_path) == INPUTS


@pytest.mark.parametrize("type_", ["date32", "timestamp"])
def test_typed_days_are_read(tmp_path: Path, type_: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs pip install 'dpsweep[arrow]'")
    days = [datetime.datetime(2020, 1, 11, 12), None, datetime.datetime(2020, 1, 31)]
    parquet(
        tmp_path,
        "visits.parquet",
        größe=pa.array(days, pa.timestamp("us")).cast(
            pa.date32() if type_ == "date32" else pa.timestamp("ms"), safe=False
        ),
    )
    table = dataclasses.replace(
        TABLE,
        file="visits.parquet",
        bounds={"alter": (0, 100)},
        dates={"größe": ("2020-01-01", "2020-01-21")},
        missing={"größe": "2020-01-06"},
        shape=(5,),
    )
    assert [row[1:3] for row in loaded(table, tmp_path)] == [[0.5, 0], [0.25, 1], [1, 0]]


def test_a_dialect_is_refused_where_columns_have_types(tmp_path: Path) -> None:
    parquet(tmp_path, "visits.parquet")
    with pytest.raises(BadInput, match=r"dataset\.delimiter, .* to be left out with visits\.parquet"):
        dataclasses.replace(TABLE, file="visits.parquet", encoding="cp1252").locate(tmp_path)


def test_a_unit_is_the_same_in_both_forms_of_a_letter(tmp_path: Path) -> None:
    name = "Müller"
    rows = [
        f"{line},{who}"
        for line, who in zip(
            PLAIN.splitlines(), ("fall", name, unicodedata.normalize("NFD", name), "17.0"), strict=True
        )
    ]
    (tmp_path / "visits.csv").write_text("\n".join(rows))
    units = BY_PATIENT.load(tmp_path)[0].units
    assert units is not None
    assert set(units.names) == {b"17.0", name.encode()}


def test_two_thousand_columns_are_read(tmp_path: Path) -> None:
    wide = ",".join(f"x{place}" for place in range(2000))
    (tmp_path / "visits.csv").write_text(f"{wide},krank\n{','.join(['0.5'] * 2000)},ja\n")
    bounds = {f"x{place}": (0, 1) for place in range(2000)}
    table = dataclasses.replace(TABLE, bounds=bounds, categories=None, shape=(2000,))
    assert table.load(tmp_path)[0].features.shape == (1, 2000)


@pytest.mark.parametrize("rows", [40_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_many_rows_are_read_and_a_late_mismatch_has_its_line(tmp_path: Path, rows: int) -> None:
    (tmp_path / "visits.csv").write_text("x0,krank\n" + "0.25,ja\n0.75,nein\n" * (rows // 2))
    table = dataclasses.replace(TABLE, bounds={"x0": (0, 1)}, categories=None, shape=(1,))
    features = table.load(tmp_path)[0].features
    assert features.shape == (rows, 1)
    assert float(features.mean()) == 0.5
    with (tmp_path / "visits.csv").open("a") as stream:
        stream.write("x,ja\n" * 3)
    with pytest.raises(BadInput, match=rf"x0 in line {rows + 2} of visits\.csv to be a finite number, got 'x'; 3 rows"):
        table.verify(tmp_path)


def test_one_column_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"to have the columns krank, .*, got the one name 'krank'"):
        inputs_of(TABLE, tmp_path, b"krank\nja\nnein\nja\n")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"delimiter": "tabs"}, r"dataset\.delimiter='tabs' to be null, one character, or one of comma"),
        ({"decimal": "dot"}, r"dataset\.decimal='dot' to be null or one of point, comma"),
        ({"encoding": "latin-99"}, r"dataset\.encoding='latin-99' to be null or an encoding"),
        ({"encoding": "base64"}, r"dataset\.encoding='base64' to be null or an encoding"),
        ({"na_values": [7]}, r"dataset\.na_values=\[7\] to be a list of texts"),
        ({"na_values": "NA"}, r"dataset\.na_values='NA' to be a list of texts"),
        ({"other": "ones"}, r"dataset\.other='ones' to be null, zeros or category"),
        ({"missing": {"puls": 60}}, r"dataset\.missing=\['puls'\] to name columns of bounds, dates or categories"),
        ({"missing": {"alter": 300}}, r"dataset\.missing\.alter=300 to be a number from 0 to 100, its bounds"),
        ({"missing": {"alter": "alt"}}, r"dataset\.missing\.alter='alt' to be a number"),
        ({"missing": {"station": 7}}, r"dataset\.missing\.station=7 to be the name of a category"),
        ({"dates": {"tag": ("2020-02-30", "2021-01-01")}}, r"dataset\.dates\.tag=.* to be the first and the last day"),
        ({"dates": {"tag": ("2022-01-01", "2021-01-01")}}, r"2021-01-01 is not after 2022-01-01"),
        (
            {"dates": {"tag": ("2020-01-01", "2021-01-01")}, "missing": {"tag": "2022-01-01"}},
            r"dataset\.missing\.tag=2022-01-01 to be a day from 2020-01-01",
        ),
        ({"dates": {"alter": ("2020-01-01", "2021-01-01")}}, "to be distinct"),
        ({"other": "category"}, r"dataset\.shape=\[4\] == \[5\], as many as the inputs of .*station: \(other\)"),
        ({"missing": {"alter": 50}}, r"dataset\.shape=\[4\] == \[5\], as many as the inputs of .*alter missing"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(TABLE, **wrong)
