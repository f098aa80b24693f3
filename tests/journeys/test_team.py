"""Two Unix users of one group plan, sweep and report on one ledger, with one private store and one key."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.engines import postgres_site
from tests.forked_programs import Done, Run
from tests.randomized import TRAINS
from tests.unix_users import become
from tests.waiting import strike_when

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs the administrator's right to become other users"
)

DOCS = Path(__file__).parents[2] / "docs"
GROUP, ALICE, BOB, EVE = 61000, 61001, 61002, 61003
WORDS = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=3", "page=false")
PRICE = ("privacy.noise_multiplier=3", "score.noise_std=30", "accountant=rdp")


class Lab:
    """A group's folder as docs/scaling.md makes it, and users with homes of their own."""

    def __init__(self, root: Path) -> None:
        self.root, self.place = root, root / "lab"
        self.folder, self.settings = self.place / "group", self.place / "settings.sh"
        self.logins: dict[int, dict[str, str]] = {}
        """What each user has to log in to a server."""

    def make(self, **names: str | None) -> None:
        """Gives the page's lines; `names` replaces variables of the last one, None leaves one out."""
        (lines,) = re.findall(r"```sh\n(umask.*?)```", (DOCS / "scaling.md").read_text(), re.DOTALL)
        for name, value in names.items():
            lines = re.sub(rf" {name}=\S+", "" if value is None else f" {name}={value}", lines)
        lines = lines.replace("/srv/lab", str(self.place)).replace("-g lab", f"-g {GROUP}")
        subprocess.run(["sh", "-ec", lines], check=True)

    def home(self, user: int) -> Path:
        """A user's home, closed to others."""
        home = self.root / str(user)
        if not home.exists():
            home.mkdir(mode=0o700)
            os.chown(home, user, user)
        return home

    def start(self, user: int, *words: str, group: int = GROUP) -> Run:
        """A command of this user's, which goes on."""
        home = self.home(user)
        kept = {key: os.environ[key] for key in ("PATH", "OMP_NUM_THREADS") if key in os.environ}
        places = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("STATE", "CONFIG", "DATA", "CACHE")}
        environment = kept | places | {"HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"} | self.logins.get(user, {})
        said = subprocess.run(
            ["sh", "-ec", f". {self.settings}; umask; env"], env={}, check=True, capture_output=True, text=True
        )
        umask, *settings = said.stdout.splitlines()
        environment |= [line.split("=", 1) for line in settings if line.startswith("DPSWEEP_")]
        return Run(words, home, environment, first=partial(become, user, group, int(umask, 8)))

    def run(self, user: int, *words: str, group: int = GROUP) -> Done:
        """A command of this user's."""
        return self.start(user, *words, group=group).wait()

    def sweep(self, user: int, place: Path, *words: str) -> Done:
        """A sweep of one point in this folder."""
        return self.run(user, "sweep", *WORDS, *PRICE, f"hydra.sweep.dir={place}", *words)


@pytest.fixture
def lab() -> Iterator[Lab]:
    root = Path(tempfile.mkdtemp(prefix="team"))
    root.chmod(0o755)
    try:
        yield Lab(root)
    finally:
        shutil.rmtree(root)


def as_user(user: int, work: Callable[[], object]) -> str:
    """What the work of a member raises, in a process of the member's own."""
    reads, writes = os.pipe()
    if not (child := os.fork()):
        become(user, GROUP, 0o007)
        try:
            work()
            os.write(writes, b"nothing")
        except OSError as cause:
            os.write(writes, type(cause).__name__.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with os.fdopen(reads) as stream:
        return stream.read()


def open_to_others_or_closed_to_the_group(folder: Path) -> list[str]:
    wrong = []
    for path in (folder, *folder.rglob("*")):
        state = path.stat()
        least = stat.S_IRGRP if path.is_file() else stat.S_IRWXG | stat.S_ISGID
        if state.st_mode & stat.S_IRWXO or state.st_mode & least != least or state.st_gid != GROUP:
            wrong.append(f"{path.relative_to(folder)} {stat.S_IMODE(state.st_mode):o} {state.st_gid}")
    return wrong


@TRAINS
def test_two_users_sweep_and_report_on_one_account(lab: Lab) -> None:
    lab.make()
    shared, own = lab.folder / "sweeps" / "first", lab.home(BOB) / "own"
    first = lab.sweep(ALICE, shared)
    assert first.code == 0, first.err
    assert open_to_others_or_closed_to_the_group(lab.folder) == []
    planned = lab.run(BOB, "plan", *WORDS, *PRICE)
    assert planned.code == 0, planned.err
    shown = lab.sweep(BOB, own)
    assert shown.code == 0, shown.err
    assert f"was finished by {ALICE}@" in shown.out
    assert f"It lies in {shared}" in shown.out
    reported = lab.run(BOB, "report", str(shared))
    assert reported.code == 0, reported.err
    again = lab.sweep(BOB, shared, "--again")
    assert again.code == 0, again.err
    other = lab.sweep(BOB, own, "trainer.lr=2")
    assert other.code == 0, other.err
    account = lab.run(ALICE, "budget", "dataset=digits").out
    assert f"{ALICE}@" in account
    assert account.count(f"{BOB}@") == 2
    assert open_to_others_or_closed_to_the_group(lab.folder) == []


@TRAINS
def test_another_member_is_shown_what_is_unfinished_resumes_and_releases_it(lab: Lab) -> None:
    lab.make()
    shared, own = lab.folder / "sweeps" / "first", lab.home(BOB) / "own"
    words = (*WORDS, *PRICE, "engine=opacus", "steps=300")
    with lab.start(ALICE, "sweep", *words, f"hydra.sweep.dir={shared}") as process:
        strike_when(lambda: any(shared.glob("trials/*/progress")), process, signal.SIGINT)
        stopped = process.wait()
    assert stopped.code == 130, stopped.out + stopped.err
    assert open_to_others_or_closed_to_the_group(lab.folder) == []
    planned = lab.run(BOB, "plan", *words)
    assert planned.code == 0, planned.err
    refused = lab.run(BOB, "sweep", *words, f"hydra.sweep.dir={own}")
    assert refused.code == 2, refused.out + refused.err
    for said in (planned.out, refused.err):
        assert f"was left unfinished by {ALICE}@" in said
        assert f"It lies in {shared}: dpsweep resume {shared}. Nothing was run or charged." in said
    assert not own.exists()
    resumed = lab.run(BOB, "resume", str(shared))
    assert resumed.code == 0, resumed.err
    released = lab.run(BOB, "release", str(shared))
    assert released.code == 0, released.err
    account = lab.run(ALICE, "budget", "dataset=digits").out
    assert account.count("1 run ") == 1, account
    reported = lab.run(ALICE, "report", str(shared))
    assert reported.code == 0, reported.err
    assert open_to_others_or_closed_to_the_group(lab.folder) == []


@TRAINS
def test_a_plan_in_a_members_own_folder_is_shown_with_whose_it_is(lab: Lab) -> None:
    lab.make()
    closed, own = lab.home(ALICE) / "own", lab.home(BOB) / "own"
    assert lab.sweep(ALICE, closed).code == 0
    shown = lab.sweep(BOB, own)
    assert shown.code == 0, shown.out + shown.err
    assert f"was finished by {ALICE}@" in shown.out
    assert (
        f"It lies in {closed}: {closed.parent} belongs to {ALICE} and group {ALICE} with mode 0700, which" in shown.out
    )
    assert not own.exists()


@pytest.mark.long
@TRAINS
@pytest.mark.parametrize("launcher", ["fork", "joblib", "submitit_local"])
def test_what_workers_write_is_the_groups(lab: Lab, launcher: str) -> None:
    """The administrator sweeps, since Python may lie where no other user of this machine can start it."""
    lab.make()
    words = (f"hydra/launcher={launcher}", "trainer.lr=1,2", "compute.together=1", "compute.device=cpu", "page=true")
    done = lab.sweep(0, lab.folder / "sweeps" / "first", *words)
    assert done.code == 0, done.out + done.err
    assert len([*lab.folder.glob("sweeps/first/trials/*/result.json")]) == 2
    assert open_to_others_or_closed_to_the_group(lab.folder) == []


@pytest.mark.long
@TRAINS
def test_two_users_charge_one_account_of_a_server_each_by_their_own_role(lab: Lab) -> None:
    """The second has the rights of the page alone, which are SELECT and INSERT."""
    if reason := postgres_site.reason_why_not():
        pytest.skip(reason)
    with postgres_site.servers_running() as servers:
        for user, role in ((ALICE, postgres_site.ROLE), (BOB, "bob")):
            passwords = lab.root / f"pgpass-{user}"
            passwords.write_text(f"*:*:*:{role}:{servers.password}\n")
            passwords.chmod(0o600)
            os.chown(passwords, user, user)
            lab.logins[user] = {"PGUSER": role, "PGPASSFILE": str(passwords)}
        ledger = f"postgresql+psycopg://127.0.0.1:{servers.port}/{postgres_site.DATABASE}"
        lab.make(LEDGER=ledger, GROUP=None, PRIVATE=None)
        first_place, own = lab.home(ALICE) / "first", lab.home(BOB) / "own"
        first = lab.sweep(ALICE, first_place)
        assert first.code == 0, first.err
        (documented,) = re.findall(r"```sql\n(.*?)```", (DOCS / "ledger.md").read_text(), re.DOTALL)
        assert not re.search("UPDATE|DELETE|CREATE ON|ALL|OWNER", documented)
        servers.sql(
            documented.replace("LOGIN", f"LOGIN PASSWORD '{servers.password}'").replace("sweeps", "bob"),
            postgres_site.DATABASE,
        )
        same = lab.sweep(BOB, own)
        assert same.code == 4, same.out + same.err
        assert "No run that is paid for is left; nothing is run or charged." in same.out
        other = lab.sweep(BOB, lab.home(BOB) / "other", "trainer.lr=2")
        assert other.code == 0, other.err
        account = lab.run(ALICE, "budget", "dataset=digits").out
        assert account.count(f"role {postgres_site.ROLE}") == account.count("role bob") == 1, account
        assert list(lab.folder.iterdir()) == []


def test_key_and_settings_are_read_by_the_group_and_changed_by_no_member(lab: Lab) -> None:
    lab.make()
    key = lab.place / "dpsweep.key"
    assert (stat.S_IMODE(key.stat().st_mode), key.stat().st_gid) == (0o640, GROUP)
    before = {path: path.read_bytes() for path in (key, lab.settings)}
    for path in before:
        for work in (
            partial(path.write_text, "own"),
            path.unlink,
            partial(path.rename, path.with_name("old")),
            partial(path.chmod, 0o666),
        ):
            assert as_user(BOB, work) == "PermissionError"
    assert as_user(BOB, partial((lab.place / "new").write_text, "own")) == "PermissionError"
    assert {path: path.read_bytes() for path in before} == before
    assert as_user(BOB, key.read_bytes) == as_user(BOB, (lab.folder / "own").mkdir) == "nothing"


def test_who_is_no_member_is_kept_out_and_told_why(lab: Lab) -> None:
    lab.make()
    refused = lab.run(EVE, "plan", *WORDS, *PRICE, group=EVE)
    assert refused.code != 0
    assert "Errno" not in refused.err
    assert f"{lab.folder} belongs to root and group {GROUP} with mode 2770, which keeps {EVE} out" in refused.err
    assert "use a place of your own, or a folder of a group of yours" in refused.err


@TRAINS
def test_a_link_that_a_member_puts_into_the_folder_opens_no_file_of_who_works_there(lab: Lab) -> None:
    lab.make()
    shared, secret = lab.folder / "sweeps" / "first", lab.home(BOB) / "secret"
    assert lab.sweep(ALICE, shared, "page=true").code == 0
    secret.write_text("of BOB alone")
    os.chown(secret, BOB, GROUP)
    secret.chmod(0o600)
    for place in (shared, shared / "curator", shared / "trials", lab.folder / "stores"):
        assert as_user(ALICE, partial((place / "link").symlink_to, secret)) == "nothing"
    for words in (("report", str(shared)), ("release", str(shared)), ("verify", str(shared))):
        lab.run(BOB, *words)
    lab.sweep(BOB, shared, "--again", "page=true")
    assert (stat.S_IMODE(secret.stat().st_mode), secret.read_text()) == (0o600, "of BOB alone")


def test_a_file_without_rights_of_the_group_is_named_with_who_can_give_them(lab: Lab) -> None:
    lab.make()
    assert as_user(ALICE, partial((lab.folder / "stores").mkdir, 0o700)) == "nothing"
    refused = lab.sweep(BOB, lab.home(BOB) / "own")
    assert refused.code != 0
    assert "Errno" not in refused.err
    assert f"{lab.folder / 'stores'} belongs to {ALICE} and group {GROUP} with mode" in refused.err
    assert f"{ALICE} can give rights: chmod g+rwx {lab.folder / 'stores'}" in refused.err
