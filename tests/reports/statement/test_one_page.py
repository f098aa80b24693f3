"""The one-page statement: it says what the release says, on one sheet of paper, with the same bytes each time."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.reports.pages.released_package import STATEMENT_FILE, STATEMENT_PDF, write_statement
from dpsweep.reports.statement.one_page import SIZES, one_page_statement, pdf_bytes_of_page, row_font_size_that_fits
from dpsweep.reports.statement.released_claim import ReleasedClaim, ReleasedModel
from dpsweep.reports.statement.statement_line import EvidenceLevel, Line
from tests.reports.leaks import words_of

pypdf = pytest.importorskip("pypdf", reason="needs pip install 'dpsweep[dev]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LONG = "Weights that were trained elsewhere count as public, which no program can check. "


def line(topic: str, text: str, *evidence: str) -> Line:
    return Line(topic=topic, text=text, level=EvidenceLevel.STATED, evidence=evidence)


def claim_with(**changes: Any) -> ReleasedClaim:
    claim = ReleasedClaim(
        gaussian_mu="not proven",
        account="digits",
        headline="12 points of DP-SGD",
        outcome="",
        nobody="",
        epsilon=3.4561,
        delta=1e-5,
        unit="record",
        adjacency=Adjacency.ADD_OR_REMOVE_ONE,
        points=12,
        rule="private_selection",
        discloses="only the winner and its score may be shown",
        reserved=(5.0, 2e-5),
        budget=(8.0, 1e-4),
        policy="addition",
        upper_bounds={"PLD": 3.4561, "RDP": 4.0},
        claimed_by=("PLD",),
        lines=(
            line("Claim", "The release satisfies (3.457, 1e-5)-differential privacy."),
            line("Unit and neighbours", "The unit is one record."),
            line("Covered", "The choice among 12 points of DP-SGD over lr."),
            line("Accountants", "Upper bounds: PLD 3.457 and RDP 4.000."),
            line("Not covered", "Some things.", "The architecture.", "Timing."),
            line("Floating point", "Rounding adds at most 1e-9 to epsilon."),
            line("Trust", "The curator is trusted."),
        ),
        cautions=(),
        report="ab" * 32,
        model=ReleasedModel(file="model.safetensors", sha256="cd" * 32),
        score=None,
        exact_scores=False,
        day=date(2031, 1, 2),
    )
    return replace(claim, **changes)


def told(folder: Path) -> str:
    """The statement's words in a browser."""
    html = (folder / STATEMENT_FILE).read_text()
    return " ".join(unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)).split())


def test_it_says_the_claim_and_what_it_leaves_out(tmp_path: Path) -> None:
    write_statement(claim_with(), tmp_path)
    for words in (told(tmp_path), " ".join(words_of(tmp_path / STATEMENT_PDF).split())):
        assert "3.457" in words
        assert "at δ = 1e-5" in words or "= 1e-5" in words
        assert "Private selection: only the winner and its score may be shown." in words
        assert "epsilon 5.000 at delta 2e-5 so far" in words
        assert "epsilon 8 at delta 0.0001" in words
        assert "ab" * 32 in words
        assert "cd" * 32 in words and "the ledger refuses a second one" in words
        for text in (
            "The architecture.",
            "Timing.",
            "Rounding adds at most 1e-9 to epsilon.",
            "The curator is trusted.",
        ):
            assert text in words
        for label in ("Date", "Name and office", "Signature"):
            assert label in words
        assert "2031" not in words, "the day is written by whoever signs"


def test_data_declared_public_have_no_claim(tmp_path: Path) -> None:
    nobody = "This search protects nobody: its data were declared public."
    claim = claim_with(nobody=nobody, epsilon=float("inf"), lines=(line("Claim", nobody),), budget=(float("inf"), 0.0))
    write_statement(claim, tmp_path)
    for words in (told(tmp_path), words_of(tmp_path / STATEMENT_PDF)):
        assert "No claim" in words
        assert "protects nobody" in words
        assert "reserved" not in words
        assert "at δ" not in words


def test_the_same_statement_has_the_same_bytes(tmp_path: Path) -> None:
    page = one_page_statement(claim_with())
    assert pdf_bytes_of_page(page) == pdf_bytes_of_page(page)
    (tmp_path / STATEMENT_PDF).write_bytes(pdf_bytes_of_page(page))
    assert dict(pypdf.PdfReader(tmp_path / STATEMENT_PDF).metadata) == {"/Title": page.title}, "no date, no program"


def test_names_are_text(tmp_path: Path) -> None:
    account = "<script>alert(1)</script> $x_1$ \N{SNOWMAN} \N{CJK UNIFIED IDEOGRAPH-4E2D}"
    write_statement(claim_with(account=account), tmp_path)
    assert "<script" not in (tmp_path / STATEMENT_FILE).read_text()
    assert account in told(tmp_path)
    assert "$x_1$" in words_of(tmp_path / STATEMENT_PDF)


def long_claim() -> ReleasedClaim:
    lines = tuple(
        replace(one, text=one.text + LONG, evidence=(*one.evidence, LONG, LONG)) for one in claim_with().lines
    )
    return claim_with(account="a_name_without_an_end_" * 5, lines=lines, cautions=(LONG * 5,), headline=LONG)


def test_more_text_is_set_smaller_until_one_page_holds_it() -> None:
    assert row_font_size_that_fits(one_page_statement(claim_with())) == SIZES[0]
    assert SIZES[-1] < row_font_size_that_fits(one_page_statement(long_claim())) < SIZES[0]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")
@pytest.mark.parametrize("claim", [claim_with, long_claim], ids=["short", "long"])
def test_a_browser_prints_it_on_one_sheet(tmp_path: Path, claim: Callable[[], ReleasedClaim]) -> None:
    write_statement(claim(), tmp_path)
    quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer")
    printed = tmp_path / "printed.pdf"
    words = [str(CHROMIUM), *quiet, f"--print-to-pdf={printed}", (tmp_path / STATEMENT_FILE).as_uri()]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    for path in (printed, tmp_path / STATEMENT_PDF):
        assert len(pypdf.PdfReader(path).pages) == 1


def test_the_statement_has_the_hash_of_report_json(sweep_of: Callable[..., Any]) -> None:
    from dpsweep.reports.pages.release import write_release

    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.clip_norm": (1,)}})
    folder = write_release(made.folder, made.ledger).parent
    digest = sha256((folder / "report.json").read_bytes()).hexdigest()
    assert digest in told(folder)
    assert digest in words_of(folder / STATEMENT_PDF)
