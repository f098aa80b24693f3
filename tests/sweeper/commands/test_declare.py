"""`dpsweep declare`: a file to fill in, from a header alone; ranges and values of records that are declared public."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.declare import write_declaration
from tests.randomized import TRAINS
from tests.sweeper.search_programs import Program

HEADER = "fall;größe;=x, y;station;krank"
ROWS = tuple(
    f"P{row};{150 + row};{row},5;{'süd' if row % 2 else 'nord'};{'ja' if row % 3 else 'nein'}" for row in range(60)
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("visits.csv").write_text("\n".join((HEADER, *ROWS)) + "\n", encoding="utf-8")


def written(name: str = "visits") -> str:
    return Path(f"conf/dataset/{name}.yaml").read_text(encoding="utf-8")


def test_every_column_is_open_and_no_record_is_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    write_declaration(["visits.csv", "label=krank", "decimal=comma"])
    text = written()
    for line in (
        '    "größe": ??? # [low, high]',
        '    "=x, y": ??? # [low, high]',
        "  label: krank # the column to predict",
        "  labels: ???",
        "  records: ???",
        "  decimal: comma",
        "  epsilon: ???",
    ):
        assert line in text
    assert "no record was read" in capsys.readouterr().out
    Path("visits.csv").write_text(HEADER + "\n", encoding="utf-8")
    write_declaration(["visits.csv", "label=krank", "decimal=comma", "name=empty"])
    assert written("empty").replace("name: empty", "name: visits") == text, "rows play no part"


@pytest.mark.parametrize("name", ["visits.parquet", "visits.feather", "parts"])
def test_types_tell_numbers_names_and_days(name: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs pip install 'dpsweep[arrow]'")
    import datetime

    import pyarrow.feather
    import pyarrow.parquet

    day = datetime.date(2020, 1, 1)
    table = pa.table({"alter": [1.5], "station": pa.array(["süd"]).dictionary_encode(), "tag": [day], "krank": [True]})
    if name == "parts":
        Path(name).mkdir()
    place = Path(name) / "part-0.parquet" if name == "parts" else Path(name)
    (pyarrow.feather.write_feather if name.endswith("feather") else pyarrow.parquet.write_table)(table, place)
    write_declaration([name, "label=krank"])
    (text,) = (path.read_text(encoding="utf-8") for path in Path("conf/dataset").iterdir())
    groups = re.findall(r"^  (bounds|dates|categories):.*\n    (\w+): \?\?\?", text, re.MULTILINE)
    assert groups == [("bounds", "alter"), ("dates", "tag"), ("categories", "station")]


@TRAINS
def test_a_public_table_needs_nothing_more(program: Program, tmp_path: Path) -> None:
    declared = program("declare", "visits.csv", "label=krank", "decimal=comma", "--public", module="dpsweep")
    assert declared.returncode == 0, declared.stderr
    text = written()
    for line in (
        '    "größe": [150, 209] # as found',
        '    "=x, y": [0.5, 59.5] # as found',
        '    station: ["nord", "süd"] # as found',
        '  labels: ["ja", "nein"]',
        "  records: 60 ",
        "  shape: [4] ",
        "  # left out: fall, 60 values",
    ):
        assert line in text
    words = ("dataset=visits", "trainer=sgd", "trainer.lr=1", "steps=3", "score=training", "sampler.batch_size=20")
    done = program(*words, f"hydra.searchpath=[file://{tmp_path}/conf]")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Expected a table, and then name="),
        (["visits.csv", "rows=3"], "Expected a table, and then name="),
        (["visits.csv", "label="], "Expected a table, and then name="),
        (["visits.csv", "dataset.encoding=cp1252"], "`dataset.encoding=cp1252` is `encoding=cp1252` for declare"),
        (
            ["visits.csv", "label=Krank"],
            r"Expected label=Krank to be a column of visits\.csv\. The nearest name is 'krank'",
        ),
        (["visits.csv", "delimiter=tabs"], r"Expected dataset\.delimiter='tabs'"),
        (["visit.csv"], r"visit needs visit\.csv: put it there"),
        (["nothing.csv"], r"Expected nothing\.csv to have a header with names"),
    ],
)
def test_what_cannot_be_declared_is_one_sentence(words: list[str], sentence: str) -> None:
    Path("nothing.csv").touch()
    with pytest.raises(BadInput, match=sentence):
        write_declaration(words)
    assert not Path("conf").exists()


def test_a_file_that_is_there_is_kept() -> None:
    write_declaration(["visits.csv"])
    with pytest.raises(BadInput, match=r"Expected conf/dataset/visits\.yaml to be a new file"):
        write_declaration(["visits.csv"])


def test_one_round_names_all_that_a_declaration_lacks_and_one_all_that_the_table_holds_else(program: Program) -> None:
    program("declare", "visits.csv", "label=krank", module="dpsweep")
    text = written()
    lacking = program("plan", "--config-dir", "conf", "dataset=visits", module="dpsweep").stderr
    keys = ("labels", "classes", "shape", "records", "bounds.größe")
    assert all(f"  dataset.{key}=" in lacking for key in keys)
    for line, value in (
        *((rf"  {key}", value) for key, value in (("records", "60"), ("shape", "[3]"), ("classes", "2"))),
        *(("  labels", "[ja, nein]"), ("    fall", "[0, 1]"), ("    station", "[0, 1]"), ('    "=x, y"', "[0, 60]")),
        *(("  delta", "1e-4"), ("  epsilon", "9"), ('    "größe"', "[150, 210]")),
    ):
        text = re.sub(rf"^{re.escape(line)}: \?\?\?", f"{line}: {value}", text, flags=re.MULTILINE)
    Path("conf/dataset/visits.yaml").write_text(text.replace("shape: [3]", "shape: [4]"), encoding="utf-8")
    words = ("trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=5", "sampler.batch_size=9", "data=.")
    found = program("sweep", "--config-dir", "conf", "dataset=visits", *words, module="dpsweep").stderr
    assert [line.partition(" in ")[0] for line in found.splitlines()[:-1]] == [
        "Expected =x, y",
        "Expected fall",
        "Expected station",
    ], found
