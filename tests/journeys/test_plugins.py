"""Another distribution offers a logger, a form of a release, a frozen extractor and an audit, without an edit here.

The programs start in an interpreter of their own, as a user starts them, where the distribution is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import (
    build_from_stored_form,
    find_user_classes_and_scripts,
    stored_form_of_config_part,
)
from dpsweep.accounting.stored_names.tags import (
    AUDITS,
    EXTRACTORS,
    FORMATS,
    LOGGERS,
    import_path_of_registered_part,
    load_registered_part,
    registered_part_names,
)
from tests.distributions import installed, write_distribution
from tests.randomized import TRAINS
from tests.waiting import HANGS

pytestmark = TRAINS

SWEEP = ("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "steps=2", "privacy.epsilon=2")
LIGHT = ("accountant=rdp", "accountant.witnesses=[]", "compute.device=cpu", "model=logistic", "page=false")
Command = Callable[..., subprocess.CompletedProcess[str]]

BOARD = '''
"""A board of results, a line for the public, a projection of images, and an audit that looks at nothing."""

import json
from dataclasses import dataclass
from pathlib import Path

from dpsweep.accounting.audit.record import AuditRecord
from dpsweep.trainers.features.interface import check_extractor_settings
from dpsweep.trainers.data.published_files import Published


@dataclass(frozen=True, kw_only=True)
class Board:
    file: str = "board.jsonl"
    title = "the board"
    package = "json"

    def write(self, run, sweep, folder):
        with Path(self.file).open("a") as board:
            print(json.dumps({"run": run.key, "mark": sweep.mark, **run.scores}), file=board)


@dataclass(frozen=True, kw_only=True)
class Line:
    file: str = "line.txt"

    def text(self, package):
        return f"{package.claim.account}: epsilon {package.claim.epsilon}\\n"


@dataclass(frozen=True, kw_only=True)
class Projection:
    weights: dict
    size: int
    norm: float
    trained_on: str
    fallback = "Without it: features=none."

    def __post_init__(self):
        check_extractor_settings(self)

    def check(self, form):
        if form.raw_record_kind != "array":
            raise ValueError("Expected images.")

    def locate(self):
        Published(**self.weights).verified_path()

    def module(self, form):
        import torch
        from dpsweep.trainers.features.scaled_rows import ScaledRows

        matrix = torch.frombuffer(bytearray(Published(**self.weights).read_verified_bytes()), dtype=torch.float32)
        layer = torch.nn.Linear(matrix.numel() // self.size, self.size, bias=False)
        layer.weight.data = matrix.reshape(self.size, -1)
        return ScaledRows(torch.nn.Sequential(torch.nn.Flatten(), layer), self.norm)


def audit(priced, settings, machine, rng):
    return AuditRecord(
        plan=priced.plan.id,
        confidence=settings.confidence,
        charge=priced.quote.epsilon,
        price=priced.quote.epsilon,
        delta=priced.plan.delta,
        comparisons=(),
        notes=("The board looked at nothing.",),
    )
'''
WEIGHTS = b"".join(
    bytes([0, 0, 128 if place % 65 == 0 else 0, 63 if place % 65 == 0 else 0]) for place in range(8 * 64)
)
FILES: dict[str, str | bytes] = {
    "board_of_results/__init__.py": BOARD,
    "board_of_results/matrix.bin": WEIGHTS,
    "board_of_results/conf/logger/board.yaml": "board:\n  _target_: board\n  file: board.jsonl\n",
    "board_of_results/conf/logger/tensorboard.yaml": "tensorboard: {_target_: board}\n",
    "board_of_results/conf/features/projection.yaml": (
        "_target_: projection\n"
        f"weights: {{package: board_of_results, file: matrix.bin, sha256: {sha256(WEIGHTS).hexdigest()}}}\n"
        "size: 8\nnorm: 1.0\ntrained_on: nothing, it is the identity\n"
    ),
}
ENTRIES = {
    "loggers": {"board": "board_of_results:Board"},
    "disclosure_formats": {"line": "board_of_results:Line"},
    "feature_extractors": {"projection": "board_of_results:Projection"},
    "audits": {"board": "board_of_results:audit"},
    "configurations": {"board": "board_of_results.conf"},
}
OURS = "mlflow, none, tensorboard, wandb"
BROKEN = "raise RuntimeError('the library\\nis too old')\n"


@pytest.fixture
def command(tmp_path: Path, environment: dict[str, str]) -> Command:
    """Runs `dpsweep` in the test's folder, with the distributions in these folders installed."""

    def run(*words: str, places: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "dpsweep", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=installed(environment, *places),
            timeout=HANGS,
            check=False,
        )

    return run


@pytest.fixture
def board(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    write_distribution(folder, "board_of_results", FILES, ENTRIES)
    return folder


@pytest.mark.long
def test_a_distribution_of_others_offers_one_of_each(board: Path, command: Command, tmp_path: Path) -> None:
    words = (*SWEEP, *LIGHT, "features=projection", "hydra.sweep.dir=out")
    done = command("sweep", *words, "logger=board", places=(board,))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "board.jsonl").read_text().splitlines()]
    assert [(line["mark"], line.keys() >= {"accuracy", "accuracy_low"}) for line in lines] == [("private", True)] * 2
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    features = [trial["config"]["features"] for block in plan["blocks"] for trial in block]
    assert {form["kind"] for form in features} == {"projection"}
    released = command("release", "out", "--for", "line,tre", places=(board,))
    assert released.returncode == 0, released.stderr
    assert (tmp_path / "out" / "release" / "line.txt").read_text().startswith("digits: epsilon ")
    audited = command("audit", *words, "audit.by=board", places=(board,))
    assert audited.returncode == 0, audited.stderr
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["notes"] == ["The board looked at nothing."]
    refused = command("resume", "out", places=(board,))
    assert refused.returncode == 2
    assert "Expected board_of_results.Projection to be on the command line too" in refused.stderr, (
        "a folder names no code"
    )
    without = command("verify", "out")
    assert without.returncode == 0, "a sweep is read where the distribution is missing"


def test_what_a_distribution_registers_is_offered_beside_ours(board: Path, command: Command) -> None:
    told = command("release", "--help", places=(board,)).stdout
    assert "FORM is one of cyclonedx, hf, line, registry, tre." in told
    refused = command("plan", *SWEEP, *LIGHT, "logger=neptune", places=(board,))
    assert "Expected logger=neptune to be one of board, mlflow, none, tensorboard, wandb." in refused.stderr


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("release", "nowhere", "--for", "broken"), "--for broken"),
        (("sweep", *SWEEP, *LIGHT, "+logger.mine._target_=broken"), "logger=broken"),
        (("plan", *SWEEP, *LIGHT, "+features._target_=broken"), "features=broken"),
        (("audit", *SWEEP, *LIGHT, "audit.by=broken"), "audit.by=broken"),
    ],
)
def test_a_broken_distribution_is_one_sentence_with_its_name(
    words: tuple[str, ...], part: str, command: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "site"
    groups = ("loggers", "disclosure_formats", "feature_extractors", "audits")
    write_distribution(
        folder, "board_of_results", {"broken.py": BROKEN}, {group: {"broken": "broken:Part"} for group in groups}
    )
    refused = command(*words, places=(folder,))
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[0] == (
        f"Expected the distribution board-of-results to work with {part}, got RuntimeError: the library is too old."
    )
    assert "Traceback" not in refused.stderr


@pytest.mark.long
def test_a_broken_distribution_harms_nobody_who_does_not_use_it(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    names = {"loggers": "tensorboard2", "disclosure_formats": "a", "feature_extractors": "x", "audits": "y"}
    write_distribution(
        folder,
        "board_of_results",
        {"broken.py": BROKEN},
        {**{group: {name: "broken:Part"} for group, name in names.items()}, "configurations": {"z": "broken.conf"}},
    )
    planned = command("plan", *SWEEP, *LIGHT, places=(folder,))
    assert planned.returncode == 0, planned.stderr
    unknown = command("release", "nowhere", "--for", "tre", places=(folder,))
    assert unknown.stderr.splitlines()[0].startswith("Expected nowhere to be a sweep folder")


def test_a_name_of_two_distributions_is_neither(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    write_distribution(
        folder, "board_of_results", {"broken.py": BROKEN}, {"disclosure_formats": {"tre": "broken:Part"}}
    )
    refused = command("release", "nowhere", "--for", "tre", places=(folder,))
    assert refused.returncode == 2
    (sentence, *_) = refused.stderr.splitlines()
    assert sentence.startswith("Expected --for tre of one distribution, got ")
    assert "board-of-results" in sentence
    assert "dpsweep" in sentence


@pytest.mark.parametrize("start", [["-m", "dpsweep"], ["-P", "-m", "dpsweep"]])
def test_the_current_folder_is_no_distribution(start: list[str], tmp_path: Path, environment: dict[str, str]) -> None:
    alarm = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
    files = {**dict.fromkeys(("evil/__init__.py", "evil/conf/__init__.py"), alarm), **FILES}
    files["evil/conf/logger/evil.yaml"] = "evil: {_target_: evil.Evil}\n"
    entries = {group: {"evil": "evil:Evil"} for group in ENTRIES} | {"configurations": {"evil": "evil.conf"}}
    write_distribution(tmp_path / "here", "evil", files, entries)
    for words, sentence in (
        (("release", "x", "--for", "evil"), "Expected --for evil to be one of cyclonedx, hf, registry, tre."),
        (
            ("plan", *SWEEP, *LIGHT, "logger=evil"),
            "Expected logger=evil to be one of mlflow, none, tensorboard, wandb.",
        ),
        (("audit", *SWEEP, *LIGHT, "audit.by=evil"), "Expected audit.by=evil to be one of recompute."),
    ):
        done = subprocess.run(
            [sys.executable, *start, *words],
            capture_output=True,
            text=True,
            cwd=tmp_path / "here",
            env=environment,
            timeout=HANGS,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr.splitlines()[0] == sentence
    assert not (tmp_path / "ran").exists()


def test_ours_are_registered_as_others_are() -> None:
    """Nothing but the entry points knows them, and each can be loaded."""
    for group in (LOGGERS, FORMATS, EXTRACTORS, AUDITS):
        assert registered_part_names(group)
        for name in registered_part_names(group):
            assert callable(load_registered_part(group, name, name))
            assert str(import_path_of_registered_part(group, name)).startswith("dpsweep.")


@pytest.mark.parametrize("kind", ["os.system", "Board", "../x", "", "a b", None, 3, []])
def test_a_stored_name_is_never_a_path(kind: Any) -> None:
    with pytest.raises(BadInput, match=r"^Expected features"):
        stored_form_of_config_part({"kind": kind, "size": 3}, "features")


def test_a_stored_name_that_nobody_registered_builds_nothing() -> None:
    form = {"kind": "nobody_has_it", "size": 3}
    assert stored_form_of_config_part(form, "features") == form
    assert find_user_classes_and_scripts({"features": form}) == {"nobody_has_it"}
    with pytest.raises(BadInput, match=r"^Expected features=nobody_has_it to be one of efficientnet_lite0, "):
        build_from_stored_form(form, "features")


@pytest.mark.parametrize("name", ["clip", "bert"])
def test_a_tag_of_ours_is_the_name_of_no_registered_part(name: str) -> None:
    """A plan with it would name another distribution's code, and `foreign_names` would take it for ours."""
    with pytest.raises(BadInput, match=f"^Expected features={name} to be one of efficientnet_lite0, "):
        build_from_stored_form({"kind": name}, "features")


def test_a_distribution_does_not_configure_the_sweeper(board: Path, command: Command) -> None:
    """Otherwise its `retry: all` would charge a command that is given again twice."""
    honest = board / "board_of_results" / "conf" / "hydra" / "sweeper" / "honest.yaml"
    honest.parent.mkdir(parents=True)
    honest.write_text("_target_: hydra_plugins.honest_sweeper.HonestSweeper\nverb: sweep\nretry: all\n")
    refused = command("plan", *SWEEP, *LIGHT, places=(board,))
    assert refused.returncode == 2
    assert (
        "Expected the distribution board-of-results to configure groups of dpsweep alone, got hydra/." in refused.stderr
    )
    assert "Traceback" not in refused.stderr
