"""What tests compose is what Hydra composes, and a file that changes is read again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf

from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from tests.composing import compose_as_hydra_does, compose_quickly

LINES = (
    (),
    ("dataset=cifar10", "trainer=dpadam", "trainer.lr=0.003", "+model.width=3"),
    ("dataset=digits", "trainer=by_grid", "grid=cifar10", "tuning=private_selection", "~lr_schedule"),
    ("features=minilm", "dataset=sst2", "hydra/launcher=submitit_local"),
    ("features=minilm", "dataset=sst2", "hydra/launcher=submitit_local", "steps=7", "~augmentation", "+tuning.more=1"),
)
CHOOSES = "defaults: [a: one, b: '${a}_b', _self_]\n"
"""A file whose second choice follows from its first."""


@pytest.fixture(autouse=True)
def quick_again() -> Iterator[None]:
    yield
    compose_quickly()


def composed(words: tuple[str, ...], folder: Path = CONF) -> str:
    with initialize_config_dir(config_dir=str(folder), **VERSION_BASE):
        text = OmegaConf.to_yaml(compose("config", list(words), return_hydra_config=True))
    GlobalHydra.instance().clear()
    return text


def both(words: tuple[str, ...], folder: Path = CONF) -> tuple[str, str]:
    """By Hydra alone, and quickly, the second time."""
    compose_as_hydra_does()
    alone = composed(words, folder)
    compose_quickly()
    assert composed(words, folder) == alone
    return alone, composed(words, folder)


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_the_same_is_composed(words: tuple[str, ...]) -> None:
    alone, quick = both(words)
    assert quick == alone


def test_a_copy_may_be_changed_and_knows_the_folder_that_it_was_composed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
        first = compose("config", ["steps=7"], return_hydra_config=True)
        first.steps = 8
        monkeypatch.chdir(tmp_path)
        second = compose("config", ["steps=7"], return_hydra_config=True)
    assert (second.steps, second.hydra.runtime.cwd) == (7, str(tmp_path))
    assert first.hydra.runtime.cwd != str(tmp_path)


def test_a_choice_that_follows_from_another_is_made_and_a_changed_file_is_read_again(tmp_path: Path) -> None:
    files = {"config": CHOOSES, "a/one": "x: 1\n", "a/two": "x: 2\n", "b/one_b": "z: 1\n", "b/two_b": "z: 2\n"}
    for name, text in files.items():
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    alone, quick = both(("a=two",), tmp_path)
    assert quick == alone
    assert "x: 2\n" in quick
    assert "z: 2\n" in quick
    (tmp_path / "b" / "two_b.yaml").write_text("z: 33\n")
    assert "z: 33\n" in composed(("a=two",), tmp_path)
    (tmp_path / "b" / "two_b.yaml").unlink()
    with pytest.raises(HydraException, match="two_b"):
        composed(("a=two",), tmp_path)
