"""The commands: what they print, what they change, and what they leave alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import remaining_amounts
from dpsweep.accounting.ledger.upkeep import raise_budget
from dpsweep.accounting.printing import wrap_lines_below_last_column
from dpsweep.sweeper.commands import cli
from dpsweep.sweeper.commands.cli import VERBS
from tests.charges import charge_cost
from tests.forked_programs import Run
from tests.randomized import TRAINS
from tests.reports.disclosure.forms import NAMES

Program = Callable[..., subprocess.CompletedProcess[str]]
TRAINERS = sorted(path.stem for path in (Path(__file__).parents[3] / "conf" / "trainer").glob("*.yaml"))


def test_plan_prints_the_price_and_charges_nothing(program: Program, tmp_path: Path) -> None:
    done = program("plan", "dataset=digits", "trainer=dpnsgd", "accountant=rdp", module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 0, done.stderr
    for words in ("the whole search", "What a paper would report for one run", "it fits", "about", "16 dpnsgd"):
        assert words in done.stdout
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert files - {"speeds.json.lock"} == {"plan.json", "speeds.json"}, "the lock is there where a step was timed"


def test_a_plan_begins_with_four_lines_and_lists_other_rules_where_they_are_asked_for(program: Program) -> None:
    cli = "dpsweep.sweeper.commands.cli"
    words = ("plan", "dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "accountant=rdp")
    for asked in ((), ("--rules",)):
        done = program(*words, *asked, module=cli)
        assert done.returncode == 0, done.stderr
        beginnings = [line.partition(":")[0] for line in done.stdout.splitlines()[:4]]
        assert beginnings == ["price", "budget", "may be shown", "time"]
        assert ("private_selection" in done.stdout) is bool(asked)
        assert "one run alone" not in done.stdout, "the single point is the whole search"


def test_help_lists_groups_and_exit_codes(program: Program) -> None:
    done = program("--help")
    assert done.returncode == 0
    for words in (f"trainer: {', '.join(TRAINERS)}", "grid:", "paper_a", "Exit codes"):
        assert words in done.stdout
    verbs = program("--help", module="dpsweep.sweeper.commands.cli")
    assert all(verb in verbs.stdout for verb in ("sweep", "plan", "budget", "verify", "report", "release"))


def test_the_help_of_each_verb_fits_a_terminal_and_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    for name, verb in VERBS.items():
        text = "\n".join((verb.line, verb.example, verb.hint()))
        assert verb.example.startswith(f"dpsweep {name}") or not verb.usage
        wrapped = wrap_lines_below_last_column(f"  {verb.example}\n{text}", 80).splitlines()
        assert max(map(len, wrapped)) <= 80
        assert wrapped[0].strip() == verb.example, "not broken"
    cli.budget(["--help"])
    assert not any(line.startswith(" ") for line in capsys.readouterr().out.splitlines())


def test_hydras_own_flags_work(program: Program, tmp_path: Path) -> None:
    shown = program("--cfg", "job", "dataset=cifar10", "trainer=dpadam", "trainer.lr=0.003")
    assert shown.returncode == 0, shown.stderr
    assert "dpsweep.trainers.methods.named_methods.DpAdam" in shown.stdout
    assert "lr: 0.003" in shown.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def complete(environment: dict[str, str], tmp_path: Path) -> Callable[[str], list[str]]:
    """What TAB offers after this line."""

    def words(line: str) -> list[str]:
        typed = {"COMP_LINE": f"dpsweep {line}", "COMP_POINT": str(len(line) + 8), "COMP_CWORD": "1"}
        return Run(("-sc", "query=bash"), tmp_path, environment | typed).wait().out.split()

    return words


@pytest.mark.long
def test_tab_completion_knows_sweep_folders(complete: Callable[[str], list[str]], tmp_path: Path) -> None:
    for name in ("sweeps/digits/aa1", "sweeps/digits/bb2", "sweeps/rehearsal-digits/cc3", "else/where/dd4"):
        (tmp_path / name).mkdir(parents=True)
        if not name.startswith("else"):
            (tmp_path / name / "plan.json").touch()
    both = ["sweeps/digits/aa1", "sweeps/digits/bb2"]
    for verb in ("resume", "verify", "report", "release", "export"):
        assert complete(f"{verb} ") == complete(f"{verb} sw") == ["sweeps/"]
        assert complete(f"{verb} sweeps/") == [*both, "sweeps/rehearsal-digits/cc3"]
        assert complete(f"{verb} sweeps/digits/b") == ["sweeps/digits/bb2"]
        assert complete(f"{verb} sweeps/digits/aa1 sweeps/dig") == both
        assert complete(f"{verb} else") == complete(f"{verb} nowhere/") == []
    assert set(complete("re")) == {*("resume", "report", "release", "rehearse")}


def test_an_error_of_tab_completion_is_one_sentence(environment: dict[str, str], tmp_path: Path) -> None:
    typed = {"COMP_LINE": "dpsweep plan ", "COMP_POINT": "13", "COMP_CWORD": "1"}
    done = Run(("-sc", "query=bash,"), tmp_path, environment | typed).wait()
    assert done.code == ExitCode.BAD_INPUT
    assert done.err.startswith("Expected query=bash, to go on"), done.err
    assert "Traceback" not in done.err


def test_tab_completion_knows_groups_and_keys(complete: Callable[[str], list[str]]) -> None:
    assert complete("rehearse dataset=dig") == ["dataset=digits"]
    assert complete("bu") == ["budget"]
    assert set(complete("sweep trainer=")) == {f"trainer={name}" for name in TRAINERS}
    assert "privacy.epsilon=" in complete("plan dataset=mnist privacy.eps")
    assert complete("budget ra") == ["raise"]
    assert set(complete("budget open policy=")) == {"policy=addition", "policy=renyi"}
    assert complete("budget close dataset=dig") == ["dataset=digits"]
    assert complete("release sweeps/digits/a --for re") == ["registry"]
    assert complete("release --for hf,") == ["hf,cyclonedx", "hf,registry", "hf,tre"]


def test_typos_are_one_sentence_and_exit_two(program: Program, tmp_path: Path) -> None:
    for line, sentence in (
        (["dataset=digit"], "Did you mean dataset=digits?"),
        (["model=foo", "trainer.lr=1,2"], "Expected model=foo to be one of cnn,"),
        (["trainer.foo=1"], "Expected trainer.foo=1 to be a key of the configuration"),
        (["dataset=digits", "trainer.lr=0.1,", "0.2"], "write values without spaces"),
        (["dataset=mnist", "data=/nowhere"], "Expected data=/nowhere to be an existing folder."),
        (["features=null"], "Expected features=null to be one of efficientnet_lite0, hf, minilm,"),
        (["dataset=cifar10", "features="], "Expected features= to be one of efficientnet_lite0, hf, minilm,"),
        (["trainer=3,dpsgd"], "Expected trainer=3,dpsgd to be one of adadp,"),
        (["hydra.sweeper.verb=dance"], "to be one of sweep, resume, plan"),
    ):
        done = program(*line)
        assert done.returncode == 2, done.stderr
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
        assert "nothing was charged" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_missing_data_say_where_to_put_them_and_cost_nothing(program: Program, ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = program("dataset=mnist", f"data={tmp_path / 'nowhere'}", "trainer=dpsgd", "accountant=rdp")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr
    assert ledger.account_names() == ()


def test_a_missing_vocabulary_is_said_and_costs_nothing(program: Program, ledger: Ledger, tmp_path: Path) -> None:
    for file in ("train.tsv", "dev.tsv"):
        (tmp_path / file).write_text("nobody reads this\n")
    line = ("dataset=sst2_tokens", "dataset.vocabulary.package=no_words", f"data={tmp_path}", "trainer=dpsgd")
    done = program(*line, "accountant=rdp", "accountant.witnesses=[]")
    assert done.returncode == 2
    assert done.stderr.startswith("dataset.vocabulary: Expected package=no-words to be installed: pip install")
    assert ledger.account_names() == ()


@pytest.fixture
def charged(ledger: Ledger) -> Ledger:
    ledger.open_account("digits", Guarantee(epsilon=24.0, delta=1e-4))
    cost = Guarantee(epsilon=2.5, delta=1e-5)
    charge_cost(ledger, "digits", plan="p", trials=["a", "b"], cost=cost, record={"reason": "plan"})
    return ledger


def test_budget_shows_what_is_reserved_and_left(program: Program, charged: Ledger) -> None:
    table = program("budget", module="dpsweep.sweeper.commands.cli").stdout
    assert "2.500" in table
    assert "21.500" in table
    (account,) = json.loads(program("budget", "dataset=digits", "--json", module="dpsweep.sweeper.commands.cli").stdout)
    assert account["left"] == {"epsilon": 21.5, "delta": 9e-5}
    assert account["charges"][0]["runs"] == 2


def test_a_budget_is_raised_on_the_record_only(program: Program, charged: Ledger) -> None:
    done = program("dataset=digits", "trainer=dpnsgd", "trainer.lr=1,2", "budget.epsilon=30", "accountant=rdp")
    assert done.returncode == 2
    assert "dpsweep budget raise dataset=digits budget.epsilon=30" in done.stderr
    raised = program("budget", "raise", "dataset=digits", "budget.epsilon=30", module="dpsweep.sweeper.commands.cli")
    assert raised.returncode == 0, raised.stderr
    assert charged.statement("digits").budget.epsilon == 30
    lowered = program("budget", "raise", "dataset=digits", "budget.epsilon=3", module="dpsweep.sweeper.commands.cli")
    assert lowered.returncode == 2
    assert charged.statement("digits").budget.epsilon == 30


@TRAINS
def test_a_command_that_names_an_earlier_budget_runs_and_says_so(program: Program, ledger: Ledger) -> None:
    old = ("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=1", "trainer.lr=2", "steps=3", "budget.epsilon=24")
    quick = ("privacy.noise_multiplier=30", "accountant=rdp", "accountant.witnesses=[]")
    ledger.open_account("digits", Guarantee(epsilon=24.0, delta=1e-4))
    raise_budget(ledger, "digits", Guarantee(epsilon=30.0, delta=1e-4))
    done = program(*old, *quick)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "The budget of digits was raised to epsilon 30, delta 0.0001 since; this command names epsilon 24, delta "
        "0.0001. The account's budget counts."
    ]
    assert len(ledger.statement("digits").charges) == 1


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("+hydra.launcher.x=1", "unexpected keyword argument 'x'"),
        ("+hydra.sweeper.x=1", "Expected hydra.sweeper.x to be left out: there is no such setting."),
    ],
)
def test_settings_that_the_launcher_or_the_sweeper_refuses_are_refused_before_the_charge(
    program: Program, ledger: Ledger, word: str, sentence: str
) -> None:
    done = program("dataset=digits", "trainer=dpnsgd", "accountant=rdp", "accountant.witnesses=[]", word)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "nothing was charged" in done.stderr
    assert ledger.account_names() == ()


def test_a_plan_that_was_never_charged_is_not_verified(program: Program, ledger: Ledger, tmp_path: Path) -> None:
    planned = program("plan", "dataset=digits", "accountant=rdp", module="dpsweep.sweeper.commands.cli")
    assert planned.returncode == 0, planned.stderr
    (path,) = tmp_path.rglob("plan.json")
    verbs = ("verify",), ("budget", "verify")
    for account in ("another", "digits"):  # the plan's own account may not be open yet
        ledger.open_account(account, Guarantee(epsilon=24.0, delta=1e-4))
        for verb in verbs:
            done = program(*verb, str(path.parent), module="dpsweep.sweeper.commands.cli")
            assert done.returncode == 0, done.stderr
            assert "was only planned: the ledger has no charge of it, and the folder no runs" in done.stdout
    for made in ("trials", "release"):
        (path.parent / made).mkdir()
        for verb in verbs:
            done = program(*verb, str(path.parent), module="dpsweep.sweeper.commands.cli")
            assert done.returncode == 2
            assert done.stderr.splitlines() == [
                f"Expected plan {path.parent.name} in {path.parent} to be charged on digits in {ledger.name}, got a "
                "folder with runs or a release: they were charged in another ledger (DPSWEEP_LEDGER).",
                "(exit code 2: bad input, nothing was charged)",
            ]
        (path.parent / made).rmdir()


def test_there_is_nothing_to_verify_without_a_ledger(program: Program, ledger: Ledger) -> None:
    done = program("verify", module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"Expected {ledger.name} to be a ledger; the first sweep or `dpsweep budget open` makes one.",
        "(exit code 2: bad input, nothing was charged)",
    ]


def test_verify_finds_a_damaged_ledger(program: Program, charged: Ledger) -> None:
    for verb in (("verify",), ("budget", "verify")):
        assert "2 entries, the chain is whole" in program(*verb, module="dpsweep.sweeper.commands.cli").stdout
    import sqlite3

    connection = sqlite3.connect(charged.path)
    connection.execute("DROP TRIGGER entries_refuse_update")
    connection.execute("UPDATE entries SET body = replace(body, '2.5', '0.5') WHERE seq = 2")
    connection.commit()
    connection.close()
    done = program("verify", module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 5
    assert "Entry 2" in done.stderr


def test_an_unknown_folder_is_one_sentence(program: Program) -> None:
    for verb in ("report", "release", "verify"):
        done = program(verb, "nowhere", module="dpsweep.sweeper.commands.cli")
        assert done.returncode == 2
        assert "nowhere" in done.stderr
        assert "Traceback" not in done.stderr


def test_an_unknown_form_of_a_release_is_one_sentence_and_nothing_is_written(program: Program, tmp_path: Path) -> None:
    """Before the ledger is opened and before the folder is looked at."""
    done = program("release", "nowhere", "--for", "registry,sbom", module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "Expected --for sbom to be one of cyclonedx, hf, registry, tre."
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_the_help_of_release_names_every_form(program: Program) -> None:
    told = program("release", "--help", module="dpsweep.sweeper.commands.cli").stdout
    assert f"FORM is one of {', '.join(NAMES)}." in told


@pytest.mark.long
def test_plan_says_which_files_are_not_there_yet_and_prices_all_the_same(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    light = ("trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "accountant=rdp", "accountant.witnesses=[]")
    (tmp_path / "mine").mkdir()
    cases = {
        ("dataset=cifar10",): f"cifar10 is not in {tmp_path}/cache/dpsweep/cifar10, and no data=<folder> (or "
        "DPSWEEP_DATA) is given: a sweep downloads cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/.",
        ("dataset=mnist", f"data={tmp_path / 'mine'}"): f"mnist is not in {tmp_path / 'mine'} or ",
        ("dataset=enron_mail", f"data={tmp_path / 'mine'}"): f"enron_mail is not all in {tmp_path / 'mine'}: put",
    }
    for words, sentence in cases.items():
        done = program("plan", *words, *light, module="dpsweep.sweeper.commands.cli")
        assert done.returncode == 0, done.stderr
        assert "the whole search" in done.stdout
        assert sentence in done.stdout
    assert not (tmp_path / "cache").exists()
    here = program("plan", "dataset=digits", *light, module="dpsweep.sweeper.commands.cli")
    assert " is not " not in here.stdout.replace("not the price", "")


@TRAINS
def test_again_says_what_it_charges_before_it_charges(program: Program, ledger: Ledger) -> None:
    words = ("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=1", "trainer.lr=2,4", "steps=3")
    light = ("accountant=rdp", "accountant.witnesses=[]", "privacy.epsilon=8", "budget.epsilon=20")
    first = program(*words, *light)
    assert "repeated" not in first.stdout
    again = program(*words, *light, "--again")
    assert again.returncode == 0, again.stderr
    told = "2 runs are repeated: this charges epsilon 8.000 more, and leaves epsilon 4.000 and delta 8e-5 on digits."
    assert told in again.stdout
    assert again.stdout.index(told) < again.stdout.index("finished, score")
    assert 4.0 <= remaining_amounts(ledger.statement("digits"))[0] < 4.1
    refused = program(*words, *light, "--again")
    assert refused.returncode == 3
    assert "repeated" not in refused.stdout
