"""Which modules of the user's folder are found, and for whom."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.user_modules import FINDER, UserModules, import_named_object

ALARM = "raise AssertionError('nobody may import this')\n"
MODULES = {
    "named_net.py": "import sibling_early\ndef late():\n    import sibling_late\n    return sibling_late.NUMBER\n",
    "sibling_early.py": "from importlib import import_module\nassert import_module('sibling_of_it').NUMBER == 3\n",
    "sibling_of_it.py": "NUMBER = 3\n",
    "sibling_late.py": "NUMBER = 4\n",
    "uninvited.py": ALARM,
    "org.py": ALARM,
    "json.py": ALARM,
    "named_package/__init__.py": "",
    "named_package/inner.py": "from . import uninvited\nimport sibling_late\n",
    "named_package/uninvited.py": "NUMBER = 5\n",
    "named_folder/inner.py": "NUMBER = 6\n",
}


@pytest.fixture
def finder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UserModules]:
    """A finder of a folder with these modules, which has no names yet."""
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before, finder = set(sys.modules), UserModules()
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    finder.install_finder_for_folder(str(tmp_path))
    yield finder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_nothing_is_found_that_nobody_named(finder: UserModules) -> None:
    for name in ("named_net", "uninvited", "org", "named_package", "named_folder"):
        assert find_spec(name) is None
    sys.modules.pop("copy", None)
    import_module("copy")  # tries org.python.core
    sys.modules["copy"] = copy
    assert finder.found == set()


def test_a_named_module_finds_those_beside_it_early_and_late(finder: UserModules) -> None:
    finder.names.add("named_net")
    assert import_module("named_net").late() == 4
    assert finder.found == {"named_net", "sibling_early", "sibling_of_it", "sibling_late"}
    assert find_spec("uninvited") is None


def test_packages_and_folders_of_modules_are_found_by_their_first_part(finder: UserModules) -> None:
    finder.names |= {"named_package", "named_folder"}
    assert import_module("named_package.inner").uninvited.NUMBER == 5
    assert import_module("named_folder.inner").NUMBER == 6
    assert find_spec("uninvited") is None


def test_an_installed_module_comes_first(finder: UserModules, monkeypatch: pytest.MonkeyPatch) -> None:
    finder.names.add("json")
    monkeypatch.delitem(sys.modules, "json")
    assert import_module("json").loads("3") == 3


def test_nothing_is_imported_that_the_command_does_not_name(
    finder: UserModules, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(FINDER, "trusted", {"named_net.late"})
    monkeypatch.setattr(FINDER, "names", set())
    monkeypatch.setattr(FINDER, "folder", str(tmp_path))
    sys.meta_path.append(FINDER)
    for path in ("uninvited.late", "named_net.sibling_early", "os.system", "subprocess.Popen", "bert", "mlp", "", "."):
        for place in ("", "model", "search"):
            with pytest.raises(BadInput, match=re.escape(f"trusted=[{path}]")):
                import_named_object(path, place)
    assert FINDER.names == set()
    assert import_named_object("named_net.late")() == 4
    assert FINDER.names == {"named_net"}


def test_what_conf_names_is_imported_at_its_place_alone() -> None:
    assert import_named_object("optuna.samplers.TPESampler", "search").__name__ == "TPESampler"
    for place in ("", "model", "trainer"):
        with pytest.raises(BadInput, match="no code runs because a file names it"):
            import_named_object("optuna.samplers.TPESampler", place)


def test_what_was_found_may_be_unpickled_by_another_process(
    finder: UserModules, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finder.names.add("named_net")
    import_module("named_net")
    finder.trusted.add("named_net.late")
    sent = pickle.dumps(finder)
    for name, value in {"folder": None, "trusted": set(), "names": set(), "found": set()}.items():
        monkeypatch.setattr(FINDER, name, value)
    for name in finder.found:
        del sys.modules[name]
    sys.meta_path.remove(finder)
    assert pickle.loads(sent) is FINDER
    assert FINDER in sys.meta_path
    assert FINDER.trusted == {"named_net.late"}
    assert FINDER.folder == str(tmp_path)
    assert find_spec("sibling_early") is not None, "a pickled layer of the model is of this module"
    assert find_spec("uninvited") is None
