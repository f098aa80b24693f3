"""The Hydra application behind `dpsweep sweep` and `dpsweep plan`: words for Hydra, and refusals of its other ways.

Options stand first for Hydra, and dpsweep's own words become overrides. Hydra's other ways to run a job are each
refused in one sentence before any job runs: a job never trains without the receipt of a charge, however it was started
(`sweeper/job/block_job.py`). The job itself would also refuse, but its message would stand among Hydra's own output.
Hydra drops the exceptions of callbacks and prints more about those of tasks, except for `SystemExit`; so the sentence
is raised in a `SystemExit`.

`experiment=` and `scale=` choose an experiment of a paper in one of its sizes. `conf/experiment/NAME.yaml` is one at
its paper's size. Its key `scales` has the smaller ones by name: each is a configuration that includes the whole
experiment and overrides parts of it, or names an experiment whose changes are its own. All sizes are put into Hydra's
store, so that `experiment=SCALE/NAME` is an ordinary choice, and no composed configuration has the key `scales`. A
`${scale}` in the defaults list does not work: a configuration that is included by a reference cannot override groups,
and the data set is a group.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep
from hydra.errors import HydraException, OverrideParseException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.errors import BadInput, DpsweepError, NoReceipt
from dpsweep.accounting.printing import print_errors
from dpsweep.sweeper.commands.hydra_internals import run_hydra_application, store_config_of_group
from dpsweep.sweeper.commands.hydra_options import MODES, OUTSIDE, parse_options, refuse_hydra_keys
from dpsweep.sweeper.commands.keywords import words_with_settings_file
from dpsweep.sweeper.commands.readable_files import UNREADABLE, name_file_in_config_errors
from dpsweep.sweeper.coordinator.signals import AGAIN, PAY_AGAIN
from dpsweep.sweeper.planning.keys import (
    override_decoding_environment_number,
    with_axes_of_methods_that_have_them,
    with_group_of_short_word,
)
from dpsweep.sweeper.planning.unknown_keys import axis_in_brackets_sentence
from dpsweep.trainers.user_modules import set_folder_of_user_modules

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS, FIGURES = ROOT / "conf" / "experiment", ROOT / "reports" / "reproduction" / "figures"
FULL, REDUCED = "full", ("small", "smoke")
SCALES = "scales"
"""The key of an experiment's file under which its smaller sizes are."""


def merge_scale_into_experiment_argument(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line with `scale=` merged into `experiment=`; raises `BadInput` if they do not fit.

    >>> merge_scale_into_experiment_argument(["experiment=a_fig3", "scale=small", "steps=5"])
    ['experiment=small/a_fig3', 'steps=5']
    >>> merge_scale_into_experiment_argument(["experiment=a_fig3"])
    ['experiment=full/a_fig3']
    >>> merge_scale_into_experiment_argument(["experiment=my_own"])
    ['experiment=my_own']
    """
    for word in arguments:
        _refuse_experiment_that_trains_nothing(word)
    scales = [word.partition("=")[2] for word in arguments if word.startswith("scale=")]
    scale = scales[-1] if scales else FULL
    if scale not in (FULL, *REDUCED):
        raise BadInput(f"Expected scale={scale} to be one of {', '.join((FULL, *REDUCED))}.")
    if scales and not any(word.startswith("experiment=") for word in arguments):
        raise BadInput(f"Expected scale={scale} to come with an experiment, as in experiment=a_fig3.")
    return [_experiment_argument_with_scale_prefix(word, scale) for word in arguments if not word.startswith("scale=")]


def _refuse_experiment_that_trains_nothing(word: str) -> None:
    """Refuses the name of a figure that accountants compute without training: it is not a sweep."""
    key, _, name = word.partition("=")
    if key != "experiment" or (EXPERIMENTS / f"{name}.yaml").is_file():
        return
    row = re.compile(rf'^(?:FIGURES = {{|    )"{re.escape(name)}": ', re.MULTILINE)  # importing the rows takes a second
    if any(row.search(path.read_text()) for path in FIGURES.glob("*.py")):
        raise BadInput(
            f"Expected experiment={name} to be a sweep: this figure trains nothing. "
            f"python -m dpsweep.reports.reproduction {name} (make reproduce FIGURE={name}) computes it."
        )


def _experiment_argument_with_scale_prefix(word: str, scale: str) -> str:
    """`experiment=NAME` as `experiment=SCALE/NAME`, which is in the store then; any other word as it is."""
    key, _, choice = word.partition("=")
    typed, _, name = choice.rpartition("/")
    if key != "experiment":
        return word
    if _register_scales_if_experiment_has_them(name):
        return f"{key}={typed or scale}/{name}"
    return word if scale == FULL else f"{key}={scale}/{choice}"


def _register_scales_if_experiment_has_them(name: str) -> bool:
    """Puts all sizes of an experiment into Hydra's store; False if it has one size alone, or is the user's own."""
    form = _load_experiment_file(name)
    scales = form.pop(SCALES, None)
    if scales is None:
        return False
    for scale, own in {FULL: form, **scales}.items():
        changes = _load_experiment_file(own)[SCALES][scale] if isinstance(own, str) else own
        included = [] if scale == FULL else [f"/experiment/{FULL}/{name}", "_self_"]
        node = {**changes, "defaults": [*included, *changes.get("defaults", ())]}
        store_config_of_group(f"experiment/{scale}", name, node)
    return True


def _load_experiment_file(name: str) -> DictConfig:
    """What an experiment's file holds; nothing where Hydra is left to say that it cannot be read."""
    try:
        form = OmegaConf.load(EXPERIMENTS / f"{name}.yaml")
    except (OSError, *UNREADABLE):
        return OmegaConf.create()
    return form if isinstance(form, DictConfig) else OmegaConf.create()


SHORT_OPTIONS = {AGAIN: PAY_AGAIN, "--anyway": "plan.anyway=true", "--rules": "hydra.sweeper.rules=true"}
"""Overrides by the short options that stand for them."""

MULTIRUN = "--multirun"
"""Hydra's option for sweeps, which every command gets unless it asks for another mode."""

TRAINERS = ROOT / "conf" / "trainer"

_AXES = re.compile(r"grid\.axes(\.(?P<trainer>\w+))?=.*", re.DOTALL)
_DEVICES = re.compile(r"^(compute\.devices)=([^\[].*,.*)$")
_COLUMNS = re.compile(r"dataset\.(bounds|categories|dates|missing)=\{.*", re.DOTALL)
_MARKS = re.compile(r"""^(dataset\.(?:delimiter|decimal)=)(['"]?)([;,|\t])\2$""")
_WORDS_FOR_MARKS = {";": "semicolon", ",": "comma", "|": "pipe", "\t": "tab"}


def hydra_arguments_from_command_line(arguments: Sequence[str]) -> list[str]:
    """The overrides and options of a command line in Hydra's form; raises `BadInput` if they are inconsistent.

    `script=` is short for `trainer.script=`, and so are others (`SHORT_WORDS`).

    Axes may be given to any trainer, also to one without axes in the grid, since another trainer may run beside it.
    Columns may be declared that the data set's file does not name.

    >>> hydra_arguments_from_command_line(["compute.devices=0,1"])  # no axis
    ['compute.devices=[0,1]']
    >>> hydra_arguments_from_command_line(["--again", "grid.axes.dpsgd={steps: [3]}", "dataset.bounds={age: [0, 90]}"])
    ['hydra.sweeper.retry=again', '++grid.axes.dpsgd={steps: [3]}', '++dataset.bounds={age: [0, 90]}']
    """
    words = [
        SHORT_OPTIONS.get(word)
        or override_decoding_environment_number(with_group_of_short_word(_MARKS.sub(_word_for_mark, word)))
        for word in merge_scale_into_experiment_argument(arguments)
    ]
    listed = with_axes_of_methods_that_have_them([_DEVICES.sub(r"\1=[\2]", word) for word in last_words(words)])
    return [f"++{word}" if _is_override_of_grid_axes(word) or _COLUMNS.fullmatch(word) else word for word in listed]


def last_words(words: Sequence[str]) -> list[str]:
    """The words without those whose key a later word gives again, which are said; mappings are merged, as in Hydra.

    A key that an earlier word adds stays one that is added.

    >>> last_words(["trainer.lr=3", "+model.width=8,16", "steps=5", "model.width=8", "trainer.lr=1,2"])
    ['steps=5', '+model.width=8', 'trainer.lr=1,2']
    """
    kept: list[str] = []
    for word in words:
        typed = word.partition("=")[0]
        key = "" if word.startswith("-") else typed.lstrip("+~")
        earlier = [one for one in kept if key and one.partition("=")[0].lstrip("+~") == key]
        ignored = [one for one in earlier if not _is_merged(one, word)]
        kept = [one for one in kept if one not in ignored]
        added = typed == key and any(one.startswith("+") for one in ignored)
        kept.append(f"+{word}" if added else word)
        print_errors(
            *(f"{key} is given several times: {word} is used, and {one} is ignored." for one in ignored if one != word)
        )
    return kept


def _is_merged(earlier: str, later: str) -> bool:
    """Whether Hydra makes one value of two words: of two mappings, and of a value that is deleted again."""
    try:
        before, after = OverridesParser.create().parse_overrides([earlier, later])
    except OverrideParseException:
        return True  # Hydra says what it expects instead
    if earlier == later or before.is_sweep_override() or after.is_sweep_override():
        return False
    return after.is_delete() or (isinstance(before.value(), dict) and isinstance(after.value(), dict))


def _word_for_mark(typed: re.Match[str]) -> str:
    """A character that Hydra's grammar has no place for, by its word."""
    return f"{typed[1]}{_WORDS_FOR_MARKS[typed[3]]}"


def move_options_before_overrides(words: Sequence[str]) -> list[str]:
    """The arguments with all of Hydra's options (`--config-dir X`) before the overrides, and with `--multirun`.

    Hydra accepts options before or after the overrides, but not both, and none between them. Without `--multirun`,
    Hydra reports a wrong choice as an error about the lists.

    >>> move_options_before_overrides(["dataset=mine", "--config-dir", "my", "steps=3"])
    ['--config-dir', 'my', '--multirun', 'dataset=mine', 'steps=3']
    """
    namespace = parse_options(words)
    waiting = deque(namespace.overrides)
    options, overrides = [], []
    for word in words:
        if waiting and word == waiting[0]:
            overrides.append(waiting.popleft())
        else:
            options.append(word)
    if not any(getattr(namespace, mode) for mode in (*MODES, "help", "hydra_help")):
        options.append(MULTIRUN)
    return [*options, *overrides]


def _is_override_of_grid_axes(word: str) -> bool:
    """Whether an argument gives axes to a trainer of conf/, or to several."""
    parts = _AXES.fullmatch(word)
    return parts is not None and (parts["trainer"] is None or Path(TRAINERS / f"{parts['trainer']}.yaml").is_file())


SWEEPER = "hydra_plugins.honest_sweeper.HonestSweeper"

FILLED_IN = frozenset({"block", "part", "parts", "plan.id"})
"""The keys that the sweeper fills in for its jobs and for the plan's name; no sweep configuration has them."""


class OnlySweeps(Callback):
    """Refuses jobs outside a sweep, and sweeps with a sweeper other than dpsweep's."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Always refuses."""
        _exit_with_error(NoReceipt(OUTSIDE))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Refuses every sweeper except dpsweep's."""
        if config.hydra.sweeper.get("_target_") != SWEEPER:
            _exit_with_error(NoReceipt(OUTSIDE))


def refuse_job_outside_sweep(config: DictConfig) -> NoReturn:
    """The task of jobs that Hydra starts without dpsweep's sweeper, which uses its own task instead."""
    _exit_with_error(NoReceipt(OUTSIDE))


def refuse_reserved_keys_and_options(arguments: Sequence[str]) -> None:
    """Raises `BadInput` for keys that the sweeper fills in, and for keys of Hydra's that do not work here.

    An axis in brackets is refused as well, and a group's option that is no name (`features=null`, `model=3`).
    """
    for argument in arguments:
        word = argument.partition("=")[0]
        if not word.lstrip("~+"):
            raise BadInput(f"Expected {argument} to be KEY=VALUE, as in steps=100.")
        if word.lstrip("~+") in FILLED_IN:
            raise BadInput(f"Expected {argument} to be left out: the sweeper fills it in.")
        if (sentence := axis_in_brackets_sentence(argument)) is not None:
            raise BadInput(sentence)
        _refuse_null_or_number_as_group_option(argument, word)
    refuse_hydra_keys(arguments)


def _refuse_null_or_number_as_group_option(argument: str, group: str) -> None:
    """Hydra has no sentence for an option that its grammar reads as no string."""
    options = sorted(file.stem for file in (ROOT / "conf" / group.lstrip("+")).glob("*.yaml"))
    if not group or "=" not in argument or not options:
        return
    try:
        value = OverridesParser.create().parse_override(argument).value()
    except HydraException:
        return  # Hydra says what it expects instead
    named = value.list if isinstance(value, ChoiceSweep) else [value]
    if any(not option or isinstance(option, int | float) for option in named):
        raise BadInput(f"Expected {argument} to be one of {', '.join(options)}.")


def _exit_with_error(error: DpsweepError) -> NoReturn:
    raise SystemExit(error)


CONF = Path(__file__).resolve().parents[2] / "conf"


def main(arguments: Sequence[str]) -> None:
    """Runs Hydra on these overrides; call it within `one_sentence`."""
    arguments = words_with_settings_file(arguments)
    words = hydra_arguments_from_command_line(arguments)
    _refuse_spaces_in_value_lists(arguments)
    refuse_reserved_keys_and_options(arguments)
    words = move_options_before_overrides(words)
    sys.argv = [sys.argv[0], *words]
    set_folder_of_user_modules(Path.cwd())
    os.environ["PYTHONSAFEPATH"] = "1"  # child processes never look for modules in the current folder
    with name_file_in_config_errors():
        run_hydra_application(refuse_job_outside_sweep, CONF, multirun=MULTIRUN in words)


def _refuse_spaces_in_value_lists(arguments: Sequence[str]) -> None:
    for argument in arguments:
        if argument.endswith(",") and "=" in argument and not _MARKS.match(argument):
            raise BadInput(
                f"Expected {argument} to go on after its comma: write values without spaces, as in lr=0.1,0.2."
            )
