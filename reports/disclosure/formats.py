"""The forms in which a release can be handed on: what `dpsweep release --for` names, and who writes them.

A form is a class that a distribution has registered by its name (`accounting/stored_names/tags.py`); ours are
those of `reports/disclosure/documents.py`. It imports nothing heavy, since the completion of a command line reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.printing import print_error
from dpsweep.accounting.stored_names.tags import (
    FORMATS,
    load_registered_part,
    part_errors_as_bad_input,
    registered_part_names,
)

if TYPE_CHECKING:
    from dpsweep.reports.pages.released_package import ReleasedPackage, ReleaseFormat

OPTION = "--for"


@dataclass(frozen=True, kw_only=True)
class RegisteredFormat:
    """A form by its name; an error of another distribution's code is one sentence. `file` is a name in `release/`."""

    name: str
    file: str
    inner: ReleaseFormat

    @classmethod
    def from_name(cls, name: str) -> RegisteredFormat:
        """The form with this name; raises `BadInput` for an unknown one, and for one that does not work."""
        word = f"{OPTION} {name}".strip()
        kind = load_registered_part(FORMATS, name, word)
        with part_errors_as_bad_input(FORMATS, name, word):
            inner: ReleaseFormat = kind()
            if Path(inner.file).name != inner.file:
                raise BadInput(f"Expected {word} to write a file of release/ itself, got {inner.file}.")
            return cls(name=name, file=inner.file, inner=inner)

    def text(self, package: ReleasedPackage) -> str:
        """The document."""
        with part_errors_as_bad_input(FORMATS, self.name, f"{OPTION} {self.name}"):
            return self.inner.text(package)


def split_arguments_from_format_options(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The arguments of `dpsweep release` without its options, and the forms that the options name, each once.

    >>> split_arguments_from_format_options(["a", "--for", "tre,hf", "b", "--for=tre"])
    (['a', 'b'], ('tre', 'hf'))
    """
    folders: list[str] = []
    names: list[str] = []
    waiting = iter(arguments)
    for word in waiting:
        option, given, value = word.partition("=")
        if option == OPTION:
            names += (value if given else next(waiting, "")).split(",")
        else:
            folders.append(word)
    return folders, tuple(dict.fromkeys(names))


def formats_with_names(names: Iterable[str]) -> tuple[RegisteredFormat, ...]:
    """The forms with these names, each once; raises `BadInput` for an unknown one."""
    return tuple(RegisteredFormat.from_name(name) for name in dict.fromkeys(names))


def formats_written_in_release(release: Path) -> tuple[RegisteredFormat, ...]:
    """The forms whose documents lie in a release; says which form cannot be asked for its file's name."""
    forms = []
    for name in registered_part_names(FORMATS):
        try:
            forms.append(RegisteredFormat.from_name(name))
        except BadInput as cause:
            print_error(f"No document {OPTION} {name} was looked for. {cause}")
    return tuple(form for form in forms if (release / form.file).is_file())


def format_option_completions(words: Sequence[str]) -> tuple[str, ...]:
    """What may stand in the place of the last word: the forms after the option, or the option itself."""
    *before, last = words
    if before and before[-1] == OPTION:
        *chosen, last = last.split(",")
        first = "".join(f"{name}," for name in chosen)
        return tuple(
            f"{first}{name}" for name in registered_part_names(FORMATS) if name.startswith(last) and name not in chosen
        )
    return (OPTION,) if last and OPTION.startswith(last) else ()
