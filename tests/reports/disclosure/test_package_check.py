"""`dpsweep check`: a stranger's release is data, and what it claims is recomputed by the reader's own program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.reports.disclosure import package_check
from dpsweep.reports.disclosure.package_check import ClaimFails, ClaimNotRecomputed, check_package
from dpsweep.reports.pages.release import write_release
from dpsweep.reports.recomputation.price_check import HOLDS
from tests.conftest import Program
from tests.reports.conftest import Recipe, make

CLI = "dpsweep.sweeper.commands.cli"
ALARM = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep with its release."""
    made = make(tmp_path_factory.mktemp("swept"), Recipe(axes={"dpsgd": {"trainer.lr": (0.1, 0.2)}}))
    write_release(made.folder, made.ledger)
    return made.folder


@pytest.fixture
def package(swept: Path, tmp_path: Path) -> Path:
    """A copy of the release, as a reader has it."""
    return Path(shutil.copytree(swept / "release", tmp_path / "package"))


def edited(path: Path, change: Callable[[Any], None]) -> None:
    form = json.loads(path.read_text())
    change(form)
    path.write_text(json.dumps(form))


def test_a_release_holds_in_the_lines_that_are_compared(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ClaimNotRecomputed, match="Rely on the lines that hold alone"):
        check_package([str(package)])
    lines = capsys.readouterr().out.splitlines()
    *held, last = lines
    assert [line.partition(":")[0] for line in held] == [
        *("training", "validation", "total variation", "statement.html")
    ]
    assert all(": holds: " in line for line in held)
    assert last.startswith("checked: price, claim, model; not compared: everything you can see on ")
    assert all(name in last for name in ("report.html", "statement.pdf"))
    assert "price.json" not in last and "model.safetensors" not in last


@pytest.mark.parametrize("name", ["report.html", "methods.tex", "statement.pdf"])
def test_a_release_with_a_forged_page_never_ends_as_if_all_held(package: Path, name: str) -> None:
    (package / name).write_bytes((package / name).read_bytes().replace(b"8", b"0.1"))
    with pytest.raises(ClaimNotRecomputed):
        check_package([str(package)])
    assert ClaimNotRecomputed.exit_code is ExitCode.NOT_RECOMPUTED == 8


def lower(form: Any) -> None:
    for part in form["parts"].values():
        part["epsilon"] /= 2
    form["epsilon"] /= 2


def test_a_lower_claim_fails_in_each_file(package: Path, swept: Path) -> None:
    price, report, page = (package / name for name in ("price.json", "report.json", "statement.html"))
    whole = {path: path.read_bytes() for path in (price, report, page)}
    edited(price, lower)
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    price.write_bytes(whole[price])
    edited(report, lambda form: form["facts"]["honest_epsilon"].update(value=0.5))
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    report.write_bytes(whole[report])
    page.write_text(page.read_text().replace("ε ≤ ", "ε ≤ 0."))
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    assert ClaimFails.exit_code is ExitCode.CLAIM_FAILS == 7


def test_a_coin_that_is_guessed_less_often_than_the_event_allows_fails(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    price, report = package / "price.json", package / "report.json"
    edited(price, lambda form: form.update(total_variation=form["total_variation"] / 2))
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    assert "total variation: report.json does not agree with price.json" in capsys.readouterr().out
    half = json.loads(price.read_text())["total_variation"]
    edited(report, lambda form: form["facts"]["total_variation"].update(value=half))
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    assert "total variation: does not hold" in capsys.readouterr().out


def test_a_statement_of_another_model_or_report_fails(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "model.safetensors").write_text("another model")
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    assert "it does not have the SHA-256 of model.safetensors" in capsys.readouterr().out
    (package / "report.json").write_bytes((package / "report.json").read_bytes() + b"\n")
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    assert "it does not have the SHA-256 of report.json and the SHA-256" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["title", "statement", "best", "repeat"])
def test_an_edit_of_the_report_that_changes_no_price_fails(
    package: Path, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(package_check, "_print_price_check_and_return_code", lambda _: HOLDS)
    edited(package / "report.json", lambda form: form.update({key: form[key] * 2}))
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    assert "statement.html: does not hold: it does not have the SHA-256 of report.json\n" in capsys.readouterr().out


SHOWN = '<p class="price">ε ≤ 0.1<small>at δ = 1e-5</small></p>'
FORGED: dict[str, Callable[[str, str], str]] = {
    "comment": lambda page, price: page.replace(price, f"<!--{price}-->{SHOWN.replace('price', 'claim')}"),
    "open comment": lambda page, price: page.replace(price, f"{SHOWN.replace('price', 'about')}<!--{price}--!>"),
    "hidden": lambda page, price: page.replace(price, f"<div hidden>{price}</div>{SHOWN.replace('price', 'about')}"),
    "inline style": lambda page, price: page.replace(price, price.replace("<p", '<p style="display:none"')),
    "style": lambda page, _: page.replace("</style>", ".price{display:none}.about::after{content:'ε ≤ 0.1'}\n</style>"),
    "script": lambda page, _: page.replace("</main>", "<script>document.title='ε ≤ 0.1'</script></main>"),
    "picture": lambda page, _: page.replace("<main>", '<img src="data:image/png;base64,AAAA"><main>'),
    "two prices": lambda page, price: page.replace(price, price + SHOWN),
    "title": lambda page, _: page.replace("<h1>", "<h1>ε ≤ 0.1 "),
    "about": lambda page, _: page.replace('class="about">', 'class="about">ε ≤ 0.1 '),
    "sentence": lambda page, _: re.sub(r"satisfies \([^,]*,", "satisfies (0.1,", page),
    "two models": lambda page, _: page.replace("<dl>", "<dl>\n<div><dt>Model</dt><dd>Another.</dd></div>"),
    "another hash": lambda page, _: re.sub(r"(<dt>Model</dt><dd>)", rf"\1Its SHA-256 is {'0' * 64}. ", page),
    "two reports": lambda page, _: page.replace("<dl>", "<dl>\n<div><dt>Report</dt><dd>Another.</dd></div>"),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_statement_that_shows_another_claim_fails(
    package: Path, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The true claim stood somewhere in the page, and the reader saw another."""
    monkeypatch.setattr(package_check, "_print_price_check_and_return_code", lambda _: HOLDS)
    path = package / "statement.html"
    whole = path.read_text()
    (price,) = re.findall(r'<p class="price">.*</p>', whole)
    path.write_text(FORGED[how](whole, price))
    assert path.read_text() != whole
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    assert "statement.html: does not hold: " in capsys.readouterr().out


def test_a_statement_has_a_model_if_the_package_has_one(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_check, "_print_price_check_and_return_code", lambda _: HOLDS)
    model, path = package / "model.safetensors", package / "statement.html"
    whole, weights = path.read_text(), model.read_bytes()
    model.unlink()
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    path.write_text(re.sub(r"<div><dt>Model</dt>.*\n", "", whole))
    with pytest.raises(ClaimNotRecomputed):
        check_package([str(package)])
    model.write_bytes(weights)
    with pytest.raises(ClaimFails):
        check_package([str(package)])


def test_a_model_of_terabytes_is_refused(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_check, "_print_price_check_and_return_code", lambda _: HOLDS)
    os.truncate(package / "model.safetensors", 1 << 42)
    with pytest.raises(BadInput, match="64 GiB"):
        check_package([str(package)])


def test_nothing_of_a_package_is_imported_or_run(package: Path) -> None:
    """Python's own library asks for modules that are not there, and any folder on its path may answer."""
    (package / "price_check.py").write_text(ALARM)
    for name in ("numpy", "dpsweep", "json", "pytz", "org", "msvcrt", "sitecustomize", "resource"):
        (package / f"{name}.py").write_text(ALARM)
    executable = shutil.which("dpsweep", path=str(Path(sys.executable).parent))
    assert executable is not None
    done = subprocess.run([executable, "check", "."], cwd=package, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.NOT_RECOMPUTED, done.stderr
    assert "price_check.py: not that of this version of dpsweep: do not run it" in done.stdout
    assert not (package / "ran").exists()


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "garbage": bytes(range(256)) * 40,
    "deep": b"[" * 200_000,
    "deep objects": b'{"parts":' * 100_000,
    "a list": b"[]",
    "a long number": b'{"version": 1' + b"0" * 5000 + b"}",
    "no numbers": b'{"version": 1, "adjacency": "replace_one", "delta": NaN, "repeats": {}, "parts": {}}',
}


@pytest.mark.parametrize("name", ["price.json", "report.json"])
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_in_one_sentence(package: Path, name: str, what: str) -> None:
    (package / name).write_bytes(HOSTILE[what])
    with pytest.raises(BadInput) as refusal:
        check_package([str(package)])
    assert len(str(refusal.value).splitlines()) == 1 and len(str(refusal.value)) < 3000


@pytest.mark.parametrize("name", ["price.json", "report.json", "statement.html"])
def test_a_file_that_is_missing_is_named(package: Path, name: str) -> None:
    (package / name).unlink()
    with pytest.raises(
        BadInput, match=rf"^Expected {package} to be the folder of a release with a {name}: without it "
    ):
        check_package([str(package)])


@pytest.mark.parametrize("name", ["price.json", "report.json", "statement.html"])
def test_links_and_pipes_are_not_read(package: Path, name: str, tmp_path: Path) -> None:
    (tmp_path / "private").write_text('{"version": "secret"}')
    (package / name).unlink()
    (package / name).symlink_to(tmp_path / "private")
    with pytest.raises(BadInput) as refusal:
        check_package([str(package)])
    assert "secret" not in str(refusal.value)
    (package / name).unlink()
    os.mkfifo(package / name)
    with pytest.raises(BadInput):
        check_package([str(package)])


def inner(form: Any) -> Any:
    event = form["parts"]["training"]["event"]["event"]
    while event["type"] != "SelfComposedDpEvent":
        event = event["events"][0] if "events" in event else event["event"]
    return event


LARGE: dict[str, Callable[[Any], None]] = {
    "steps": lambda form: inner(form).update(count=10**30),
    "more steps than a float": lambda form: inner(form).update(count=10**400),
    "no noise": lambda form: inner(form)["event"]["event"].update(noise_multiplier=1e-300),
    "words": lambda form: inner(form).update(type="\x1b[2J\x07evil"),
}


@pytest.mark.parametrize("what", LARGE)
def test_numbers_beyond_measure_never_hold(package: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    edited(package / "price.json", LARGE[what])
    with pytest.raises((BadInput, ClaimFails, ClaimNotRecomputed)) as refusal:
        check_package([str(package)])
    assert "\x1b" not in capsys.readouterr().out + str(refusal.value)


def test_a_package_that_takes_too_long_is_not_recomputed(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(package_check, "SECONDS", 0.01)
    with pytest.raises(ClaimNotRecomputed):
        check_package([str(package)])
    assert "price: not recomputed: it takes more than 0.01 seconds" in capsys.readouterr().out


def test_a_folder_without_a_price_is_refused(program: Program, tmp_path: Path) -> None:
    for words in ((), ("nowhere",), (str(tmp_path),), (str(tmp_path), "b")):
        done = program("check", *words, module=CLI)
        assert (done.returncode, done.stdout) == (ExitCode.BAD_INPUT, "")
