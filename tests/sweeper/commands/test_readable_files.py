"""A configuration file that cannot be read is refused by its name and its line; nothing is opened or charged."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.python_api import compose_request_within_hydra
from dpsweep.sweeper.coordinator.request import Verb
from tests.composing import FILES

Program = Callable[..., subprocess.CompletedProcess[str]]
CLI = "dpsweep.sweeper.commands.cli"

BROKEN = {
    "an open bracket": (b"dataset:\n  labels: [a, b\n  classes: 2\n", "line 3, to be", "expected ',' or ']'"),
    "a tab": (b"dataset:\n\tname: mine\n", "line 2, to be", "that cannot start any token"),
    "a key that is there twice": (b"a: 1\na: 2\n", "line 2, to be", "found duplicate key a"),
    "two documents": (b"a: 1\n---\nb: 2\n", "line 2, to be", "expected a single document"),
    "an object": (
        b"a: !!python/object/apply:os.system ['true']\n",
        "line 1, to be",
        "could not determine a constructor",
    ),
    "an unknown alias": (b"a: *b\n", "line 1, to be", "found undefined alias"),
    "another encoding": (b"name: caf\xe9\n", ".yaml to be", "'utf-8' codec can't decode byte 0xe9"),
    "a control character": (b'name: "\x01"\n', ".yaml to be", "characters are not allowed"),
    "a number without end": (b"a: " + b"9" * 5000 + b"\n", ".yaml to be", "5000 digits"),
    "lists without end": (b"a: " + b"[" * 5000, " to be", "nested too deeply|did not find expected node content"),
    "an alias of itself": (b"a: &a {b: *a}\n", " to be", "nested too deeply|recursive aliases are not supported"),
    "an interpolation without end": (b"dataset: {name: '${'}\n", ".yaml to be", "no viable alternative at input '${'"),
    "defaults that are no list": (b"defaults: 3\n", "dataset/mine", "must be a list (got int)"),
}
"""What such a file holds, and what the sentence says of place and reason: by PyYAML or, in Hydra 1.4, libyaml."""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of a data set in a folder of the user's."""
    path = tmp_path / "own" / "dataset" / "mine.yaml"
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_cannot_be_read_is_named_with_its_line(program: Program, mine: Path, what: str) -> None:
    content, place, reason = BROKEN[what]
    mine.write_bytes(content)
    done = program("plan", "dataset=mine", "--config-dir", str(mine.parents[1]), module=CLI)
    assert done.returncode == 2, done.stderr
    sentence, code = done.stderr.splitlines()
    assert sentence.startswith(("Expected ", "Invalid defaults list in "))
    assert place in sentence
    assert str(mine if "defaults" not in what else "dataset/mine") in sentence
    assert any(one in sentence for one in reason.split("|"))
    assert code == "(exit code 2: bad input, nothing was charged)"


@pytest.mark.parametrize("circle", [["mine"], ["mine", "other"]])
def test_defaults_that_include_themselves_are_named(program: Program, mine: Path, circle: list[str]) -> None:
    for name, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        (mine.parent / f"{name}.yaml").write_text(f"defaults: [{following}]\n")
    done = program("plan", "dataset=mine", "--config-dir", str(mine.parents[1]), module=CLI)
    assert done.returncode == 2, done.stderr
    files = " -> ".join(f"dataset/{name}.yaml" for name in [*circle, circle[0]])
    assert done.stderr.startswith(f"Expected the defaults of no configuration to include itself, got: {files}.\n")


@pytest.mark.parametrize("verb", [("sweep",), ("rehearse",), ("budget", "open")])
def test_every_verb_that_composes_refuses_it(program: Program, mine: Path, verb: tuple[str, ...]) -> None:
    mine.write_text("dataset: {name: mine\n")
    done = program(*verb, "dataset=mine", "--config-dir", str(mine.parents[1]), module=CLI)
    assert done.returncode == 2, done.stderr
    assert f"Expected {mine}, line 2, to be a configuration in YAML" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_function_of_the_library_refuses_it_too_and_leaves_hydra_as_it_was(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = FILES.load_config
    mine.write_text("dataset: {name: mine\n")
    search = f"hydra.searchpath=[file://{mine.parents[1]}]"
    with (
        pytest.raises(BadInput, match=r"mine\.yaml, line 2, to be"),
        compose_request_within_hydra(Verb.PLAN, ["dataset=mine", search]),
    ):
        pass
    assert FILES.load_config is before


@pytest.mark.parametrize("word", ["features=null", "model=3", "dataset="])
def test_a_function_of_the_library_refuses_an_option_that_is_no_name(word: str) -> None:
    with (
        pytest.raises(BadInput, match=f"Expected {word} to be one of "),
        compose_request_within_hydra(Verb.PLAN, [word]),
    ):
        pass
