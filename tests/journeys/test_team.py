"""Two Unix users of one group plan, sweep and report on one ledger, with one private store and one key."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dpsweep.sweeper.commands.team import ENVIRONMENT
from tests.engines import postgres_site
from tests.forked_programs import Done, Run
from tests.randomized import TRAINS
from tests.unix_users import become
from tests.waiting import strike_when

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs the administrator's right to become other users"
)

LEDGER_PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"
GROUP, ALICE, BOB, EVE = 61000, 61001, 61002, 61003
WORDS = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=3", "page=false")
PRICE = ("privacy.noise_multiplier=3", "score.noise_std=30", "accountant=rdp")


class Lab:
    """A folder that is to be a team's, and users with homes of their own and the closest umask."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "lab"
        self.logins: dict[int, dict[str, str]] = {}
        """What each user has to log in to a server."""

    def start(self, user: int, *words: str, group: int = GROUP, umask: int = 0o077) -> Run:
        """A command of this user's, which goes on."""
        home = self.root / str(user)
        if not home.exists():
            home.mkdir(mode=0o700)
            os.chown(home, user, user)
        kept = {key: os.environ[key] for key in ("PATH", "OMP_NUM_THREADS") if key in os.environ}
        places = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("STATE", "CONFIG", "DATA", "CACHE")}
        environment = kept | places | {"HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"} | self.logins.get(user, {})
        if (lines := self.folder / ENVIRONMENT).exists():
            environment |= [shlex.split(line)[1].split("=", 1) for line in lines.read_text().splitlines()]
        return Run(words, home, environment, first=partial(become, user, group, umask))

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
    one = Lab(root)
    one.folder.mkdir(mode=0o700)
    os.chown(one.folder, ALICE, ALICE)
    try:
        yield one
    finally:
        shutil.rmtree(root)


def made(lab: Lab, *words: str) -> None:
    done = lab.run(ALICE, "team", str(lab.folder), "--group", str(GROUP), *words)
    assert done.code == 0, done.err


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
    made(lab)
    shared, own = lab.folder / "sweeps" / "first", lab.root / str(BOB) / "own"
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
    made(lab)
    shared, own = lab.folder / "sweeps" / "first", lab.root / str(BOB) / "own"
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
    made(lab)
    closed, own = lab.root / str(ALICE) / "own", lab.root / str(BOB) / "own"
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
    made(lab)
    words = (f"hydra/launcher={launcher}", "trainer.lr=1,2", "compute.together=1", "compute.device=cpu", "page=true")
    done = lab.sweep(0, lab.folder / "sweeps" / "first", *words)
    assert done.code == 0, done.out + done.err
    assert len([*lab.folder.glob("sweeps/first/trials/*/result.json")]) == 2
    assert open_to_others_or_closed_to_the_group(lab.folder) == []


@pytest.mark.long
@TRAINS
def test_two_users_charge_one_account_of_a_server_each_by_their_own_role(lab: Lab) -> None:
    if reason := postgres_site.reason_why_not():
        pytest.skip(reason)
    with postgres_site.servers_running() as servers:
        for user, role in ((ALICE, postgres_site.ROLE), (BOB, "bob")):
            passwords = lab.root / f"pgpass-{user}"
            passwords.write_text(f"*:*:*:{role}:{servers.password}\n")
            passwords.chmod(0o600)
            os.chown(passwords, user, user)
            lab.logins[user] = {"PGUSER": role, "PGPASSFILE": str(passwords)}
        made(lab, "--ledger", f"postgresql+psycopg://127.0.0.1:{servers.port}/{postgres_site.DATABASE}")
        shared, own = lab.folder / "sweeps" / "first", lab.root / str(BOB) / "own"
        first = lab.sweep(ALICE, shared)
        assert first.code == 0, first.err
        (documented,) = re.findall(r"```sql\n(.*?)```", LEDGER_PAGE.read_text(), re.DOTALL)
        servers.sql(
            documented.replace("LOGIN", f"LOGIN PASSWORD '{servers.password}'").replace("sweeps", "bob"),
            postgres_site.DATABASE,
        )
        shown = lab.sweep(BOB, own)
        assert shown.code == 0, shown.out + shown.err
        assert f"was finished by role {postgres_site.ROLE} on" in shown.out
        other = lab.sweep(BOB, own, "trainer.lr=2")
        assert other.code == 0, other.err
        made(lab)  # given again without the address
        account = lab.run(ALICE, "budget", "dataset=digits").out
        assert account.count(f"role {postgres_site.ROLE}") == account.count("role bob") == 1, account
        assert not (lab.folder / "ledger.sqlite").exists()
        assert open_to_others_or_closed_to_the_group(lab.folder) == []


def test_a_ledger_that_is_named_again_stays_the_teams(lab: Lab) -> None:
    address = "postgresql+psycopg://127.0.0.1/other"
    for words in ((), ("--ledger", address), ()):
        made(lab, *words)
    assert f"export DPSWEEP_LEDGER={address}\n" in (lab.folder / ENVIRONMENT).read_text()


def test_the_key_is_the_groups_and_nobody_elses(lab: Lab) -> None:
    made(lab)
    state = (lab.folder / "dpsweep.key").stat()
    assert (stat.S_IMODE(state.st_mode), state.st_gid) == (0o640, GROUP)
    refused = lab.run(EVE, "plan", *WORDS, *PRICE, group=EVE)
    assert refused.code != 0
    assert "Errno" not in refused.err
    assert f"{lab.folder} belongs to {ALICE} and group {GROUP} with mode 2770, which keeps {EVE} out" in refused.err
    assert f"usermod -aG {GROUP} {EVE}" in refused.err


@pytest.mark.parametrize("name", ["dpsweep.key", "stores"])
def test_a_file_with_wrong_modes_is_named_with_its_owner_and_the_command_that_mends_it(lab: Lab, name: str) -> None:
    made(lab)
    place = lab.folder / name
    place.chmod(0o600 if place.is_file() else 0o700)
    refused = lab.sweep(BOB, lab.root / str(BOB) / "own")
    assert refused.code != 0
    assert "Errno" not in refused.err
    assert f"{place} belongs to {ALICE} and group {GROUP} with mode" in refused.err
    assert f"{ALICE} gives the group its rights: dpsweep team {lab.folder}" in refused.err
    made(lab)
    assert open_to_others_or_closed_to_the_group(lab.folder) == []


def test_a_group_that_the_user_is_no_member_of_is_refused(lab: Lab) -> None:
    refused = lab.run(ALICE, "team", str(lab.folder), "--group", str(EVE))
    assert refused.code == 2
    assert f"Expected {ALICE} to be a member of the group {EVE}" in refused.err
    assert list(lab.folder.iterdir()) == []
