"""Folders that dpsweep creates are their owner's, whatever the umask."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsweep.accounting import missing_rights
from dpsweep.accounting.durable_files import make_folder_and_missing_parents, make_private_folder_durably, write_json
from tests.conftest import Program
from tests.randomized import TRAINS
from tests.source_files import PACKAGES, ROOT, modules


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    """The permissions of all folders below this one."""
    return {str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_dir()}


@pytest.mark.usefixtures("open_umask")
def test_missing_folders_above_are_no_more_open_than_the_folder(tmp_path: Path) -> None:
    make_folder_and_missing_parents(tmp_path / "a" / "b" / "c")
    make_private_folder_durably(tmp_path / "d" / "e")
    write_json(tmp_path / "f" / "g" / "numbers.json", {})
    assert set(modes(tmp_path).values()) == {0o700}
    make_folder_and_missing_parents(tmp_path / "a" / "b")


@TRAINS
@pytest.mark.usefixtures("open_umask")
def test_a_sweep_creates_no_folder_that_others_may_write(
    fresh_program: Program, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["XDG_STATE_HOME"] = str(tmp_path / "state" / "of" / "user")
    environment["DPSWEEP_LEDGER"] = str(tmp_path / "shared" / "books" / "ledger.sqlite")
    words = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=3")
    done = fresh_program(*words, "privacy.noise_multiplier=3", "score.noise_std=30", "accountant=rdp")
    assert done.returncode == 0, done.stderr
    (plan,) = (tmp_path / "sweeps" / "digits").iterdir()
    assert fresh_program("release", str(plan), module="dpsweep.sweeper.commands.cli").returncode == 0
    others = {path for path, mode in modes(tmp_path).items() if mode != 0o700}
    assert others == set()


@pytest.mark.skipif(os.name != "posix", reason="rights of users and groups")
@pytest.mark.parametrize(
    ("user", "groups", "administrator", "advice"),
    [
        ("owner", "its", "none", r"give yourself the rights: chmod u\+rwx /.*/closed"),
        ("other", "its", "none", r" can give rights: chmod g\+rwx /.*/closed"),
        ("other", "none", "none", "use a place of your own, or a folder of a group of yours .docs/scaling.md."),
        ("other", "its", "owner", "use a place of your own, or a folder of a group of yours .docs/scaling.md."),
    ],
)
def test_missing_rights_have_a_way_out_that_opens_no_folder_of_the_system_and_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, groups: str, administrator: str, advice: str
) -> None:
    """`chmod g+rwx /` helps nobody, and rights of a group do not help who is not in it."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    state = folder.stat()
    monkeypatch.setattr(os, "geteuid", lambda: state.st_uid + (user == "other"))
    monkeypatch.setattr(os, "getegid", lambda: state.st_gid + 1)
    monkeypatch.setattr(os, "getgroups", lambda: [state.st_gid] if groups == "its" else [])
    monkeypatch.setattr(missing_rights, "ADMINISTRATOR", state.st_uid if administrator == "owner" else -1)
    assert re.search(f", which keeps .* out; .*{advice}[.]$", missing_rights.sentence_on_rights(folder))
    wanted = folder / "sweeps" / "first"
    assert re.search(
        f", which keeps .* from making {wanted}; .*{advice}[.]$", missing_rights.sentence_on_rights(wanted)
    )


def test_folders_are_created_in_one_file() -> None:
    others = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in modules(package)
        if ".mkdir(" in path.read_text() or "makedirs(" in path.read_text()
    }
    assert others == {"accounting/durable_files.py"}
