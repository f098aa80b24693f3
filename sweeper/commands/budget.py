"""`dpsweep budget ...`: shows and changes accounts, verifies the ledger, and keeps its mirrors.

A verb that changes an account needs its data set, by the name that `dataset=` takes or by the account's name. A command
that cannot be parsed completely changes nothing.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpsweep.accounting.errors import BadInput, LedgerDamaged, turn_read_errors_into_refusal
from dpsweep.accounting.ledger import upkeep
from dpsweep.accounting.ledger.book import Policy, Statement, policy_from_config
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.mirror import named_mirrors
from dpsweep.accounting.ledger.restoration import restore_ledger
from dpsweep.accounting.ledger.upkeep import drop_mirror, name_mirror, verify_entries
from dpsweep.accounting.printing import print_error, print_help, print_line, print_lines
from dpsweep.accounting.records.sweep_folder import require_sweep_folder
from dpsweep.accounting.rehearsal import is_rehearsal_folder, ledger_of_sweep_folder
from dpsweep.accounting.searches.folder_audit import (
    chain_ends_in_receipts,
    verify_no_attempt_ran_twice,
    verify_sweep_folder_and_describe,
)
from dpsweep.accounting.stored_names.stored_classes import stored_form_of_config_part
from dpsweep.sweeper.planning.plan_settings import require_below_upper_limit, require_valid_epsilon_or_delta

if TYPE_CHECKING:
    from omegaconf import DictConfig

Made = TypeVar("Made")

JSON = "--json"
NAMES = ("dataset", "dataset.name")
SEARCH_PATH = "hydra.searchpath"
"""Hydra's key for further folders of configuration files."""

ACCOUNT = (*NAMES, SEARCH_PATH)
AMOUNTS = ("budget.epsilon", "budget.delta")


def budget(arguments: Sequence[str]) -> None:
    """Runs `dpsweep budget VERB ...`; `show` without a verb. `--config-dir X` may hold the data set's file."""
    if {"-h", "--help"} & set(arguments):
        print_help("\n".join(str(inspect.getdoc(verb)) for verb in VERBS.values()))
        return
    arguments = _arguments_with_config_dir_moved_last(arguments)
    first = arguments[0] if arguments else ""
    verb = "show" if not first or "=" in first or first.startswith("-") else first
    if verb not in VERBS:
        raise BadInput(f"Expected `dpsweep budget {verb}` to be one of {', '.join(VERBS)}.")
    VERBS[verb](arguments[1:] if first == verb else arguments)


def show_account(arguments: Sequence[str]) -> None:
    """`dpsweep budget [show] [dataset=NAME] [--json]` shows what is reserved and left, and what still fits."""
    ledger, words = Ledger(upkeep.user_ledger_place()), [word for word in arguments if word != JSON]
    names = (
        [_account_name_from_key_values(_parse_key_values_with_dataset_name(words, ACCOUNT), ledger)]
        if words
        else ledger.account_names()
    )
    _print_statements([ledger.statement(name) for name in names], arguments)
    if JSON not in arguments:
        with ledger.chain.read_transaction() as lines:
            for one in () if lines is None else named_mirrors(lines)[0]:
                print_line(f"{ledger.name} has a mirror in {one.path}: without it nothing is charged or launched.")
    if not names and JSON not in arguments:
        print_line(
            f"No account is open in {ledger.name}; the first sweep on a data set or `dpsweep budget open` opens one."
        )


def open_account(arguments: Sequence[str]) -> None:
    """`dpsweep budget open dataset=NAME budget.epsilon=E budget.delta=D [policy=renyi policy.order=...]` opens one."""
    from dpsweep.sweeper.coordinator.request import budget_settings
    from dpsweep.sweeper.planning.plan_builder import budget_from_settings

    words = [word for word in arguments if word != JSON]
    _require_account_name(words)
    config = _config_from_overrides(
        ["+policy=addition", "privacy.delta=0", *words]
    )  # each sweep has its own privacy.delta
    ledger = Ledger(upkeep.user_ledger_place())
    claim = _call_or_raise_bad_input(budget_from_settings, budget_settings(config))
    _print_statements([ledger.open_account(str(config.dataset.name), claim, _policy_from_config(config))], arguments)


def raise_budget(arguments: Sequence[str]) -> None:
    """`dpsweep budget raise dataset=NAME [budget.epsilon=E] [budget.delta=D]` raises a budget."""
    values = _parse_key_values_with_dataset_name([word for word in arguments if word != JSON], (*ACCOUNT, *AMOUNTS))
    ledger = Ledger(upkeep.user_ledger_place())
    account = _account_name_from_key_values(values, ledger)
    limits = {
        key.partition(".")[2]: require_valid_epsilon_or_delta(key, _parse_number(key, values[key]))
        for key in AMOUNTS
        if key in values
    }
    higher = _call_or_raise_bad_input(replace, ledger.statement(account).budget, **limits)
    _print_statements([upkeep.raise_budget(ledger, account, higher)], arguments)


def close_account(arguments: Sequence[str]) -> None:
    """`dpsweep budget close dataset=NAME` closes an account for ever: later charges are refused."""
    ledger = Ledger(upkeep.user_ledger_place())
    account = _account_name_from_key_values(
        _parse_key_values_with_dataset_name([word for word in arguments if word != JSON], ACCOUNT), ledger
    )
    _print_statements([upkeep.close_account(ledger, account)], arguments)


def charge(arguments: Sequence[str]) -> None:
    """`dpsweep budget charge dataset=NAME --epsilon E --delta D --note TEXT` records a cost outside dpsweep."""
    flags, words = _outside_charge_flags_and_other_words([word for word in arguments if word != JSON])
    require_below_upper_limit("budget.epsilon", flags["epsilon"], "--epsilon")
    ledger = Ledger(upkeep.user_ledger_place())
    account = _account_name_from_key_values(_parse_key_values_with_dataset_name(words, ACCOUNT), ledger)
    cost = _call_or_raise_bad_input(
        replace, ledger.statement(account).budget, epsilon=flags["epsilon"], delta=flags["delta"]
    )
    statement = _call_or_raise_bad_input(upkeep.charge_outside, ledger, account, cost, flags["note"].strip())
    _print_statements([statement], arguments)
    limits = statement.balance.policy.amount_limits(statement.budget)
    if over := [name for name, reserved in statement.balance.reserved.items() if reserved > limits[name]]:
        print_error(
            f"More {' and '.join(over)} is reserved on {account} now than its budget allows; it is recorded all the "
            "same, since it happened."
        )


def verify(arguments: Sequence[str]) -> None:
    """`dpsweep budget verify [FOLDER...]` checks the ledger's chain, and sweep folders against it."""
    from dpsweep.accounting.ledger.charges import require_paid_charges  # scipy: .2 s that no other verb needs

    folders = list(map(Path, arguments))
    if rehearsals := [folder for folder in folders if is_rehearsal_folder(folder)]:
        for folder in rehearsals:
            print_line(
                "A REHEARSAL on generated records: "
                f"{verify_sweep_folder_and_describe(folder, ledger_of_sweep_folder(folder))}"
            )
        folders = [folder for folder in folders if folder not in rehearsals]
        if not folders:
            return
    ledger = Ledger(upkeep.user_ledger_place())
    ends = [end for folder in folders for end in chain_ends_in_receipts(folder)]
    entries = verify_entries(ledger.chain, ends)
    for folder in folders:
        require_sweep_folder(folder)
    if not entries:
        raise BadInput(f"Expected {ledger.name} to be a ledger; the first sweep or `dpsweep budget open` makes one.")
    print_line(f"{ledger.name}: {entries} entries, the chain is whole.")
    priced = sum(require_paid_charges(ledger.statement(account)) for account in ledger.account_names())
    print_line(f"{priced} charge{'s' if priced != 1 else ''} priced again: none takes less than it costs.")
    for folder in folders:
        print_line(verify_sweep_folder_and_describe(folder, ledger))
    verify_no_attempt_ran_twice(folders)


def mirror(arguments: Sequence[str]) -> None:
    """`dpsweep budget mirror [FILE [--drop]]` keeps a second copy of the ledger in FILE, or begins yours again."""
    drop, files = "--drop" in arguments, [word for word in arguments if word != "--drop"]
    if len(files) > 1 or any(word.startswith("-") for word in files) or (drop and not files):
        raise BadInput(f"Expected `dpsweep budget mirror {' '.join(arguments)}` to be one file, perhaps with --drop.")
    ledger, path = Ledger(upkeep.user_ledger_place()), Path(files[0]) if files else None
    if path is not None and drop:
        drop_mirror(ledger.chain, path)
        print_line(f"{ledger.name} has no mirror in {path} from now on.")
        return
    name_mirror(ledger.chain, path)
    print_line(f"{ledger.name} has a mirror in {path or 'your state folder'}: whoever writes keeps it from now on.")


def restore(arguments: Sequence[str]) -> None:
    """`dpsweep budget restore` charges what only a mirror has, where a copy of the ledger went on by itself."""
    if arguments:
        raise BadInput(f"Expected `dpsweep budget restore` alone, got {arguments[0]}.")
    ledger = Ledger(upkeep.user_ledger_place())
    if sentences := restore_ledger(ledger.chain):
        print_lines("\n".join(sentences))
    else:
        print_line(f"Nothing to restore: the ledger {ledger.name} has all lines of its mirrors.")


VERBS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "show": show_account,
    "open": open_account,
    "raise": raise_budget,
    "close": close_account,
    "charge": charge,
    "verify": verify,
    "mirror": mirror,
    "restore": restore,
}


def _print_statements(statements: Iterable[Statement], arguments: Sequence[str]) -> None:
    from dpsweep.sweeper.commands import account_statement as passbook

    if JSON in arguments:
        with turn_read_errors_into_refusal("the ledger", LedgerDamaged):
            print_lines(json.dumps([passbook.to_json(statement) for statement in statements], indent=1))
        return
    with turn_read_errors_into_refusal("the ledger", LedgerDamaged):
        for statement in statements:
            passbook.print_account(statement)


def _outside_charge_flags_and_other_words(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The flags of an outside charge, and the remaining arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--epsilon", type=_parse_epsilon_or_delta_amount)
    parser.add_argument("--delta", type=_parse_epsilon_or_delta_amount)
    parser.add_argument("--note")
    try:
        flags, rest = parser.parse_known_args(words)
    except argparse.ArgumentError as cause:
        raise BadInput(f"Expected --epsilon and --delta to be numbers: {cause}.") from cause
    if flags.epsilon is None or flags.delta is None or not (flags.note or "").strip():
        raise BadInput("Expected --epsilon, --delta and --note: what was spent on these data elsewhere, and for what.")
    return vars(flags), rest


def _parse_epsilon_or_delta_amount(text: str) -> float:
    """An amount on the command line; one that a float holds only as 0, or with few digits, is refused."""
    number = float(text)
    smallest = sys.float_info.min
    if number < smallest and Decimal(text.replace("_", "")) != 0 and not number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than {smallest}, the smallest amount; give 0 or more")
    return number


def _parse_key_values_with_dataset_name(words: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """The values of `key=value` arguments, which must include the data set's name; other arguments are refused."""
    values = dict(word.partition("=")[::2] for word in words)
    for key in values:
        if key not in keys:
            raise BadInput(f"Expected {key} to be one of {', '.join(key for key in keys if key != SEARCH_PATH)}.")
    _require_account_name(words)
    return values


def _arguments_with_config_dir_moved_last(words: Sequence[str]) -> list[str]:
    """The arguments with `--config-dir X` as the last one in Hydra's form, which every verb may receive."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config-dir", "-cd", type=Path)
    try:
        options, rest = parser.parse_known_args(words)
    except argparse.ArgumentError as cause:
        raise BadInput(f"Expected --config-dir to be a folder: {cause}.") from cause
    if options.config_dir is None:
        return rest
    if not options.config_dir.is_dir():
        raise BadInput(f"Expected --config-dir={options.config_dir} to be a folder.")
    return [*rest, f"{SEARCH_PATH}=[file://{options.config_dir.absolute()}]"]


def _require_account_name(words: Sequence[str]) -> None:
    """Raises `BadInput` unless the command names an account: the default data set must not be assumed."""
    if not any(word.partition("=")[0] in NAMES and word.partition("=")[2] for word in words):
        raise BadInput("Expected dataset=NAME: which account is meant.")


def _account_name_from_key_values(values: Mapping[str, str], ledger: Ledger) -> str:
    """The account with the given name, or the account of the given data set."""
    name = values.get("dataset.name") or values["dataset"]
    if name in ledger.account_names():
        return name
    return str(_config_from_overrides([f"{key}={values[key]}" for key in ACCOUNT if key in values]).dataset.name)


def _parse_number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"Expected {key}={text!r} to be a number.") from None


def _call_or_raise_bad_input(make: Callable[..., Made], *arguments: Any, **numbers: Any) -> Made:
    """The result of `make` on the user's values; turns its errors into `BadInput` with one sentence."""
    try:
        return make(*arguments, **numbers)
    except (ValueError, TypeError) as cause:
        raise BadInput(str(cause)) from cause


def _policy_from_config(config: DictConfig) -> Policy:
    from omegaconf import OmegaConf

    if missing := sorted(OmegaConf.missing_keys(config.policy)):
        raise BadInput(
            f"Expected policy.{', policy.'.join(missing)} to be given: they are fixed when an account is opened."
        )
    form: Any = OmegaConf.to_container(config.policy, resolve=True)
    return policy_from_config(stored_form_of_config_part(form, "policy"))


def _config_from_overrides(overrides: Sequence[str]) -> DictConfig:
    from dpsweep.sweeper.commands.hydra_app import CONF
    from dpsweep.sweeper.commands.hydra_internals import compose_config
    from dpsweep.sweeper.commands.readable_files import name_file_in_config_errors

    with name_file_in_config_errors():
        return compose_config(CONF, overrides)
