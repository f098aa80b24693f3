"""What `dpsweep help` prints: the list of keys, and what a key, a group or a choice means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.planning.keys import (
    SHORT_WORDS,
    DocumentedKey,
    choice_file_path,
    choices_by_group,
    commented_keys,
    default_choices,
    documented_keys,
    file_header_comment,
    first_sentence,
    is_choice_for_papers_alone,
    is_key_users_never_set,
)
from dpsweep.sweeper.planning.unknown_keys import SYNONYMS, unknown_key_sentence

_LONGEST = 100
"""Characters of a meaning in a list; the whole of it stands where the key is explained."""


HYDRA = "hydra"
PAPERS = "experiment"
"""The group of papers' sweeps, which only a checkout has."""

_HYDRA = """hydra: keys of Hydra itself. They say where and how jobs run, and are no part of a plan or its price.

  hydra.sweep.dir=FOLDER      the sweep's folder, in place of sweeps/DATASET/PLAN
  hydra/launcher=NAME         what runs the jobs: joblib, submitit_slurm, ... (docs/scaling.md)
  hydra.launcher.KEY=VALUE    the launcher's own settings, such as hydra.launcher.n_jobs=4
  hydra.sweeper.KEY=VALUE     retry, resume, study and max_batch_size, of dpsweep's sweeper (docs/scaling.md)

  hydra.searchpath=[file://FOLDER]   the same as the option --config-dir FOLDER: a folder with choices of your own

Of Hydra's options --config-dir works, and --cfg, --info, --help, --hydra-help and --version print something.
All others are refused: they would do nothing, or something else than in a program of Hydra's."""


def groups_and_keys_text() -> str:
    """All groups with their options, and all keys with their meanings, one a line."""
    keys = list(_key_lines(_keys_users_may_set()))
    ending = (
        f"`dpsweep help KEY` explains one, `dpsweep help {HYDRA}` where Hydra's own are, "
        f"`dpsweep help {PAPERS}` lists the sweeps of papers."
    )
    choices = ("choices:", *_choice_lines(for_papers=False))
    appendix = ("choices that only papers use:", *_choice_lines(for_papers=True))
    return "\n".join((*choices, "", "keys:", *keys, "", *appendix, "", ending))


def _choice_lines(*, for_papers: bool) -> Iterator[str]:
    """A line for each group that has choices for papers alone, or others; whole sweeps of papers are left out."""
    for group, options in choices_by_group().items():
        chosen = [option for option in options if is_choice_for_papers_alone(group, option) is for_papers]
        if chosen and group != PAPERS:
            yield f"  {f'{group}=':16}{', '.join(chosen)}"


def explanation_text(word: str) -> str:
    """What a key (`trainer.lr`, or `lr`), a group (`trainer`) or a choice (`trainer=dpsgd`, or `dpsgd`) means.

    Raises `BadInput` for a word that is none of them.
    """
    word = SHORT_WORDS.get(word, word)
    group, equals, choice = word.partition("=")
    if equals and choice in choices_by_group().get(group, ()):
        return _explain_choice_and_its_keys(group, choice)
    if word in choices_by_group():
        return _group_explanation(word)
    keys = _keys_users_may_set()
    found = [keys[word]] if word in keys else [key for name, key in keys.items() if name.endswith(f".{word}")]
    below = [key for name, key in keys.items() if name.startswith(f"{word}.")]
    if found or below:
        group_lines = ["\n".join(_key_lines({key.name: key for key in below}))] if below else []
        return "\n\n".join((*group_lines, *map(_key_explanation, found)))
    if word.split(".")[0].split("/")[0] == HYDRA:
        return _HYDRA
    choices = [_explain_choice_and_its_keys(group, word) for group, all_ in choices_by_group().items() if word in all_]
    if choices:
        return "\n\n".join(choices)
    if word in SYNONYMS:
        return explanation_text(SYNONYMS[word].format(word))
    raise BadInput(unknown_key_sentence(word, ()))


def _keys_users_may_set() -> Mapping[str, DocumentedKey]:
    """The keys that a user may give."""
    return {
        name: key
        for name, key in documented_keys().items()
        if any(key.values.values()) and not is_key_users_never_set(name)
    }


def _key_lines(keys: Mapping[str, DocumentedKey]) -> Iterator[str]:
    """A line for each key."""
    width = max(map(len, keys)) + 2
    for name, key in keys.items():
        meaning = first_sentence(key.meaning)
        shown = meaning if len(meaning) <= _LONGEST else f"{meaning[:_LONGEST].rpartition(' ')[0]} ..."
        yield f"  {name:{width}}{shown}"


def _key_explanation(key: DocumentedKey) -> str:
    """A key's meaning, and its value wherever it has one."""
    places = {place or "conf/config.yaml": value for place, value in key.values.items() if value}
    width = max(map(len, (*places, *filter(None, key.comments)))) + 2
    others = [f"  {place:{width}}{text}" for place, text in key.comments.items() if text != key.meaning and place]
    values = [f"  {place:{width}}{value}" for place, value in places.items()]
    meanings = ["", "means in particular", *others] if others else []
    return "\n".join((f"{key.name}: {key.meaning}", *meanings, "", "its value (??? is yours to give)", *values))


def _group_explanation(group: str) -> str:
    """A group's options, each with its first sentence."""
    options = choices_by_group()[group]
    width = max(map(len, options)) + 2
    default = default_choices().get(group)
    lines = (
        f"  {option:{width}}{first_sentence(file_header_comment(choice_file_path(group, option)))}"
        for option in options
    )
    begins = f"{group}=, {default} unless something else is said" if default in options else f"{group}="
    return "\n".join((begins, *lines))


def _explain_choice_and_its_keys(group: str, choice: str) -> str:
    """What a choice is, and its keys."""
    path = choice_file_path(group, choice)
    known = documented_keys()
    names = (key if key.name in known else f"{group}.{key.name}" for key in commented_keys(path))
    keys = {name if isinstance(name, str) else name.name for name in names}
    own = {name: key for name, key in _keys_users_may_set().items() if name in keys}
    place = f"{group}={choice}"
    lines = [f"  {name} = {key.values[place]}: {key.comments.get(place, key.meaning)}" for name, key in own.items()]
    return "\n".join((f"{group}={choice}: {file_header_comment(path)}", *(["", "its keys", *lines] if lines else [])))
