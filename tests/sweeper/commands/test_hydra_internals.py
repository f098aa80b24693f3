"""The series of Hydra that is installed: pyproject.toml allows it, it finds our plugins, and it warns of nothing."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.plugin import Plugin
from packaging.requirements import Requirement

from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
PLUGINS = PROJECT["entry-points"]["hydra.plugins"]


def test_the_installed_series_is_an_allowed_one() -> None:
    (hydra,) = [one for one in map(Requirement, PROJECT["dependencies"]) if one.name == "hydra-core" and _applies(one)]
    assert hydra.specifier.contains(version("hydra-core"), prereleases=True)
    assert bool(VERSION_BASE) == version("hydra-core").startswith("1.3.")


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate()


@pytest.mark.parametrize("name", PLUGINS)
def test_an_entry_point_names_a_class_that_hydra_can_build(name: str) -> None:
    """Hydra 1.4 loads them, and warns of everything else."""
    module, _, kind = PLUGINS[name].partition(":")
    plugin = getattr(__import__(module, fromlist=[kind]), kind)
    assert issubclass(plugin, Plugin)
    assert not inspect.isabstract(plugin)
    assert f"{module}.{kind}" in Plugins.instance().class_name_to_class


def test_a_command_is_silent_about_the_series() -> None:
    words = ["dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1", "steps=3", "accountant=rdp"]
    line = [sys.executable, "-m", "dpsweep", "plan", *words, "accountant.witnesses=[]", "privacy.noise_multiplier=3"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
