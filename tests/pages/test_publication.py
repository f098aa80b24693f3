"""What an index, a code host and a container need is there, is valid, and names one address."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ADDRESS = PROJECT["urls"]["Homepage"]
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
SCHEMAS = {
    "citation-file-format": [ROOT / "CITATION.cff"],
    "github-workflows": sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    "github-issue-forms": FORMS,
    "github-issue-config": [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"],
}
PUBLIC = ("CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "Dockerfile")


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_are_as_their_schemas_say(schema: str) -> None:
    pytest.importorskip("check_jsonschema", reason="needs pip install check-jsonschema")
    line = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*line, *map(str, SCHEMAS[schema])], capture_output=True, text=True)
    assert SCHEMAS[schema]
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_citation_is_of_this_version_and_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert citation["authors"] == PROJECT["authors"]


def test_every_file_names_one_address_of_the_project() -> None:
    files = (*(ROOT / name for name in (*PUBLIC, "pyproject.toml")), *(ROOT / ".github").rglob("*.*ml"))
    address = re.compile(r"https://github\.com/[\w-]+/dpsweep\b")
    named = {found for path in files for found in address.findall(path.read_text())}
    assert named == {ADDRESS}
    assert f"`{ADDRESS}`" in (ROOT / "docs" / "contributing.md").read_text()


def test_classifiers_are_known_to_the_index() -> None:
    known = pytest.importorskip("trove_classifiers", reason="comes with hatchling").classifiers
    assert set(PROJECT["classifiers"]) <= known
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_the_workflow_tests_every_python_that_the_classifiers_name() -> None:
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.fullmatch(r".* :: 3\.\d+", one)]
    tried = tests["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert tried[: len(named)] == named
    assert [one for one in tried if f"{one}.0" not in SpecifierSet(PROJECT["requires-python"])] == []
    makefile = (ROOT / "Makefile").read_text()
    for path in SCHEMAS["github-workflows"]:
        for target in re.findall(r"run: make ([a-z-]+)", path.read_text()):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_actions_are_pinned_by_digest_beside_their_version() -> None:
    for path in SCHEMAS["github-workflows"]:
        for action in re.findall(r"uses: (.*)", path.read_text()):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action), action


def test_publishing_keeps_no_password_and_only_its_job_may_ask_for_trust() -> None:
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert "secrets." not in text
    assert {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})} == {"publish"}
    assert jobs["publish"]["needs"] == "build"


def test_the_image_has_pinned_versions_and_its_state_on_a_volume() -> None:
    text = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"^RUN pip install (.*)$", text, re.MULTILINE)
    assert installs
    assert all(line.startswith("-c constraints.txt") for line in installs)
    extras = {name for found in re.findall(r"\.\[([\w,]+)\]", text) for name in found.split(",")}
    assert extras
    assert extras <= set(PROJECT["optional-dependencies"])
    assert "VOLUME /state" in text
    assert {f"XDG_{kind}_HOME=/state/{kind.lower()}" for kind in ("STATE", "CONFIG", "DATA")} <= set(text.split())
    assert re.search(r"^USER \d+$", text, re.MULTILINE), "not root"


@pytest.mark.parametrize("name", PUBLIC[1:5])
def test_links_of_the_pages_at_the_top_lead_to_files(name: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text()):
        assert (ROOT / target).is_file(), target
