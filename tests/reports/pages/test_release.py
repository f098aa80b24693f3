"""The release: made of what the rule discloses, tried by looking for everything else."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.ledger.book import Released, ReleaseManifest
from dpsweep.accounting.records.released_files import WINNER_FILE
from dpsweep.accounting.records.trial_result import MODEL_FILE, TrialResult
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.reports.disclosure.formats import formats_with_names
from dpsweep.reports.pages import release as release_pages
from dpsweep.reports.pages.model_export import write_release_and_export
from dpsweep.reports.pages.release import write_release
from tests.reports.leaks import contents, secrets_of, words_of

AXES = {
    "dpsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.clip_norm": (0.5, 1)},
    "dpnsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.regularizer": (0.1, 1)},
}
FATES = {1: "failed", 3: "diverged", 4: "killed", 6: "not run"}
SweepOf = Callable[..., Any]


def test_nothing_leaks_that_the_price_does_not_cover(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates=FATES, repeats=(1,))
    write_release(made.folder, made.ledger)
    text = contents(made.folder).decode("utf-8", errors="replace")
    leaked = sorted(secret for secret in secrets_of(made) if secret in text)
    assert leaked == []
    assert not re.search(r"\d{4}-\d\d-\d\dT\d\d", text)
    salt = json.loads((made.folder / "release" / WINNER_FILE).read_text())["salt"]
    report, model = (
        sha256((made.folder / "release" / name).read_bytes()).hexdigest() for name in ("report.json", MODEL_FILE)
    )
    assert set(re.findall(r"\b[0-9a-f]{40,}\b", text)) == {salt, report, model}
    assert made.plan.account in text


def test_under_composition_every_score_is_shown(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates=FATES)
    path = write_release(made.folder, made.ledger)
    assert path == made.folder / "release" / "report.html"
    form = json.loads((path.parent / "report.json").read_text())
    assert form["audience"] == "public"
    rows = form["trials"]["rows"]
    assert [row["point"] for row in rows] == list(range(1, 13))
    assert [row["state"] for row in rows].count("no result") == 3
    for row, trial in zip(rows, made.plan.trials, strict=True):
        result = TrialResult.read(made.folder / "trials" / trial.id)
        assert row["accuracy"] == (result.score["value"] if result and result.score else None)
    assert {file.name for file in path.parent.glob("*.png")} == {
        "heatmap.png",
        "heatmap-dpsgd.png",
        "heatmap-dpnsgd.png",
        "privacy.png",
    }


def test_a_rule_that_hides_losers_shows_the_winner_alone(sweep_of: SweepOf, only_winner: dict[str, str]) -> None:
    def accuracy(place: int) -> float:
        return 0.912345 if place == 9 else 0.3 + place / 1000

    made = sweep_of(AXES, rule=only_winner, accuracy=accuracy)
    path = write_release(made.folder, made.ledger)
    names = {"report.html", "report.json", "config.yaml", WINNER_FILE, MODEL_FILE, "privacy.png", "privacy.svg"}
    names |= {"preprocessing.json", "privacy.pdf", "methods.tex", "methods.bib"}
    names |= {"statement.html", "statement.pdf", "price.json", "price_check.py"}
    assert {file.name for file in path.parent.iterdir()} == names
    assert (path.parent / MODEL_FILE).read_text() == "weights of point 9"
    config = yaml.safe_load((path.parent / "config.yaml").read_text())
    assert config["trainer"] == made.plan.trials[9].config["trainer"]
    assert config["dataset"] == {"name": made.plan.account}
    form = json.loads((path.parent / "report.json").read_text())
    assert form["trials"]["rows"] == []
    html = path.read_text()
    assert "<figure" not in html
    assert 'class="cells"' not in html
    assert 'class="conclusion"' not in html
    assert "conclusion" not in form
    words = re.sub(r"<(style|script)>.*?</\1>|<[^>]*>", " ", html, flags=re.DOTALL)
    assert "91.2 %" in words
    for place in range(12):
        shown = f"{100 * accuracy(place):.1f}"
        assert (shown in words) == (place == 9), place


def test_under_such_a_rule_the_page_does_not_depend_on_losers(
    sweep_of: SweepOf, only_winner: dict[str, str], tmp_path: Path
) -> None:
    made = sweep_of(AXES, rule=only_winner, accuracy=lambda place: 0.9 if place == 9 else 0.3)
    write_release(made.folder, made.ledger)
    before = contents(made.folder)
    for place, trial in enumerate(made.plan.trials):
        folder = made.folder / "trials" / trial.id
        result = TrialResult.read(folder)
        if place != 9 and result is not None:
            form = json.loads((folder / "result.json").read_text())
            changes = (
                {
                    "status": "failed",
                    "score": None,
                    "event": None,
                    "seconds": 999.0,
                    "error": "OSError: gone",
                },
                {"score": {"value": 0.5, "low": 0.1, "high": 0.6}, "seconds": 777.0},
            )
            (folder / "result.json").write_text(json.dumps(form | changes[place % 2]))
    write_release(made.folder, made.ledger)
    assert contents(made.folder) == before


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"randomness": "reproducible"}, "NOT a private release"),
        ({"realised_steps": lambda place: 81}, "A run differs from its charge"),
        ({"realised_steps": lambda place: 79}, "A run differs from its charge"),
        ({"fates": {0: "failed"}, "error": "ContractBroken: else."}, "A run differs from its charge"),
        ({"fates": dict.fromkeys(range(12), "failed")}, "a finished run"),
    ],
)
def test_what_the_records_speak_against_is_refused(sweep_of: SweepOf, fields: dict[str, Any], reason: str) -> None:
    made = sweep_of(AXES, **fields)
    with pytest.raises(BadInput, match=reason):
        write_release(made.folder, made.ledger)
    assert not (made.folder / "release").exists()


@pytest.mark.usefixtures("blank_pictures")
def test_a_new_release_replaces_the_old_one_whole(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    stale = made.folder / "release" / "old.txt"
    stale.parent.mkdir()
    stale.write_text("left over")
    write_release(made.folder, made.ledger)
    assert not stale.exists()
    assert not list(made.folder.glob(".release*"))


def published(made: Any) -> dict[str, Path]:
    """Every file of the release and the export of a sweep, by its path from the sweep's folder."""
    places = (made.folder / "release", made.folder / "export")
    files = [path for place in places for path in sorted(place.rglob("*")) if path.is_file()]
    return {path.relative_to(made.folder).as_posix(): path for path in files}


@pytest.mark.usefixtures("blank_pictures")
def test_verify_finds_an_edit_of_every_file_that_leaves(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2)}})
    write_release_and_export(made.folder, made.ledger, formats_with_names(["registry", "tre", "hf", "cyclonedx"]))
    words = verify_sweep_folder_and_describe(made.folder, made.ledger)
    assert "Its release is the one of" in words and "Its export is the one of" in words
    files = published(made)
    assert {"release/statement.html", "release/price_check.py", "release/methods.tex", "export/README.md"} <= set(files)
    for path in files.values():
        content = path.read_bytes()
        path.write_bytes(content.replace(b"2", b"1", 1) + b" ")
        with pytest.raises((ContractBroken, BadInput), match=path.parts[len(made.folder.parts)]):
            verify_sweep_folder_and_describe(made.folder, made.ledger)
        path.unlink()
        with pytest.raises((ContractBroken, BadInput)):
            verify_sweep_folder_and_describe(made.folder, made.ledger)
        path.write_bytes(content)
    assert verify_sweep_folder_and_describe(made.folder, made.ledger) == words


@pytest.mark.usefixtures("blank_pictures")
def test_a_release_of_another_day_or_with_another_document_is_a_line_and_no_winner(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2)}})
    for formats, day in ((), date(2026, 1, 2)), (("tre",), date(2026, 1, 2)), (("tre",), date(2026, 1, 3)):
        write_release(made.folder, made.ledger, formats_with_names(formats), day)
        write_release(made.folder, made.ledger, formats_with_names(formats), day)
        verify_sweep_folder_and_describe(made.folder, made.ledger)
    kinds = [entry.kind for entry in made.ledger.statement(made.plan.account).entries]
    assert (kinds.count(Released.kind), kinds.count(ReleaseManifest.kind)) == (1, 3)


@pytest.mark.usefixtures("blank_pictures")
def test_an_older_release_stays_true(sweep_of: SweepOf, tmp_path: Path) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2)}})
    first = write_release(made.folder, made.ledger).parent
    shutil.copytree(first, tmp_path / "first")
    write_release(made.folder, made.ledger, formats_with_names(["hf"]))
    assert "later" not in verify_sweep_folder_and_describe(made.folder, made.ledger)
    shutil.rmtree(first)
    (tmp_path / "first").rename(first)
    assert ", and a later one was made on" in verify_sweep_folder_and_describe(made.folder, made.ledger)


@pytest.mark.usefixtures("blank_pictures")
def test_a_kill_after_the_line_leaves_a_line_without_a_release(
    sweep_of: SweepOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2)}})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stopped)
        with pytest.raises(KeyboardInterrupt):
            write_release(made.folder, made.ledger)
    assert "release" not in verify_sweep_folder_and_describe(made.folder, made.ledger)
    lines = made.ledger.statement(made.plan.account).entries
    write_release(made.folder, made.ledger)
    assert made.ledger.statement(made.plan.account).entries == lines
    assert "Its release is the one of" in verify_sweep_folder_and_describe(made.folder, made.ledger)


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("blank_pictures")
def test_a_second_command_waits_for_the_first(sweep_of: SweepOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two exports at once removed each other's folders, and ended with an error of the disk."""
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2)}})
    stale = made.folder / "trials" / ".result.json.1.partial"
    stale.write_text("half")
    os.utime(stale, (0, 0))
    with ThreadPoolExecutor() as pool:
        with release_pages.hold_release_lock(made.folder):
            waiting = pool.submit(write_release_and_export, made.folder, made.ledger)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=1)
            assert not (made.folder / ".release.partial").exists()
        waiting.result()
    assert "Its export is the one of" in verify_sweep_folder_and_describe(made.folder, made.ledger)
    assert not list(made.folder.rglob(".*.partial"))
    monkeypatch.setattr(release_pages, "PATIENCE_SECONDS", 0)
    with (
        release_pages.hold_release_lock(made.folder),
        pytest.raises(BadInput, match="no other command to write the release"),
    ):
        write_release(made.folder, made.ledger)


@pytest.mark.usefixtures("blank_pictures")
def test_a_lock_that_is_a_link_is_not_followed(sweep_of: SweepOf, tmp_path: Path) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2)}})
    (tmp_path / "private").write_text("kept")
    (made.folder / release_pages.LOCK).symlink_to(tmp_path / "private")
    with pytest.raises(BadInput, match="no symbolic link"):
        write_release(made.folder, made.ledger)
    assert (tmp_path / "private").read_text() == "kept"


@pytest.mark.usefixtures("blank_pictures")
def test_an_earlier_release_that_cannot_be_removed_is_named(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2)}})
    (made.folder / "release").write_text("a file of somebody's")
    with pytest.raises(NotADirectoryError) as refused:
        write_release(made.folder, made.ledger)
    assert Path(os.fsdecode(refused.value.filename)) == made.folder / "release"
    (made.folder / "release").unlink()
    assert write_release(made.folder, made.ledger).is_file()


def test_a_statement_names_the_report_and_the_model(sweep_of: SweepOf) -> None:
    """So a signed sheet belongs to one release, whose line in the ledger covers both files."""
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2)}})
    folder = write_release(made.folder, made.ledger).parent
    for name in ("report.json", MODEL_FILE):
        digest = sha256((folder / name).read_bytes()).hexdigest()
        assert f"<code>{digest}</code>" in (folder / "statement.html").read_text()
        assert digest in words_of(folder / "statement.pdf")
