"""docs/your_data.md and its folder of three files are true: they are read, priced, trained and released."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.trainers.data.published_files import sha256_of_file_or_folder
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of
from tests.trainers import extractors
from tests.trainers.data.test_table_files import saved
from tests.trainers.extractors import SIZE, weights_file

pa = pytest.importorskip("pyarrow", reason="needs pip install 'dpsweep[arrow]'")
import pyarrow.parquet  # noqa: E402

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "your_data"
PAGE = (DOCS / "your_data.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```yaml title="dataset/(\w+)\.yaml"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL))
CLI = "dpsweep.sweeper.commands.cli"
QUICK = ("trainer=dpsgd", "trainer.lr=0.5,2", "trainer.clip_norm=1", "steps=3", "accountant=rdp")
PRICE = ("accountant.witnesses=[]", "privacy.noise_multiplier=30")


def pixels(place: int, channels: int) -> np.ndarray:
    return np.random.default_rng(place).integers(0, 256, (8, 8, channels), dtype=np.uint8).squeeze()


def visits(folder: Path) -> None:
    """200 patients with three visits each."""
    columns = {
        "patient": [f"P{place % 200}" for place in range(600)],
        "age": [place % 100 for place in range(600)],
        "pressure": [100.5 + place % 90 for place in range(600)],
        "ward": [("north", "south", "elsewhere", None)[place % 4] for place in range(600)],
        "ill": [("no", "yes")[place % 7 > 2] for place in range(600)],
    }
    pyarrow.parquet.write_table(pa.table(columns), folder / "visits.parquet")


def photos(folder: Path) -> None:
    """40 patients with three pictures each, and 20 public pictures."""
    for part, count in (("train", 120), ("test", 20)):
        for place in range(count):
            name = f"{('healthy', 'sick')[place % 2]}/P{place % 40}_{place}.png"
            (folder / "photos" / part / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels(place, 3)).save(folder / "photos" / part / name)


def scans(folder: Path) -> None:
    """The same as a saved data set, with arrays."""
    for part, count in (("train", 120), ("test", 20)):
        columns = {
            "image": [pixels(place, 1)[None].tolist() for place in range(count)],
            "label": [place % 2 for place in range(count)],
            "patient": [f"P{place % 40}" for place in range(count)],
        }
        (folder / "scans").mkdir(exist_ok=True)
        saved(pa.table(columns), folder / "scans" / part)


MADE = {"visits": visits, "photos": photos, "scans": scans}


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    """The page's files, as a user would write them, and the data that they declare."""
    (tmp_path / "dataset").mkdir()
    for name, text in FILES.items():
        (tmp_path / "dataset" / f"{name}.yaml").write_text(text)
        MADE[name](tmp_path)
    return tmp_path


def line(name: str, *more: str) -> tuple[str, ...]:
    return ("--config-dir", ".", f"dataset={name}", *QUICK, *PRICE, *more)


def test_the_page_declares_a_table_pictures_and_a_saved_data_set() -> None:
    assert {*FILES} == {*MADE}
    assert {path.stem for path in (DOCS.parent / "conf" / "dataset").glob("*.yaml")} >= {
        *re.findall(r"\| `(\w+)` \| an? ", PAGE)
    }


@pytest.mark.long
def test_a_new_user_copies_the_folder_and_runs_its_commands(
    tmp_path: Path, environment: dict[str, str], ledger: Ledger
) -> None:
    lines = re.findall(r"^\$ (dpsweep .*)$", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [one.split()[1] for one in lines] == ["plan", "sweep", "release", "export"]
    assert sorted(path.name for path in EXAMPLE.rglob("*") if path.is_file()) == [
        "README.md",
        "clinic.yaml",
        "visits.csv",
    ]
    shutil.copytree(EXAMPLE, tmp_path / "mine")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "dpsweep"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m dpsweep "$@"\n')
    program.chmod(0o755)
    own = environment | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    for one in lines:
        done = subprocess.run(one, shell=True, cwd=tmp_path / "mine", env=own, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "mine" / "sweeps" / "clinic").iterdir()
    assert "6 of 6 results" in verify_sweep_folder_and_describe(folder, ledger)
    assert {"model.safetensors", "preprocessing.json", "report.html"} <= {
        one.name for one in (folder / "release").iterdir()
    }
    card = (folder / "export" / "README.md").read_text()
    code = card.partition("```python\n")[2].partition("```")[0]
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder / "export", capture_output=True, text=True)
    assert ran.stdout.strip() in ("no", "yes"), ran.stderr
    assert "for each patient" in card


def test_the_table_of_the_example_is_as_large_as_is_said_and_invented() -> None:
    with (EXAMPLE / "visits.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    said = (EXAMPLE / "dataset" / "clinic.yaml").read_text()
    assert round(len(rows), -2) == int(re.findall(r"^  records: (\d+)$", said, re.MULTILINE)[0])
    assert len({row["patient"] for row in rows}) == int(re.findall(r"^  units: (\d+)$", said, re.MULTILINE)[0])
    assert "invented" in (EXAMPLE / "README.md").read_text()


@pytest.mark.parametrize(
    "name", ["visits", *(pytest.param(name, marks=pytest.mark.long) for name in ("photos", "scans"))]
)
def test_every_file_of_the_page_is_planned_swept_and_released_by_patient(
    name: str, declared: Path, program: Program, ledger: Ledger
) -> None:
    planned = program("plan", *line(name), module=CLI)
    assert planned.returncode == 0, planned.stderr
    assert "per patient" in re.sub(r"\s+", " ", planned.stdout)
    assert ledger.account_names() == ()
    done = program("sweep", *line(name), "--anyway", module=CLI)
    folder = folder_of(done)
    assert "2 of 2 results" in verify_sweep_folder_and_describe(folder, ledger)
    assert ledger.statement(name).budget.unit == "patient"
    released = program("release", str(folder), module=CLI)
    assert released.returncode == 0, released.stderr
    assert (folder / "release" / "preprocessing.json").is_file()
    told = "".join(path.read_text() for path in (folder / "release").glob("*.[yj]*"))
    assert str(declared) not in told
    assert "P17" not in told


@pytest.mark.parametrize("name", ["photos", "scans"])
def test_a_public_part_scores_at_no_cost(name: str, declared: Path, program: Program, ledger: Ledger) -> None:
    done = program("sweep", *line(name, "score=public"), module=CLI)
    assert "2 of 2 results" in verify_sweep_folder_and_describe(folder_of(done), ledger)


@pytest.mark.parametrize(("name", "numbers"), [("photos", 192), ("scans", 64), ("visits", 5)])
@pytest.mark.parametrize("tuning", ["composition", "disjoint"])
def test_frozen_features_and_disjoint_parts_keep_patients_together(
    name: str, numbers: int, tuning: str, declared: Path, program: Program, ledger: Ledger
) -> None:
    file = weights_file(declared, numbers)
    features = (
        f"features.source={{_target_: {extractors.__name__}.Projection, file: {file}}}",
        *("features=module", f"features.weights={file}", f"features.sha256={sha256_of_file_or_folder(file)}"),
        *(f"features.size={SIZE}", "features.trained_on='invented numbers'", f"tuning={tuning}"),
    )
    folder = folder_of(program("sweep", *line(name, *features, "sampler.batch_size=4"), "--anyway", module=CLI))
    assert "results" in verify_sweep_folder_and_describe(folder, ledger)
    kept = [path for path in (declared / "frozen-features").rglob("*.safetensors") if path.stem != "probes"]
    assert kept
    assert ledger.statement(name).budget.unit == "patient"


def spoil_visits(folder: Path) -> None:
    (folder / "visits.parquet").write_bytes((folder / "visits.parquet").read_bytes()[:999])


def spoil_photos(folder: Path) -> None:
    (folder / "photos" / "train" / "sick" / "P17_121.png").write_bytes(b"no picture")


def spoil_scans(folder: Path) -> None:
    (folder / "scans" / "train" / "state.json").write_text("{}")


SPOILT = {"visits": spoil_visits, "photos": spoil_photos, "scans": spoil_scans}


@pytest.mark.parametrize("name", SPOILT)
def test_what_cannot_be_read_is_one_sentence_and_nothing_is_charged(
    name: str, declared: Path, program: Program, ledger: Ledger
) -> None:
    SPOILT[name](declared)
    done = program("sweep", *line(name), "--anyway", module=CLI)
    assert done.returncode == 2, done.stderr
    refusal, code = done.stderr.strip().splitlines()
    assert re.fullmatch(r"Expected [^.]+(\.[^ .]+)*[^.]+\.", refusal), refusal
    assert "nothing was charged" in code
    assert ledger.account_names() == ()


@pytest.mark.parametrize("missing", ["labels", "classes", "shape", "path"])
def test_classes_and_sizes_must_be_declared(missing: str, declared: Path, program: Program, ledger: Ledger) -> None:
    text = re.sub(rf"^  {missing}: .*\n", "", FILES["photos"], flags=re.MULTILINE)
    (declared / "dataset" / "photos.yaml").write_text(text)
    done = program("sweep", *line("photos"), "--anyway", module=CLI)
    assert done.returncode == 2, done.stderr
    assert f"  dataset.{missing}=  " in done.stderr
    assert ledger.account_names() == ()
