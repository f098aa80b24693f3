"""Every configuration key of conf/, with its meaning and its value in each choice of its group.

A comment explains the key on whose line it stands, or the key right below it. The comment at the top of a file
explains the file. Numbers from environment variables are numbers: OmegaConf reads `${oc.env:NAME}` as text, also where
a number is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

HIDDEN = ("_target_", "_recursive_", "defaults", "hydra")
"""Keys that name a class or belong to Hydra."""

GLOBAL = "# @package _global_"
"""Hydra's mark of a file whose keys are not below its group's name."""

_TRAILING = re.compile(r"\s#\s(?P<text>.*)$")


@dataclass(frozen=True, kw_only=True)
class CommentedKey:
    """One key of a file: its dotted name, its value as written (empty for a mapping) and its comment."""

    name: str
    value: str
    comment: str | None


def commented_keys(path: Path) -> Iterator[CommentedKey]:
    """The keys of a YAML file in their order; a mapping stands before its own keys."""
    text = path.read_text(encoding="utf-8")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(node, yaml.MappingNode):
        yield from _commented_keys_below_node(node, "", text, text.splitlines())


def file_header_comment(path: Path) -> str:
    """The comment at the top of a YAML file, in one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = 1 if lines[0] == GLOBAL else 0
    end = next((place for place in range(start, len(lines)) if not lines[place].startswith("# ")), len(lines))
    return " ".join(line.removeprefix("# ") for line in lines[start:end])


def first_sentence(text: str) -> str:
    """The first sentence of a comment, in which `et al.` ends none.

    >>> first_sentence("Adam (Kingma et al. 2015). It is quick.")
    'Adam (Kingma et al. 2015).'
    """
    sentence = re.split(r"(?<=[^.]{2}\.) (?=[A-Z])", re.sub(r"\bet al\.", "et al", text), maxsplit=1)[0]
    return sentence.replace("et al", "et al.")


def _commented_keys_below_node(
    node: yaml.MappingNode, prefix: str, text: str, lines: Sequence[str]
) -> Iterator[CommentedKey]:
    for key, value in node.value:
        if key.value in HIDDEN:
            continue
        name, comment = prefix + key.value, _comment_of_line(lines, key.start_mark.line)
        below = isinstance(value, yaml.MappingNode) and bool(value.value)
        written = "" if below else text[value.start_mark.index : value.end_mark.index].strip()
        yield CommentedKey(name=name, value=written, comment=comment)
        if isinstance(value, yaml.MappingNode):
            yield from _commented_keys_below_node(value, f"{name}.", text, lines)


def _comment_of_line(lines: Sequence[str], line: int) -> str | None:
    """The comment on a line, or else the one on lines of its own right above it, unless that is the file's."""
    if trailing := _TRAILING.search(lines[line]):
        return trailing["text"].strip()
    start, indent = line, _indent(lines[line])
    while start > 0 and lines[start - 1].lstrip().startswith("# ") and _indent(lines[start - 1]) == indent:
        start -= 1
    is_header = start == 0 or lines[start - 1] == GLOBAL or lines[start] == GLOBAL
    block = [text.strip().removeprefix("# ") for text in lines[start:line]]
    return " ".join(block) if block and not is_header else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


CONF = Path(__file__).resolve().parents[2] / "conf"

ROOT = "config"
"""The file of keys that belong to no group."""

NOT_EXPLAINED = ("experiment",)
"""Groups whose files set keys of other groups only."""

INNER = (
    *(
        "dataset.files",
        "dataset.bounds.",
        "dataset.vocabulary.",
        "dataset.distribution",
        "dataset.file.",
        "dataset.md5",
    ),
    *("dataset.pool", "dataset.parts", "dataset.folders", "accountant.", "features.weights.", "model.weights."),
    *("features.heads", "features.first_place", "features.eps", "model.heads", "model.first_place", "model.eps"),
    *("grid.axes.", "lr_schedule.then", "tuning.rule", "trainer.sha256", "model.sha256", "policy."),
)
"""Beginnings of keys that describe a published file or model, or that the program fills in."""


@dataclass(frozen=True, kw_only=True)
class DocumentedKey:
    """A configuration key.

    `values` has the value as written by where it stands: `group=choice`, or the empty text for conf/config.yaml.
    `comments` has the comments that explain it, by where they stand.
    """

    name: str
    values: Mapping[str, str]
    comments: Mapping[str, str]

    @property
    def meaning(self) -> str:
        """What the key means in most places that explain it; empty where none does."""
        return max(self.comments.values(), key=list(self.comments.values()).count, default="")

    @property
    def is_number(self) -> bool:
        """Whether any of its values is a number."""
        return any(_is_number_text(value) for value in self.values.values())


_IS_ONE_VALUE = re.compile(r"[\w.+-]+")
"""A number or a word, which no comma, bracket or quote makes several."""


@cache
def documented_keys(conf: Path = CONF) -> Mapping[str, DocumentedKey]:
    """The keys of a configuration folder by name, those of no group first."""
    values: dict[str, dict[str, str]] = {}
    comments: dict[str, dict[str, str]] = {}
    for place, key in _commented_keys_of_all_files(conf):
        values.setdefault(key.name, {})[place] = key.value
        if key.comment and _does_place_explain_key(place, key.name):
            comments.setdefault(key.name, {})[place] = key.comment
    return {
        name: DocumentedKey(name=name, values=found, comments=comments.get(name, {})) for name, found in values.items()
    }


@cache
def choices_by_group(conf: Path = CONF) -> Mapping[str, tuple[str, ...]]:
    """The options of every group, without those in folders below."""
    groups = sorted(path for path in conf.iterdir() if path.is_dir())
    return {group.name: tuple(sorted(file.stem for file in group.glob("*.yaml"))) for group in groups}


KEYS_BY_STORED_NAME: Mapping[str, str] = {"ema": "weights.ema", "initial_weights": "weights.initial"}
"""The keys that plans store by another name, which they had before they were in a group."""

STORED_NAMES_BY_KEY = {key: name for name, key in KEYS_BY_STORED_NAME.items()}

SHORT_WORDS: Mapping[str, str] = {
    "script": "trainer.script",
    "show": "plan.show",
    "solve": "plan.solve",
    "fit": "plan.fit",
    "final": "plan.final",
    "page": "report.page",
    "about": "report.about",
    **KEYS_BY_STORED_NAME,
}
"""The keys of words that also stand without their group."""


def with_group_of_short_word(word: str) -> str:
    """An override with its key in full.

    >>> with_group_of_short_word("page=false")
    'report.page=false'
    """
    key, equals, value = word.partition("=")
    return f"{SHORT_WORDS[key]}={value}" if equals and key in SHORT_WORDS else word


def choices_that_have_key(key: str, choices: Sequence[str], conf: Path = CONF) -> list[str]:
    """Those of a group's named choices whose files have the key; a choice of the user's own counts as one that has it.

    >>> choices_that_have_key("trainer.regularizer", ["dpsgd", "dpnsgd"])
    ['dpnsgd']
    """
    group = key.partition(".")[0]
    if key not in documented_keys(conf) or not set(choices) & set(choices_by_group(conf).get(group, ())):
        return list(choices)
    places, ours = documented_keys(conf)[key].values, choices_by_group(conf)[group]
    return [choice for choice in choices if choice not in ours or f"{group}={choice}" in places]


def with_axes_of_methods_that_have_them(words: Sequence[str]) -> list[str]:
    """The words, where a value of several named trainers that not all of them, or not the default, have is an axis.

    An axis of the grid may be some methods' alone; a fixed value is composed into the configuration of all, which
    begins as the default choice.

    >>> with_axes_of_methods_that_have_them(["trainer=dpsgd,dpnsgd", "trainer.regularizer=0.1", "trainer.lr=1"])
    ['trainer=dpsgd,dpnsgd', 'trainer.regularizer=choice(0.1)', 'trainer.lr=1']
    """
    by_key = {key: value for key, _, value in (word.partition("=") for word in words)}
    named = by_key.get("trainer", "").split(",")
    return [_as_axis_of_some_methods(word, named) for word in words]


def _as_axis_of_some_methods(word: str, named: Sequence[str]) -> str:
    key, _, value = word.partition("=")
    if not key.startswith("trainer.") or len(named) == 1 or not _IS_ONE_VALUE.fullmatch(value):
        return word
    composed = [*named, default_choices()["trainer"]]
    having = choices_that_have_key(key, composed)
    return f"{key}=choice({value})" if set(named) & set(having) and len(having) < len(composed) else word


@cache
def default_choices(conf: Path = CONF) -> Mapping[str, str]:
    """The choice that conf/config.yaml makes in each group, where it makes one."""
    defaults = yaml.safe_load((conf / f"{ROOT}.yaml").read_text(encoding="utf-8"))["defaults"]
    return {group: str(choice) for item in defaults if isinstance(item, dict) for group, choice in item.items()}


def choice_file_path(group: str, choice: str, conf: Path = CONF) -> Path:
    """The YAML of a choice."""
    return conf / group / f"{choice}.yaml"


def is_choice_for_papers_alone(group: str, choice: str) -> bool:
    """Whether the YAML of a choice ends its first comment by saying so."""
    return file_header_comment(choice_file_path(group, choice)).endswith("For papers' experiments alone.")


def is_root_of_key_known(key: str) -> bool:
    """Whether the first part of a key is a group, or a key, of conf/ or of Hydra's."""
    root = key.partition(".")[0].partition("/")[0]
    return (
        root == "hydra"
        or root in choices_by_group()
        or any(name.partition(".")[0] == root for name in documented_keys())
    )


def is_key_users_never_set(name: str) -> bool:
    """Whether a key describes a published file, or is filled in by the program, so that nobody gives it."""
    return name.startswith(INNER)


def _commented_keys_of_all_files(conf: Path) -> Iterator[tuple[str, CommentedKey]]:
    for key in commented_keys(conf / f"{ROOT}.yaml"):
        yield "", key
    for group, options in choices_by_group(conf).items():
        if group in NOT_EXPLAINED:
            continue
        for choice in options:
            path = choice_file_path(group, choice, conf)
            prefix = "" if path.read_text(encoding="utf-8").startswith(GLOBAL) else f"{group}."
            for key in commented_keys(path):
                yield f"{group}={choice}", CommentedKey(name=prefix + key.name, value=key.value, comment=key.comment)


def _does_place_explain_key(place: str, name: str) -> bool:
    """Whether a comment there says what a key means; in a file of another group it says why that value was chosen."""
    return not place or place.partition("=")[0] == name.partition(".")[0]


def _is_number_text(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_VARIABLE = re.compile(r"\$\{oc\.env:[^{}]+\}")


def override_decoding_environment_number(word: str) -> str:
    """An override whose value is an environment variable, read as a number where its key has numbers.

    >>> override_decoding_environment_number("privacy.epsilon=${oc.env:EPSILON}")
    "privacy.epsilon='${oc.decode:${oc.env:EPSILON}}'"
    >>> override_decoding_environment_number("data=${oc.env:FOLDER}")
    'data=${oc.env:FOLDER}'
    """
    key, _, value = word.partition("=")
    if not _VARIABLE.fullmatch(value):  # asked first: to read all of conf/ takes a tenth of a command's time
        return word
    known = documented_keys().get(key)
    if known is None or not known.is_number:
        return word
    return f"{key}='${{oc.decode:{value}}}'"
