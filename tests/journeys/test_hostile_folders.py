"""A folder from somebody else is data, never code: whatever stands in it, and in its ledger, nothing runs.

Every value of every file is replaced by hostile ones, ids set right and the ledger forged so that it says it was paid.
What comes of it is a page, or one sentence with a documented exit code; never a traceback, and never a call.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import DpsweepError, ExitCode
from dpsweep.accounting.ledger.data_fingerprint import known_data
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.accounting.searches.folder_audit import chain_ends_in_receipts, verify_sweep_folder_and_describe
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content.sections import read_sweep_command_line
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.model_export import write_release_and_export
from dpsweep.reports.pages.release import compose_release_page, write_release
from tests.freezing import shorter_ledger
from tests.hostile import CANARY, SCRIPT, VALUES, dumped, forge, places, put, watched, with_ids

FROZEN = Path(__file__).parents[1] / "frozen" / "format_1"
SWEEPS = ("composition", "private_selection")
SQL = shorter_ledger(*SWEEPS)
FILES = [
    (sweep, str(path.relative_to(FROZEN / sweep)))
    for sweep in SWEEPS
    for path in sorted((FROZEN / sweep).rglob("*.json"))
]
ONE_OF_EACH = [
    *(place for place in FILES if place[1] == "plan.json"),
    *{Path(file).name: (sweep, file) for sweep, file in FILES if file != "plan.json"}.values(),
]
"""Both plans, and the others without the files of a second trial, and of a second sweep that has the same."""


@pytest.fixture(autouse=True)
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What hostile values name exists, and tells when it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{CANARY}.py").write_text("open('canary', 'w').close()\nclass Bait: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    assert not list(tmp_path.rglob("canary")), "something ran"


def checked(do: Callable[[], object]) -> DpsweepError | None:
    """Does it; a refusal is one sentence of ours."""
    try:
        with watched():
            do()
    except DpsweepError as refusal:
        text = str(refusal)
        assert text.strip(), "a refusal says why"
        assert "\n" not in text, text
        assert len(text) < 2000, text[:300]
        return refusal
    return None


def used(folder: Path, ledger_path: Path, *, pages: bool = False) -> None:
    """All that a curator may do with a folder; pages, which take a second each, only where asked."""
    ledger = Ledger(ledger_path)
    checked(lambda: verify_entries(ledger.chain, list(chain_ends_in_receipts(folder))))
    checked(lambda: verify_sweep_folder_and_describe(folder, ledger))
    if pages:
        for write in (write_report, write_release, write_release_and_export):
            checked(lambda write=write: write(folder, ledger))
        for page in folder.glob("*/*.html"):
            assert SCRIPT not in page.read_text()
    else:
        checked(lambda: compose_page(folder, ledger))


def compose_page(folder: Path, ledger: Ledger) -> None:
    """The words of a release, which `write_release` lays out."""
    from dpsweep.accounting.errors import turn_read_errors_into_refusal

    with turn_read_errors_into_refusal("the sweep"):
        compose_release_page(table.read_sweep(folder, ledger))


def cases(sweep: str, file: str, every: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each place of a file with a hostile value: with all of them, or with every so manieth, another for each place."""
    form = json.loads((FROZEN / sweep / file).read_text())
    for number, (place, value) in enumerate(itertools.product(places(form), VALUES)):
        if number % every == (number // len(VALUES)) % every:
            yield place, put(form, place, value)


def tried(tmp_path: Path, sweep: str, file: str, form: Any, *, pages: bool = False) -> None:
    renamed: dict[str, str] = {}
    if file == "plan.json" and isinstance(form, dict):
        form, renamed = with_ids(form)
        (tmp_path / "ledger.sqlite").unlink(missing_ok=True)
    if not (tmp_path / "ledger.sqlite").exists():
        forge(tmp_path / "ledger.sqlite", SQL, renamed)
    shutil.rmtree(tmp_path / "state", ignore_errors=True)  # of each forged ledger in turn, this is the first look
    (tmp_path / "sweep" / file).write_text(dumped(form))
    used(tmp_path / "sweep", tmp_path / "ledger.sqlite", pages=pages)


def run_all(tmp_path: Path, sweep: str, file: str, every: int, pages: int) -> None:
    """All these cases; every so manieth with its pages, none where 0."""
    shutil.copytree(FROZEN / sweep, tmp_path / "sweep")
    for number, (place, form) in enumerate(cases(sweep, file, every)):
        try:
            tried(tmp_path, sweep, file, form, pages=bool(pages) and number % pages == 0)
        except Exception as error:
            raise AssertionError(f"{file}, {place}: {error!r}") from error


@pytest.mark.parametrize(("sweep", "file"), ONE_OF_EACH, ids=lambda value: str(value).replace("/", "_"))
def test_no_value_of_a_file_runs_anything(sweep: str, file: str, tmp_path: Path) -> None:
    """One value at each place of a small file, and at every fourth of a plan."""
    run_all(tmp_path, sweep, file, every=4 * len(VALUES) + 1 if file == "plan.json" else len(VALUES) + 1, pages=0)


@pytest.mark.long
@pytest.mark.parametrize(("sweep", "file"), ONE_OF_EACH, ids=lambda value: str(value).replace("/", "_"))
def test_no_hostile_value_at_any_place_runs_anything(sweep: str, file: str, tmp_path: Path) -> None:
    """A fourth of all values at each place, an eighth in a plan; other ones at the next place."""
    run_all(tmp_path, sweep, file, every=8 if file == "plan.json" else 4, pages=50)


@pytest.mark.parametrize(
    ("file", "place", "value"),
    [("receipt.json", ("entries",), 10**30), ("result.json", ("score", "value"), math.inf)],
)
def test_a_number_beyond_every_record_is_refused(
    file: str, place: tuple[str, ...], value: float, tmp_path: Path
) -> None:
    """Neither an entry whose number no database can store nor a score that cannot be drawn."""
    shutil.copytree(FROZEN / "composition", tmp_path / "sweep")
    (path,) = list((tmp_path / "sweep").glob(f"trials/*/{file}"))[:1]
    name = str(path.relative_to(tmp_path / "sweep"))
    tried(tmp_path, "composition", name, put(json.loads(path.read_text()), place, value))
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(DpsweepError, match=r"it lost lines|score\.value=inf"):
        verify_entries(ledger.chain, list(chain_ends_in_receipts(tmp_path / "sweep")))
        verify_sweep_folder_and_describe(tmp_path / "sweep", ledger)


@pytest.mark.parametrize("column", ["body", "balance"])
def test_no_line_of_a_ledger_runs_anything(column: str, tmp_path: Path) -> None:
    """Each value of each kind of line, in a chain that is whole; the rules and the policies among them."""
    shutil.copytree(FROZEN / "composition", tmp_path / "sweep")
    forge(tmp_path / "ledger.sqlite", SQL, {})
    values = itertools.cycle(VALUES)
    kinds: set[str] = set()
    for row in lines_of(tmp_path / "ledger.sqlite"):
        if row["kind"] in kinds:
            continue
        kinds.add(row["kind"])
        form = json.loads(row[column])
        for place in (place for place in places(form) if len(place) <= 2):
            edited = dumped(put(form, place, next(values)))
            edit = replacing(row["seq"], column, edited)
            shutil.rmtree(tmp_path / "state", ignore_errors=True)
            forge(tmp_path / "ledger.sqlite", SQL, {}, edit)
            try:
                read(Ledger(tmp_path / "ledger.sqlite"), tmp_path / "sweep")
            except Exception as error:
                raise AssertionError(f"{row['kind']}, {place}: {edited[:200]}: {error!r}") from error


def replacing(seq: int, column: str, text: str) -> Callable[[dict[str, Any]], None]:
    """Puts the text into a column of one line."""

    def edit(line: dict[str, Any]) -> None:
        line[column] = text if line["seq"] == seq else line[column]

    return edit


def read(ledger: Ledger, folder: Path) -> None:
    """All that is read from a ledger."""
    checked(partial(verify_entries, ledger.chain))
    checked(lambda: [ledger.statement(name) for name in ledger.account_names()])
    checked(lambda: known_data(ledger))
    checked(lambda: verify_sweep_folder_and_describe(folder, ledger))
    checked(lambda: compose_page(folder, ledger))


def lines_of(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as made:
        made.row_factory = sqlite3.Row
        return [dict(row) for row in made.execute("SELECT * FROM entries ORDER BY seq")]


@pytest.mark.parametrize("policy", [{"_target_": f"{CANARY}.Bait"}, {"kind": "composition"}, {"kind": "os.system"}])
def test_a_policy_of_somebody_elses_is_none(policy: dict[str, str], tmp_path: Path) -> None:
    def edit(line: dict[str, Any]) -> None:
        line["balance"] = json.dumps(json.loads(line["balance"]) | {"policy": policy})

    forge(tmp_path / "ledger.sqlite", SQL, {}, edit)
    refusal = checked(lambda: Ledger(tmp_path / "ledger.sqlite").statement("digits"))
    assert "to name an account's policy" in str(refusal)


def test_a_charge_that_gives_back_is_no_charge(tmp_path: Path) -> None:
    def edit(line: dict[str, Any]) -> None:
        if line["kind"] == "charge":
            body = json.loads(line["body"])
            line["body"] = json.dumps(body | {"takes": {name: f"-{amount}" for name, amount in body["takes"].items()}})

    forge(tmp_path / "ledger.sqlite", SQL, {}, edit)
    refusal = checked(partial(verify_entries, Ledger(tmp_path / "ledger.sqlite").chain))
    assert refusal is not None
    assert refusal.exit_code is ExitCode.LEDGER_DAMAGED


def test_a_release_leads_nowhere_by_links(tmp_path: Path) -> None:
    """Neither is somebody's file copied into a release, nor is anything written where a link leads."""
    folder = tmp_path / "sweep"
    shutil.copytree(FROZEN / "composition", folder, ignore=shutil.ignore_patterns("curator", "release"))
    forge(tmp_path / "ledger.sqlite", SQL, {})
    ledger = Ledger(tmp_path / "ledger.sqlite")
    (tmp_path / "private").mkdir()
    secret = tmp_path / "private" / "id_rsa"
    secret.write_text("secret")
    for name in ("curator", "release", "export"):
        (folder / name).symlink_to(tmp_path / "private")
    for write in (write_report, write_release, write_release_and_export):
        assert "no symbolic link" in str(checked(lambda write=write: write(folder, ledger)))
    for name in ("curator", "release", "export"):
        (folder / name).unlink()
    for model in folder.glob("trials/*/model.safetensors"):
        model.unlink()
        model.symlink_to(secret)
    refusal = checked(lambda: write_release(folder, ledger))
    assert any(reason in str(refusal) for reason in ("no symbolic link", "are not those that it was trained to"))
    assert sorted(path.name for path in (tmp_path / "private").iterdir()) == ["id_rsa"]
    assert not (folder / "release").exists()


def test_a_record_of_the_command_is_text_or_none(tmp_path: Path) -> None:
    """Aliases within aliases are small in YAML and endless as text."""
    shutil.copytree(FROZEN / "composition", tmp_path / "sweep")
    forge(tmp_path / "ledger.sqlite", SQL, {})
    bomb = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    task = "hydra: {overrides: {task: *a11}}"
    sweep = table.read_sweep(tmp_path / "sweep", Ledger(tmp_path / "ledger.sqlite"))
    for text in (f"a0: &a0 [x]\n{bomb}\n{task}", "[" * 10_000, "!!python/object/apply:os.system ['touch canary']"):
        (tmp_path / "sweep" / "multirun.yaml").write_text(text)
        with watched():
            assert read_sweep_command_line(sweep) == ""


def test_the_command_on_a_page_names_the_folder_of_configurations(tmp_path: Path) -> None:
    """Without it the command is refused, since no such data set is known."""
    shutil.copytree(FROZEN / "composition", tmp_path / "sweep")
    forge(tmp_path / "ledger.sqlite", SQL, {})
    sweep = table.read_sweep(tmp_path / "sweep", Ledger(tmp_path / "ledger.sqlite"))
    main, mine = ({"path": path, "provider": kind} for path, kind in (("/d/conf", "main"), ("/my own", "command-line")))
    for sources, option in ([main, mine], "--config-dir '/my own' "), ([main], ""), ([{**mine, "path": [1]}], ""):
        hydra = {"overrides": {"task": ["dataset=mine"]}, "runtime": {"config_sources": sources}}
        (tmp_path / "sweep" / "multirun.yaml").write_text(json.dumps({"hydra": hydra}))
        assert read_sweep_command_line(sweep) == f"dpsweep sweep {option}dataset=mine"
