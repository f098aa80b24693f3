"""`dpsweep VERB ...`: a thin shell over the library, with Hydra overrides after the verb.

A verb imports what it needs once it is chosen, so that help and the completion of verbs are instant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.accounting.printing import has_only_visible_characters, print_error, print_help, print_line
from dpsweep.sweeper.commands.one_sentence import MEANINGS, one_sentence
from dpsweep.sweeper.processes import seldom_garbage_collection


def main() -> None:
    """The console script."""
    if sys.argv[1:2] == ["-sc"]:
        with one_sentence():
            _print_tab_completions(sys.argv[1:])
        return
    name, *rest = sys.argv[1:] or [HELP]
    with one_sentence(), seldom_garbage_collection():
        if name in ASKING:
            print_help(_verbs_and_exit_codes_text())
            return
        if name == "--version":
            from importlib.metadata import version

            print_line(f"dpsweep {version('dpsweep')}")
            return
        verb = VERBS.get(name)
        if verb is None:
            raise BadInput(
                f"Expected {name} to be a verb of dpsweep: {', '.join(VERBS)}.{_did_you_mean_question(name)}"
            )
        if verb.usage and rest and rest[0] in ASKING:
            hint = f"\n\n{verb.hint()}" if verb.hint() else ""
            print_help(f"usage: dpsweep {name} {verb.usage}\n\n{verb.line}\n\nas in\n  {verb.example}{hint}")
            return
        verb.run(rest)


def _verbs_and_exit_codes_text() -> str:
    """The verbs, a line each, and the exit codes."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:{width}} {verb.line}" for name, verb in VERBS.items())
    codes = "\n".join(f"  {code.value:3} {meaning}" for code, meaning in MEANINGS.items())
    return (
        "usage: dpsweep VERB ...\n       dpsweep --version\n\n"
        "Hyperparameter sweeps over private training, priced as a whole.\n\n"
        f"verbs (dpsweep VERB --help has an example):\n{verbs}\n\nexit codes:\n{codes}\n"
    )


def _did_you_mean_question(name: str) -> str:
    found = get_close_matches(name, VERBS, n=1)
    return f" Did you mean {found[0]}?" if found else ""


def _print_tab_completions(arguments: list[str]) -> None:
    """Tab completion (`eval "$(dpsweep -sc install=bash)"`): verbs first, then folders, or Hydra's completions."""
    program, _, line = os.environ.get("COMP_LINE", "").partition(" ")
    name, space, overrides = line.lstrip().partition(" ")
    if "install" not in " ".join(arguments) and not space:
        _print_printable_completions(known for known in VERBS if known.startswith(name))
        return
    if name in OF_FOLDERS:
        words = overrides.split(" ")
        _print_printable_completions(
            (_release_format_completions(words) if name == "release" else ()) or _sweep_folder_completions(words[-1])
        )
        return
    if name == "budget":
        from dpsweep.sweeper.commands import budget

        within, space, after = overrides.lstrip().partition(" ")
        if not space and "=" not in within:
            _print_printable_completions(known for known in budget.VERBS if known.startswith(within))
        overrides = after if within in budget.VERBS else overrides
    os.environ["COMP_LINE"] = f"{program} {overrides}"
    sweep(arguments)


def _print_printable_completions(words: Iterable[str]) -> None:
    """A word that a terminal would not show as it is, is not offered: escaped, it would name nothing."""
    print_line(" ".join(filter(has_only_visible_characters, words)))


def _known_release_formats_sentence() -> str:
    """The forms of a release that installed distributions have registered."""
    from dpsweep.accounting.stored_names.tags import FORMATS, registered_part_names

    return f"FORM is one of {', '.join(registered_part_names(FORMATS))}."


def _release_format_completions(words: Sequence[str]) -> tuple[str, ...]:
    """The forms of a release, or the option that asks for them, where the last word may be one."""
    from dpsweep.reports.disclosure.formats import format_option_completions

    return format_option_completions(words)


def _sweep_folder_completions(beginning: str) -> list[str]:
    """The sweep folders whose path begins so, and the folders on the way to others."""
    above = Path(beginning if beginning.endswith("/") else os.path.dirname(beginning))  # noqa: PTH120 - may be empty
    inside = sorted(path for path in above.glob("*") if path.is_dir() and str(path).startswith(beginning))
    finished = sorted(
        str(plan.parent) for path in inside for plan in (*path.glob("plan.json"), *path.glob("*/plan.json"))
    )
    return finished or [f"{path}/" for path in inside if any(path.glob("*/*/plan.json"))]


def explain_config_keys(arguments: list[str]) -> None:
    """`dpsweep help [KEY|GROUP|GROUP=CHOICE]`."""
    from dpsweep.sweeper.planning.key_explanation import explanation_text, groups_and_keys_text

    if len(arguments) > 1:
        raise BadInput("Expected one key, group or choice after `dpsweep help`, as in dpsweep help trainer.lr.")
    print_help(explanation_text(arguments[0]) if arguments else groups_and_keys_text())


def sweep(arguments: list[str], verb: str = "") -> None:
    """`dpsweep sweep OVERRIDES`, or another verb on the plan that they ask for."""
    from dpsweep.sweeper.commands.hydra_app import main as hydra_main

    hydra_main([*arguments, f"hydra.sweeper.verb={verb}"] if verb else arguments)


def plan(arguments: list[str]) -> None:
    """`dpsweep plan OVERRIDES [--for tre]`."""
    from dpsweep.reports.disclosure.formats import split_arguments_from_format_options

    words, names = split_arguments_from_format_options(arguments)
    for name in names:
        if name not in PLAN_VERBS_BY_FORM:
            raise BadInput(f"Expected --for {name} to be {', '.join(PLAN_VERBS_BY_FORM)}: a plan has no other form.")
    sweep(words, PLAN_VERBS_BY_FORM[names[0]] if names else "plan")


PLAN_VERBS_BY_FORM = {"tre": "plan_for_tre"}
"""The verb for each form of a plan: the data management plan of a trusted research environment."""


def resume(arguments: list[str]) -> None:
    """`dpsweep resume FOLDER [OVERRIDES]`; the overrides say where and how jobs run."""
    folder, *words = arguments or [""]
    _parse_sweep_folder_arguments([folder] if folder else [])
    for word in words:
        if not word.startswith(ABOUT_JOBS):
            raise BadInput(
                f"Expected {word} to say where jobs run ({', '.join(ABOUT_JOBS)}): what runs is in {folder}/plan.json."
            )
    place = str(Path(folder).absolute()).replace("\\", "\\\\").replace("'", "\\'")
    sweep([*words, f"hydra.sweep.dir='{place}'"], "resume")


def budget(arguments: list[str]) -> None:
    """`dpsweep budget VERB ...`."""
    from dpsweep.sweeper.commands.budget import budget

    budget(arguments)


def verify(arguments: list[str]) -> None:
    """`dpsweep verify FOLDER...`."""
    from dpsweep.sweeper.commands.budget import verify

    verify(arguments)


def check(arguments: list[str]) -> None:
    """`dpsweep check PACKAGE`."""
    from dpsweep.reports.disclosure.package_check import check_package

    check_package(arguments)


def report(arguments: list[str]) -> None:
    """`dpsweep report FOLDER...`."""
    from dpsweep.reports.pages.page_memory import print_page_path_and_failures, report_sweeps

    for page in report_sweeps(_parse_sweep_folder_arguments(arguments)):
        print_page_path_and_failures(page)


def release(arguments: list[str]) -> None:
    """`dpsweep release FOLDER... [--for FORM]`."""
    from dpsweep.reports.disclosure.formats import formats_with_names, split_arguments_from_format_options

    words, names = split_arguments_from_format_options(arguments)
    formats, folders = formats_with_names(names), _parse_sweep_folder_arguments(words)
    from dpsweep.reports.pages.comparison import release_sweeps
    from dpsweep.reports.pages.page_memory import print_page_path_and_failures

    for page in release_sweeps(folders, formats):
        print_page_path_and_failures(page)


def watch(arguments: list[str]) -> None:
    """`dpsweep watch [FOLDER]`."""
    from dpsweep.sweeper.commands.watch import watch

    if (code := watch(arguments)) is not ExitCode.DONE:
        sys.exit(code)


def declare(arguments: list[str]) -> None:
    """`dpsweep declare FILE [KEY=VALUE ...] [--public]`."""
    from dpsweep.sweeper.commands.declare import write_declaration

    write_declaration(arguments)


def export(arguments: list[str]) -> None:
    """`dpsweep export FOLDER...`; the release keeps the documents that it has."""
    from dpsweep.accounting.rehearsal import ledger_of_sweep_folder
    from dpsweep.reports.disclosure.formats import formats_written_in_release
    from dpsweep.reports.pages.model_export import write_release_and_export
    from dpsweep.reports.pages.page_memory import FILE, failed_picture_sentences

    for folder in _parse_sweep_folder_arguments(arguments):
        card = write_release_and_export(
            folder, ledger_of_sweep_folder(folder), formats_written_in_release(folder / "release")
        )
        for sentence in failed_picture_sentences(folder / "release" / FILE):
            print_error(sentence)
        print_line(card)


ABOUT_JOBS = (
    *("compute.", "data=", "hydra/launcher=", "hydra.launcher.", "page=", "--again", "privacy.accept_delta="),
    "trusted=",
    *("hydra.sweeper.study=", "hydra.sweeper.retry=", "hydra.sweeper.resume=", "hydra.sweeper.max_batch_size="),
)
"""How a word may begin that `dpsweep resume` takes beside its folder."""

HELP = "--help"
ASKING = (HELP, "-h")

KEYS_HINT = (
    "`dpsweep help` lists all keys, and `dpsweep help KEY` explains one; `dpsweep help hydra` is about Hydra's. "
    "Commas between values make an axis. `--config FILE.yaml` reads keys and values from a file."
)

OF_FOLDERS = ("resume", "watch", "verify", "report", "release", "export")
"""The verbs whose arguments are sweep folders."""


@dataclass(frozen=True, kw_only=True)
class Subcommand:
    """A verb: its function, what stands after it, its line of help, an example, and what else its help says.

    A verb without `usage` explains its own `--help`.
    """

    run: Callable[[list[str]], None]
    line: str
    usage: str = ""
    example: str = ""
    hint: Callable[[], str] = str


VERBS: Mapping[str, Subcommand] = {
    "sweep": Subcommand(
        run=sweep,
        line="price, charge, train and report a grid; takes Hydra overrides; --again accepts another charge",
        usage="[KEY=VALUE[,VALUE...] ...] [--again] [--anyway]",
        example="dpsweep sweep dataset=digits trainer=dpsgd trainer.lr=1,2 privacy.epsilon=4",
        hint=lambda: KEYS_HINT,
    ),
    "rehearse": Subcommand(
        run=partial(sweep, verb="rehearse"),
        line="run the same sweep on generated records and a scratch budget: nothing real is read or spent",
        usage="[KEY=VALUE[,VALUE...] ...]",
        example="dpsweep rehearse dataset=digits trainer=dpsgd trainer.lr=1,2",
        hint=lambda: KEYS_HINT,
    ),
    "resume": Subcommand(
        run=resume,
        line="go on with a sweep folder by its own plan, also where defaults have changed since",
        usage="FOLDER [compute.KEY=VALUE ...] [--again]",
        example="dpsweep resume sweeps/digits/PLAN",
    ),
    "watch": Subcommand(
        run=watch,
        line="show how far a running sweep is, in any terminal: the newest unfinished one, or that in a folder",
        usage="[FOLDER]",
        example="dpsweep watch",
    ),
    "declare": Subcommand(
        run=declare,
        line="write conf/dataset/NAME.yaml for a table of yours from its header; reads no record",
        usage="FILE [name=NAME] [label=COLUMN] [delimiter=...] [decimal=comma] [encoding=...] [--public]",
        example="dpsweep declare visits.csv label=ill",
        hint=lambda: "--public declares the records public, and takes ranges and values from them.",
    ),
    "plan": Subcommand(
        run=plan,
        line="print what a sweep would cost and how long it would take; --rules compares ways to choose the winner",
        usage="[KEY=VALUE[,VALUE...] ...] [--rules] [--for tre]",
        example="dpsweep plan dataset=adult privacy.epsilon=1",
        hint=lambda: f"{KEYS_HINT} --for tre prints a data management plan for a trusted research environment.",
    ),
    "advise": Subcommand(
        run=partial(sweep, verb="advise"),
        line="what privacy.epsilon would buy under each way of searching, as measured; changes nothing",
        usage="[KEY=VALUE ...]",
        example="dpsweep advise dataset=mnist privacy.epsilon=3",
        hint=lambda: KEYS_HINT,
    ),
    "audit": Subcommand(
        run=partial(sweep, verb="audit"),
        line="attack what a sweep would run, on generated records: a lower bound beside the price; charges nothing",
        usage="[KEY=VALUE[,VALUE...] ...] [audit.KEY=VALUE ...]",
        example="dpsweep audit trainer=dpsgd trainer.lr=1 trainer.clip_norm=1 privacy.epsilon=1",
        hint=lambda: f"{KEYS_HINT} `dpsweep help audit` lists those of the audit.",
    ),
    "budget": Subcommand(
        run=budget, line="show accounts [dataset=NAME] [--json]; open, raise, close or charge them: budget --help"
    ),
    "verify": Subcommand(
        run=verify,
        line="check the ledger's chain, and sweep folders against it",
        usage="[FOLDER ...]",
        example="dpsweep verify sweeps/digits/PLAN",
    ),
    "check": Subcommand(
        run=check,
        line="recompute what a release from somebody else claims, by this installation's own program",
        usage="PACKAGE",
        example="dpsweep check Downloads/release",
    ),
    "report": Subcommand(
        run=report,
        line="render a sweep's page again, and for several sweeps one page with all of them side by side",
        usage="FOLDER ...",
        example="dpsweep report sweeps/digits/PLAN",
    ),
    "release": Subcommand(
        run=release,
        line="write a sweep's release/, only what the rule lets out, and several as one package; --for FORM: documents",
        usage="FOLDER ... [--for FORM[,FORM...]]",
        hint=_known_release_formats_sentence,
        example="dpsweep release sweeps/digits/PLAN --for registry,hf",
    ),
    "export": Subcommand(
        run=export,
        line="write a sweep folder's export/: the winner's weights, configuration and model card",
        usage="FOLDER ...",
        example="dpsweep export sweeps/digits/PLAN",
    ),
    "help": Subcommand(
        run=explain_config_keys,
        line="list all keys, or explain a key, a group or a choice",
        usage="[KEY | GROUP | GROUP=CHOICE]",
        example="dpsweep help trainer.clip_norm",
    ),
}
"""All verbs in the order of the help."""


def _parse_sweep_folder_arguments(arguments: Sequence[str]) -> list[Path]:
    """The sweep folders; of several, those that `dpsweep plan` alone has written to are left out, and named.

    A pattern such as `sweeps/mnist/*` matches them too.
    """
    from dpsweep.accounting.records.sweep_folder import SweepFolder, require_sweep_folder

    if not arguments:
        raise BadInput("Expected a sweep folder, as the last line of a sweep names it (sweeps/DATASET/PLAN).")
    folders = [require_sweep_folder(Path(folder)) for folder in arguments]
    swept = [folder for folder in folders if SweepFolder(root=folder).trials_folder.exists()]
    if not swept:
        return folders
    for folder in folders:
        if folder not in swept:
            print_error(f"{folder} is left out: its plan was never run.")
    return swept


if __name__ == "__main__":
    main()
