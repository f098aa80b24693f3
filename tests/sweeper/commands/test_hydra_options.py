"""Every option of Hydra works, is refused by name, or is harmless, as the table of docs/settings.md says."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
from hydra._internal.utils import get_args_parser
from hydra.conf import HydraConf
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.errors import BadInput, NoReceipt
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.commands.hydra_app import main
from tests.conftest import Program
from tests.forked_programs import Run
from tests.randomized import TRAINS
from tests.waiting import strike_when

SETTINGS = Path(__file__).parents[3] / "docs" / "settings.md"
LINE = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=3", "accountant=rdp")
NOISE = ("accountant.witnesses=[]", "privacy.noise_multiplier=3", "score.noise_std=30")
CLI = "dpsweep.sweeper.commands.cli"


@cache
def table() -> dict[str, str]:
    """What the page says of each option, in its first word."""
    text = SETTINGS.read_text().partition("## Options of Hydra")[2]
    rows = re.findall(r"^\| (`.*?) \| (works|refused|harmless): ", text, re.MULTILINE)
    return {name: verdict for names, verdict in rows for name in re.findall(r"`([^`]+)`", names)}


def verdict(option: str) -> str | None:
    """What the page says of an option: the row that names it, else the longest pattern that fits."""
    fitting = [row for row in table() if row == option or fnmatchcase(option, row)]
    return table()[max(fitting, key=lambda row: (row == option, len(row)))] if fitting else None


def flags() -> list[str]:
    return [one.option_strings[0] for one in get_args_parser()._actions if one.option_strings]


def leaves(node: DictConfig, prefix: str) -> Iterator[str]:
    for key in node:
        below = None if OmegaConf.is_missing(node, key) else node[key]
        if isinstance(below, DictConfig) and below:
            yield from leaves(below, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def keys() -> list[str]:
    """Every key below `hydra`, those of the launchers and of the sweeper, and the groups of Hydra's defaults."""
    Plugins.instance()
    store = ConfigStore.instance().repo["hydra"]
    structured = OmegaConf.structured(HydraConf)
    launchers = {
        f"hydra.launcher.{key}" for one in store["launcher"].values() for key in OmegaConf.create(one.node) if key
    }
    sweeper = {f"hydra.sweeper.{key}" for key in OmegaConf.create(store["sweeper"]["honest.yaml"].node)}
    groups = {f"hydra/{group}" for one in structured.defaults for group in one}
    own = {key for key in leaves(structured, "hydra.") if key not in ("hydra.launcher", "hydra.sweeper")}
    nested = {f"{key}.x" for key in ("hydra.callbacks", "hydra.job_logging", "hydra.hydra_logging")}
    return sorted(own - {name.removesuffix(".x") for name in nested} | nested | launchers | sweeper | groups)


def test_the_table_has_every_option_of_the_installed_hydra() -> None:
    assert [option for option in (*flags(), *keys()) if verdict(option) is None] == []


VALUES = {"--config-dir": ".", "--cfg": "job", "--info": "all", "--package": "model", "--config-name": "config"}
VALUES |= {"--config-path": "conf", "--experimental-rerun": "job.pickle"}


@pytest.mark.parametrize("flag", [flag for flag in flags() if verdict(flag) == "refused"])
def test_a_refused_flag_is_named(flag: str) -> None:
    words = [flag, *([VALUES[flag]] if flag in VALUES else [])]
    with pytest.raises((BadInput, NoReceipt), match=f"Expected {flag} |^Nothing trains outside a charged sweep"):
        main([*words, *LINE])


def test_a_flag_that_a_later_hydra_adds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def parser() -> object:
        made = get_args_parser()
        made.add_argument("--dry", action="store_true")
        return made

    monkeypatch.setattr("dpsweep.sweeper.commands.hydra_internals.get_args_parser", parser)
    with pytest.raises(BadInput, match="Expected --dry to be left out: dpsweep does not know"):
        main(["--dry", *LINE])


@pytest.mark.parametrize("words", [["--package", "model"], ["--resolve"], ["--multirun", "--cfg", "job"]])
def test_a_flag_beside_others_that_makes_no_sense_is_named(words: list[str]) -> None:
    with pytest.raises(BadInput, match=f"Expected (one of )?{words[0]} "):
        main([*words, *LINE])


def test_every_refused_key_is_named_however_it_is_written() -> None:
    refused = [key for key in keys() if verdict(key) == "refused"]
    assert len(refused) > 25
    by_type = ("hydra.launcher.backend", "hydra.launcher.prefer", "hydra.launcher.require")
    for key in (*(set(refused) - set(by_type)), "hydra", "hydra.launcher", "hydra.sweeper", "hydra.new_key"):
        for typed in (key, f"+{key}", f"++{key}", f"~{key}"):
            with pytest.raises((BadInput, NoReceipt), match=re.escape(f"Expected {typed} to be left out")):
                main([*LINE, f"{typed}=x"])
    for word in ("hydra.mode=RUN", "hydra.mode=null", "++hydra.mode=RUN"):
        with pytest.raises(NoReceipt):
            main([*LINE, "--multirun", word])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("hydra.sweeper.max_batch_size=-5",), "hydra.sweeper.max_batch_size=-5 to be an integer >= 1"),
        (("hydra.sweeper.max_batch_size=0",), "hydra.sweeper.max_batch_size=0 to be an integer >= 1"),
        (("hydra/launcher=joblib", "hydra.launcher.backend=threading"), "hydra.launcher.backend=threading to be left"),
        (("hydra/launcher=joblib", "hydra.launcher.prefer=threads"), "hydra.launcher.prefer=threads to be left out"),
        (("hydra/launcher=fork", "hydra.launcher.no_such=1"), "hydra.launcher.no_such=1"),
        (("hydra.sweeper.no_such=1",), "hydra.sweeper.no_such=1"),
        (("hydra/sweeper=basic",), "Nothing trains outside a charged sweep"),
        (("--config-dir", "mine"), "mine/dataset/digits.yaml to have another name"),
        (("--config-dir", "nowhere"), "nowhere"),
    ],
)
def test_what_would_do_nothing_charges_nothing(
    program: Program, ledger: Ledger, tmp_path: Path, words: Sequence[str], named: str
) -> None:
    file = tmp_path / "mine" / "dataset" / "digits.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("name: mine\n")
    done = program("sweep", *LINE, *NOISE, *words, module=CLI)
    assert done.returncode == 2, done.stdout + done.stderr
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 2, done.stderr
    assert ledger.account_names() == ()


def test_what_works_or_is_harmless_leaves_the_plan_as_it_is(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "mine" / "dataset" / "own.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\ndefaults:\n  - /dataset@_here_: digits\nsteps: 3\n")

    def plan(*words: str) -> str:
        done = program("plan", *LINE, *NOISE, *words, module=CLI)
        assert done.returncode == 0, done.stderr
        return re.search(r"Plan \w+ on \w+", done.stdout)[0] + done.stderr  # type: ignore[index]

    plain = plan()
    for words in (
        ("--multirun",),
        ("hydra.mode=MULTIRUN", "hydra/sweeper=honest"),
        ("hydra.sweeper.max_batch_size=1", "hydra.sweeper.resume=2", "hydra.sweeper.retry=none"),
        ("hydra/launcher=fork", "hydra.launcher.n_jobs=2"),
        ("hydra/launcher=joblib", "hydra.launcher.pre_dispatch=1", "hydra.launcher.batch_size=1"),
        ("--config-dir", "mine", "dataset=own"),
        ("--config-dir", str(tmp_path / "mine"), "dataset=own"),
        ("hydra.searchpath=[file://mine]", "dataset=own"),
    ):
        assert plan(*words).replace("dataset is given several times: dataset=own is used, and ", "") in (
            plain,
            f"{plain}dataset=digits is ignored.\n",
        )
    said = program("plan", *LINE, *NOISE, "hydra.sweep.dir=here", module=CLI).stdout
    assert f"The plan is in {tmp_path / 'here'}, where a sweep with this hydra.sweep.dir runs." in said
    assert (tmp_path / "here" / "plan.json").exists()


WAYS = {
    "trainer.lr": ("1", "0.5", "1,2", "choice(3,4)", "range(1,4)", "interval(0.1,1)", "auto"),
    "trainer": ("dpsgd", "dpsgd,dpnsgd", "dpnsgd"),
    "steps": ("3", "4,5"),
    "model": ("logistic", "logistic,softmax"),
    "privacy.noise_multiplier": ("3", "3,4"),
    "lr_schedule": ("constant", "constant,cosine"),
}


def test_the_last_of_two_words_for_one_key_is_the_plans(compose_priced: Callable[..., PricedPlan]) -> None:
    def planned(*words: str) -> str:
        base = [one for one in (*LINE, *NOISE) if one.partition("=")[0] not in {key for key, _ in pairs}]
        try:
            return compose_priced([*base, *words]).plan.id
        except BadInput as refusal:
            return str(refusal)

    draw = random.Random(7)
    for key in (*WAYS, *WAYS):
        first, last = draw.choice(WAYS[key]), draw.choice(WAYS[key])
        pairs = [(key, first)]
        earlier = draw.choice(("", "", "++")) if "." in key else ""
        assert planned(f"{earlier}{key}={first}", f"{key}={last}") == planned(f"{key}={last}"), (key, first, last)
    pairs = [("trainer.lr", "")]
    assert planned("trainer.lr=0.1,0.2", "~trainer.lr") == planned("~trainer.lr")
    assert planned("~trainer.lr", "trainer.lr=0.1,0.2") == planned("trainer.lr=0.1,0.2")


@TRAINS
@pytest.mark.parametrize("retry", ["none", "failed"])
def test_runs_that_are_paid_for_and_have_not_started_start_whatever_a_later_command_says(
    environment: dict[str, str], program: Program, ledger: Ledger, tmp_path: Path, retry: str
) -> None:
    words = (*(word for word in LINE if not word.startswith("steps")), "trainer.lr=1,2,3", "steps=120", *NOISE)
    words = (
        "sweep",
        *words,
        "privacy.noise_multiplier=60",
        "compute.together=1",
        "hydra.sweep.dir=here",
        "engine=opacus",
    )
    with Run((*words, "page=false"), tmp_path, environment) as process:
        strike_when(lambda: any(tmp_path.glob("here/trials/*/progress")), process, signal.SIGINT)
        stopped = process.wait()
    assert stopped.code == 130, stopped.out + stopped.err
    later = (f"hydra.sweeper.retry={retry}", "hydra.sweeper.max_batch_size=1", "hydra.sweeper.resume=1")
    done = program(*words, *later, module=CLI)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("here/trials/*/result.json"))) == 3
    assert len(ledger.statement("digits").charges) == 1


def test_children_of_a_command_inherit_no_setting_of_hydras_that_the_user_did_not_make(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "told.py").write_text(
        "import os\nfrom pathlib import Path\nfrom torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self, shape, classes):\n"
        "        Path('told').write_text(str(os.environ.get('HYDRA_FULL_ERROR')))\n"
        "        super().__init__(64, classes)\n"
        "    def forward(self, values):\n        return super().forward(values.flatten(1))\n"
    )
    words = (*LINE, *NOISE, "model._target_=told.Net", "seed=1")
    done = program("sweep", *words, "page=false", module=CLI)
    assert (tmp_path / "told").read_text() == "None", done.stderr
