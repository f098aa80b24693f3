"""One sentence for a word on the command line that is no key, no choice of a group, or no word of Hydra's grammar.

It knows the words of other tools (Opacus, TensorFlow Privacy, JAX-Privacy, Hugging Face, Optuna, scikit-learn) for our
keys. All values that a configuration still lacks are one refusal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.printing import BadInputInLines, escape_invisible_characters
from dpsweep.sweeper.planning.keys import (
    SHORT_WORDS,
    choice_file_path,
    choices_by_group,
    default_choices,
    documented_keys,
    first_sentence,
    is_key_users_never_set,
)

_UNKNOWN_KEY = re.compile(r"Could not override '(?P<key>[^']+)'|is not in struct\s+full_key: (?P<full>[\w.]+)")
_UNKNOWN_CHOICE = re.compile(r"Could not find '(?P<group>(?:hydra/)?\w+)/(?P<choice>[^']+)'")
_QUOTED_NAME = re.compile(r"""[{,]\s*(?P<quote>["'])[^"']*(?P=quote)\s*:""")
_UNFIT = "Error merging override "
_UNSET = re.compile(r"Environment variable '(?P<name>[^']+)' not found")
_HYDRA_AXIS = re.compile(r"Sweeping over Hydra's configuration is not supported : '(?P<word>.*)'")
_SERIES = re.compile(r"(?:\w+\.)?(?P<name>linspace|geomspace|logspace|arange)\((?P<numbers>[^()]*)\)")

_DRAWN = re.compile(r"(?:\w+\.)*(?P<name>q?(?:log_?)?uniform|randint|choice)\((?P<numbers>.*)\)")

SWEEPER_PARAMETERS = "hydra.sweeper.params."
"""The beginning of the keys under which Hydra's own sweepers take a search space."""

BY_GRID = "by_grid"
"""The trainer that stands for the methods of a grid."""

COMMON = "dpsgd"
"""The method that examples name, where it has the key."""

EXPERIMENT = "experiment"
"""The group of the papers' experiments, which an installed package does not have."""

IN_CHECKOUT = (
    "The papers' experiments (conf/experiment) are in a checkout of dpsweep's source and not in the installed package: "
    "run this command in a checkout, or say where your own experiments are (--config-dir)."
)

CHOICES_OF_OTHER_TOOLS = {
    **dict.fromkeys(("optuna", "hyperopt"), "tpe"),
    **dict.fromkeys(("bayes", "bayesian", "skopt"), "gp"),
    **dict.fromkeys(("mse", "l2"), "squared_error"),
    **dict.fromkeys(("mae", "l1"), "absolute_error"),
    **dict.fromkeys(("bce", "bce_with_logits"), "binary_cross_entropy"),
    **dict.fromkeys(("liu_talwar", "lt"), "random_stopping"),
    **dict.fromkeys(("papernot_steinke", "ps"), "private_selection"),
    **dict.fromkeys(("moments", "moments_accountant"), "rdp"),
    "adamw": "dpadam",
}
"""Our choice by another tool's or a paper's name for it."""

SIMILAR = 0.7
"""The least similarity, of difflib's ratio, at which a word is proposed."""


def wrong_override_sentence(error: BaseException, words: Sequence[str], *, running: Sequence[str] = ()) -> str | None:
    """What is wrong with a word, in our terms; None for an exception of Hydra's that is about something else.

    `words` are the command's, `running` the methods that run.
    """
    message = str(error)
    if isinstance(error, OverrideParseException) or isinstance(error.__cause__, OverrideParseException):
        return _unparsable_override_sentence(error)
    if axis := _HYDRA_AXIS.search(message):
        return _axis_of_hydra_key_sentence(axis["word"])
    if unset := _UNSET.search(message):
        return f"Expected the environment variable {unset['name']} to be set: the configuration reads it."
    if missing := _UNKNOWN_CHOICE.search(message):
        return unknown_choice_sentence(missing["group"], missing["choice"], error)
    if unknown := _UNKNOWN_KEY.search(message):
        key = unknown["key"] or unknown["full"]
        below = re.search(rf"full_key: ({re.escape(key)}\.[\w.]+)", str(error.__cause__))  # of `plan={spare: 1}`
        return unknown_key_sentence(below[1] if below else key, words, running=running)
    if message.startswith(_UNFIT) and error.__cause__ is not None:
        return f"Expected {message.removeprefix(_UNFIT)} to fit its key: {str(error.__cause__).splitlines()[0]}."
    return None


def unknown_choice_sentence(group: str, choice: str, error: BaseException | None = None) -> str:
    """The sentence for `group=choice` where the group has no such option."""
    if group == "hydra/sweeper":
        return (
            f"Expected hydra/sweeper={choice} to be left out: dpsweep prices what its own sweeper runs. Optuna's "
            "samplers are search=tpe, search=gp and search=random, with search.trials=20 for 20 runs."
        )
    found = error.options if isinstance(error, MissingConfigException) else None
    options = list(found or choices_by_group().get(group, ()))
    if group == EXPERIMENT:
        choice = choice.rpartition("/")[2]  # behind its scale
    if not options and group == EXPERIMENT:
        return IN_CHECKOUT
    hint = _hint_for_own_part(group, choice) or _did_you_mean_question(
        CHOICES_OF_OTHER_TOOLS.get(choice, choice), options, f"{group}="
    )
    return f"Expected {group}={choice} to be one of {', '.join(options)}.{hint}"


def _hint_for_own_part(group: str, choice: str) -> str:
    """What to type for a file or a class of the user's own; empty for a word that looks like neither."""
    for folder in ("conf", "."):
        if choice in {path.stem for path in Path(folder, group).glob("*.yaml")}:
            return f" {Path(folder, group, choice)}.yaml is found with `--config-dir {folder}`."
    if group == "dataset" and "." in choice:
        return f" For a table of your own: dpsweep declare {choice}."
    if group in ("model", "trainer") and "." in choice:
        name = f"{choice.removesuffix('.py')}.NAME" if choice.endswith(".py") else choice
        return f" For a class of your own: {group}._target_={name}."
    return ""


def unknown_option_sentence(options: Sequence[str], words: Sequence[str]) -> str:
    """The sentence for options that neither dpsweep nor Hydra has, as `--epsilon 3` for `privacy.epsilon=3`."""
    option = options[0]
    key, _, value = option.lstrip("-").partition("=")
    after = words[words.index(option) + 1 :][:1] if option in words else []
    value = value or next((word for word in after if "=" not in word and not word.startswith("-")), "")
    ours = translate_foreign_override(key.replace("-", "_"), value, words)
    example = f"here {ours}" if ours else "as in privacy.epsilon=3"
    return (
        f"Expected {option} as KEY=VALUE, {example}: the options are --again, --anyway, --rules, "
        "--config-dir FOLDER, and others of Hydra's."
    )


def unknown_key_sentence(key: str, words: Sequence[str], *, running: Sequence[str] = ()) -> str:
    """The sentence for a key that the configuration lacks: another tool's word, another choice's key, or a typo."""
    word = next((one for one in words if one.lstrip("+~").partition("=")[0] == key), key)
    value = word.partition("=")[2]
    known = documented_keys()
    if key == EXPERIMENT:
        return IN_CHECKOUT
    if key.startswith(SWEEPER_PARAMETERS):
        return _axis_of_hydra_key_sentence(word)
    if key in known:
        return _key_of_another_choice_sentence(key, word, words, running)
    if ours := translate_foreign_override(key, value, words):
        return f"Expected {word} in dpsweep's words: {ours}.{_hint_to_name_method(ours, words)}"
    if key.count(".") > 1 and key.endswith("._target_"):
        group, outer = key.partition(".")[0], key.removesuffix("._target_")
        if outer in known:
            return f"Expected {word} with its arguments in braces: '{outer}={{_target_: {value}}}'."
        return (
            f"Expected {word} in a file of your own, {group}/NAME.yaml, with all parts of the {group}: "
            f"--config-dir . {group}=NAME 'trusted=[{value}]' chooses it{_PAGE_OF_GROUP.get(group, '')}."
        )
    names = [name for name in known if not is_key_users_never_set(name)]
    similar = _did_you_mean_question(key, [*names, *SHORT_WORDS, *choices_by_group()], "")
    return f"Expected {word} to be a key of the configuration.{similar or ' `dpsweep help` lists the keys.'}"


_PAGE_OF_GROUP = {
    "trainer": ", and docs/your_trainer.md has one",
    "model": ", and docs/your_model.md says what a class needs",
    "dataset": ", and docs/your_data.md has some",
}
"""What a page of ours says of a user's own choice in a group."""


def _axis_of_hydra_key_sentence(word: str) -> str:
    """The sentence for a search space below Hydra's sweeper, or for several values of another key of Hydra's."""
    key, _, values = word.lstrip("+~").partition("=")
    if not key.startswith(SWEEPER_PARAMETERS):
        return f"Expected {word} to have one value: only hyperparameters may be axes, and {key} is a key of Hydra."
    interval = re.fullmatch(r"interval\(([^()]*)\)", values)
    listed = (_values_of_series(f"geomspace({interval[1]},4)") or "a,b,c") if interval else values
    return f"Expected {word} in dpsweep's words: {key.removeprefix(SWEEPER_PARAMETERS)}={listed}."


def axis_in_brackets_sentence(word: str) -> str | None:
    """The sentence for `trainer.lr=[1,2]`, `trainer=[dpsgd,dpadam]`, `trainer.lr={values: [1,2]}`: axes; else None."""
    key, _, value = word.partition("=")
    listed = _LISTED.fullmatch(value)
    if listed is None or key in GROUPS_WITH_SEVERAL_CHOICES:
        return None
    known = documented_keys().get(key)
    if key not in choices_by_group() and (known is None or not known.is_number):
        return None
    values = ",".join(part.strip() for part in listed[1].split(","))
    if not values:
        return f"{key} has no value."
    return f"Expected {word} without brackets, which make one value of it; its values as an axis: {key}={values}."


_LISTED = re.compile(r"(?:\{ *values *: *)?\[(.*)\](?: *\})?", re.DOTALL)

GROUPS_WITH_SEVERAL_CHOICES = ("logger",)
"""The groups of which a list chooses several at once."""


def _values_of_series(value: str) -> str | None:
    """The numbers that a call of NumPy's `linspace`, `geomspace`, `logspace` or `arange` stands for; else None.

    >>> _values_of_series("logspace(-2,1,4)")
    '0.01,0.1,1,10'
    """
    call = _SERIES.fullmatch(value)
    numbers = [_parse_number_or_none(number) for number in call["numbers"].split(",")] if call else []
    if call is None or not 2 <= len(numbers) <= 3 or None in numbers:
        return None
    import numpy as np

    try:
        counts = numbers[2:] if call["name"] == "arange" else map(int, numbers[2:] or [50])  # type: ignore[arg-type]
        values = getattr(np, call["name"])(*numbers[:2], *counts)
    except ValueError:
        return None
    return ",".join(f"{number:.6g}" for number in values) if 0 < len(values) <= 100 else None


def _key_of_another_choice_sentence(key: str, word: str, words: Sequence[str], running: Sequence[str]) -> str:
    """The sentence for a key that other choices of its group have."""
    group, having = key.partition(".")[0], _choices_with_key(key)
    named = any(one.startswith(f"{group}=") for one in words)
    if running and not named:
        runs = f"every method that runs ({', '.join(running)})" if len(running) > 1 else f"{running[0]}, which runs"
        example = COMMON if COMMON in having else having[0]
        return f"Expected {word} to be a key of {runs}. Name a method that has it: {group}={example} {word}."
    chosen = [one for one in words if one.startswith(f"{group}=") and "," not in one]
    own = f" `dpsweep help {chosen[0]}` lists the keys of that one." if chosen else ""
    return f"Expected {word} beside a choice of {group} that has this key: {', '.join(having)}.{own}"


def _choices_with_key(key: str) -> list[str]:
    """The choices of a key's group that have the key, without the one that stands for several methods."""
    group = key.partition(".")[0]
    places = (place.partition("=") for place in documented_keys()[key].values)
    return [choice for root, _, choice in places if root == group and choice != BY_GRID]


def _hint_to_name_method(ours: str, words: Sequence[str]) -> str:
    """A hint to name the method where a key is not every method's."""
    key = ours.partition("=")[0]
    known = documented_keys().get(key)
    if not key.startswith("trainer.") or known is None or any(word.startswith("trainer=") for word in words):
        return ""
    return f" Name the method with it ({', '.join(_choices_with_key(key))})."


def _did_you_mean_question(word: str, known: Sequence[str], prefix: str) -> str:
    """A question that proposes the most similar known word; empty where none is similar."""
    similar = get_close_matches(word, known, n=1, cutoff=SIMILAR)
    if not similar:
        ends = {name.rpartition(".")[2]: name for name in reversed(known)}
        similar = [ends[last] for last in get_close_matches(word.rpartition(".")[2], list(ends), n=1, cutoff=SIMILAR)]
    if not similar and len(word) > 2:
        similar = [name for name in known if name.startswith(word)]
    return f" Did you mean {prefix}{similar[0]}?" if similar else ""


def _unparsable_override_sentence(error: BaseException) -> str:
    """The sentence for a word that Hydra cannot parse."""
    cause = error if isinstance(error, OverrideParseException) else error.__cause__
    assert isinstance(cause, HydraException)
    word = getattr(cause, "override", "")
    if "=" not in word:
        return f"Expected {word} to be KEY=VALUE, as in steps=100."
    key, _, value = word.partition("=")
    if key.lstrip("+") in choices_by_group() and value.startswith("{"):
        return "Pairs of values are not supported; give each key its list: trainer.lr=1,2 trainer.clip_norm=0.5,1."
    if drawn := _DRAWN.fullmatch(value):
        series = f"{'geomspace' if 'log' in drawn['name'] else 'linspace'}({drawn['numbers']},5)"
        values = _values_of_series(series) if "uniform" in drawn["name"] else drawn["numbers"].strip("[] ")
        return (
            f"Lists can be priced, and the hidden rules' laws over them: {key}={values or '1,2'}. What "
            "is drawn at random is search=random over the list."
        )
    if values := _values_of_series(value):
        return f"Expected {word} as a list of values: {key}={values}."
    if (character := _character_beyond_command_line(word)) is not None:
        return _yaml_line_sentence(word.lstrip("+"), character)
    if _QUOTED_NAME.search(word):
        names = word.lstrip("+")
        return f"Expected the names in {names} to stand without quotes, as in dataset.bounds={{age: [18, 90]}}."
    return (
        f"Expected {word} to be KEY=VALUE: check its brackets, commas and quotes, and quote a value with spaces or "
        "brackets twice, as in data=\"'my folder'\"."
    )


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAME_IN_BRACES = re.compile(r"[{,]\s*('[^']*'|\"[^\"]*\"|[^{}\[\],:'\"]*?)\s*:")
_BEYOND_NAMES = re.compile(r"[^A-Za-z0-9_ .-]")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def _character_beyond_command_line(word: str) -> str | None:
    """The first character that Hydra's grammar has no place for: in a name, or outside of quotes in a value."""
    key, _, value = word.lstrip("+~").partition("=")
    names = (name.strip("'\"") for name in _NAME_IN_BRACES.findall(value))
    found = (
        _BEYOND_ASCII.search(key),
        *(_BEYOND_NAMES.search(name) for name in names),
        _BEYOND_ASCII.search(_QUOTED.sub("", value)),
    )
    return next((match.group() for match in found if match is not None), None)


def _yaml_line_sentence(word: str, character: str) -> str:
    """The sentence for a word that only a file can say, with its line of YAML."""
    key, _, value = word.partition("=")
    for name in reversed(key.split(".")):
        value = f"{{{name}: {value}}}"
    return (
        f"Expected {word} without {character!r}, which a command line cannot carry in a name or outside of quotes. "
        f"Write it into a file of your own, as `dpsweep declare` begins one: {value[1:-1]}"
    )


EPOCHS = ("epochs", "num_epochs", "num_train_epochs", "max_epochs", "n_epochs")

SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(EPOCHS, "steps"),
    **dict.fromkeys(("max_steps", "num_steps", "n_steps", "iterations", "max_iter"), "steps"),
    **dict.fromkeys(
        ("batch_size", "lot_size", "expected_batch_size", "logical_batch_size", "per_device_train_batch_size"),
        "sampler.batch_size",
    ),
    **dict.fromkeys(("microbatches", "num_microbatches"), "compute.chunk"),
    **dict.fromkeys(("microbatch_size", "physical_batch_size", "max_physical_batch_size"), "compute.chunk"),
    **dict.fromkeys(("lr", "learning_rate", "eta", "step_size"), "trainer.lr"),
    **dict.fromkeys(
        ("max_grad_norm", "max_norm", "l2_norm_clip", "clip_norm", "clipping_norm", "clipping_threshold", "clip", "C"),
        "trainer.clip_norm",
    ),
    **dict.fromkeys(("per_example_max_grad_norm", "max_per_sample_grad_norm"), "trainer.clip_norm"),
    **dict.fromkeys(("regularizer", "regulariser", "gamma", "r"), "trainer.regularizer"),
    **dict.fromkeys(("momentum", "beta1", "beta2"), "trainer.{}"),
    **dict.fromkeys(("sigma", "noise_multiplier", "noise_scale", "noise"), "privacy.noise_multiplier"),
    **dict.fromkeys(("epsilon", "eps", "target_epsilon", "privacy_budget"), "privacy.epsilon"),
    **dict.fromkeys(("delta", "target_delta"), "privacy.delta"),
    **dict.fromkeys(("neighbouring_relation", "neighboring_relation", "adjacency"), "privacy.adjacency"),
    **dict.fromkeys(("random_seed", "random_state", "manual_seed", "rng_seed"), "seed"),
    **dict.fromkeys(("device", "gpu", "gpus", "accelerator"), "compute.device"),
    **dict.fromkeys(("threads", "num_threads"), "compute.threads"),
    **dict.fromkeys(("optimizer", "optimiser", "method", "algorithm", "algo"), "trainer"),
    **dict.fromkeys(("scheduler", "lr_scheduler", "lr_scheduler_type"), "lr_schedule"),
    **dict.fromkeys(("net", "network", "arch", "architecture", "model_name"), "model"),
    **dict.fromkeys(("data_dir", "data_root", "data_path", "root"), "data"),
    **dict.fromkeys(("task", "data_set", "corpus"), "dataset"),
    **dict.fromkeys(("n_trials", "num_trials", "num_samples", "max_trials", "trials"), "search.trials"),
    **dict.fromkeys(("rule", "selection"), "tuning"),
    **dict.fromkeys(("accountant", "accounting_mode"), "accountant"),
    **dict.fromkeys(("val_split", "validation_split", "val_fraction", "test_size"), "score.fraction"),
    **dict.fromkeys(("objective", "scoring", "metric"), "score.metric"),
    **dict.fromkeys(("n_repeats", "num_repeats", "seeds"), "repeats"),
    **dict.fromkeys(("ema_decay", "use_ema"), "weights.ema"),
    **dict.fromkeys(("augmult", "augmentation_multiplicity"), "augmentation.multiplicity"),
    **dict.fromkeys(("lora_rank", "lora_r"), "adapter.rank"),
    **dict.fromkeys(("output_dir", "out", "output", "save_dir"), "hydra.sweep.dir"),
    **dict.fromkeys(("n_jobs", "num_workers", "workers", "n_cpus"), "hydra.launcher.n_jobs"),
}
"""Our key, or group, by another tool's name for it; `{}` stands for that name."""


def translate_foreign_override(name: str, value: str, words: Sequence[str]) -> str | None:
    """Our word for another tool's `name=value` in a command of these words; None where the name is unknown.

    Epochs become steps where the command, or the configuration of its data set, says how many records there are.

    >>> translate_foreign_override("max_grad_norm", "1", [])
    'trainer.clip_norm=1'
    """
    last = name.rpartition(".")[2]
    if last not in SYNONYMS:
        return None
    key = SYNONYMS[last].format(last)
    if last in EPOCHS:
        return _steps_override_from_epochs(value, words)
    if "." not in key:
        value = ",".join(CHOICES_OF_OTHER_TOOLS.get(choice, choice) for choice in value.split(","))
    return f"{key}={value}" if value and "microbatches" not in last else key


def _steps_override_from_epochs(epochs: str, words: Sequence[str]) -> str:
    """`steps=` for so many epochs, each value by itself; the formula where a size is unknown."""
    records = _number_given_for_key("dataset.records", words)
    batch_size = _number_given_for_key("sampler.batch_size", words)
    numbers = [_parse_number_or_none(value) for value in epochs.split(",")]
    if records is None or batch_size is None or None in numbers:
        return "steps=..., epochs x training records / sampler.batch_size"
    step = batch_size / (records - math.floor(records * _held_out_share(words)))
    return "steps=" + ",".join(str(math.ceil(number / step)) for number in numbers if number is not None)


def _held_out_share(words: Sequence[str]) -> float:
    """The share of the records that is held out for private scores."""
    if "score=private" not in words and any(word.startswith("score=") for word in words):
        return 0.0
    given = next((word.partition("=")[2] for word in words if word.startswith("score.fraction=")), None)
    return _parse_number_or_none(given or documented_keys()["score.fraction"].values["score=private"]) or 0.0


def _number_given_for_key(key: str, words: Sequence[str]) -> float | None:
    """A key's number on the command line, else in the data set's configuration."""
    given = dict(word.split("=", 1) for word in words if "=" in word)
    data_set = given.get("dataset", default_choices()["dataset"])
    return _parse_number_or_none(given.get(key, documented_keys()[key].values.get(f"dataset={data_set}", "")))


def _parse_number_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


OF_HYDRA = "hydra"

NOT_NEEDED = {"budget.epsilon": "dataset.public", "budget.delta": "dataset.public"}
"""Keys that may stay empty where another key is true."""


def refuse_short_words_in_files(config: DictConfig) -> None:
    """Raises `BadInput` for a file's key without its group, which nothing would read: a command's word may lack it."""
    for word, key in SHORT_WORDS.items():
        if word in config:
            raise BadInput(f"Expected a file to name {key}, got {word}: only a word of the command may lack its group.")


def refuse_keys_without_value(config: DictConfig, given: Collection[str]) -> None:
    """Raises `BadInput` with all keys at `???`, and what each means, except those in `given`: they are axes."""
    from dpsweep.accounting.rehearsal import WITHOUT_SPENDING  # help needs no ledger

    missing = [
        key
        for key in dict.fromkeys((*_keys_without_value(config), *_keys_needed_beside_others(config)))
        if key not in given and OmegaConf.select(config, NOT_NEEDED.get(key, "")) is not True
    ]
    if not missing:
        return
    width = max(map(len, missing)) + len("=")
    lines = "\n".join(
        escape_invisible_characters(f"  {f'{key}=':{width}}  {_key_meaning(key, config)}".rstrip()) for key in missing
    )
    hint = f"\n{WITHOUT_SPENDING}" if not NOT_NEEDED.keys().isdisjoint(missing) else ""
    raise BadInputInLines(
        f"Expected a value for each of these keys, on the command line or in a file of your own:\n{lines}{hint}"
    )


def _keys_needed_beside_others(config: DictConfig) -> Iterator[str]:
    """The keys at null that a table's other keys need: a file's `???` does not replace the null of what it includes."""
    dataset = config.dataset
    if {"labels", "target"} <= set(dataset) and dataset.get("labels") is dataset.get("target") is None:
        yield "dataset.labels"
    if dataset.get("unit_column") is not None:
        yield from (f"dataset.{key}" for key in ("units", "contribution_cap") if dataset.get(key) is None)


def _keys_without_value(node: DictConfig, prefix: str = "") -> Iterator[str]:
    """The keys at `???`; interpolations are left to those that they name."""
    for key in map(str, node):
        name = f"{prefix}{key}"
        if name == OF_HYDRA or OmegaConf.is_interpolation(node, key):
            continue
        if OmegaConf.is_missing(node, key):
            yield name
        elif OmegaConf.is_dict(below := node[key]):
            yield from _keys_without_value(below, f"{name}.")


def _key_meaning(key: str, config: DictConfig) -> str:
    """What a key means in the choice of its group that the configuration made, in its first sentence."""
    known = documented_keys().get(key)
    if known is None:
        return ""
    group = key.partition(".")[0]
    choice: Any = OmegaConf.select(config, f"hydra.runtime.choices.{group}")
    target = OmegaConf.select(config, f"{group}._target_")
    of_same_class = (
        known.comments[f"{group}={one}"]
        for one in choices_by_group().get(group, ())
        if f"{group}={one}" in known.comments
        and f"_target_: {target}\n" in choice_file_path(group, one).read_text(encoding="utf-8")
    )
    return first_sentence(known.comments.get(f"{group}={choice}") or next(of_same_class, known.meaning))
