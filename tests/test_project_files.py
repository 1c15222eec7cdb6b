"""Files beside the package agree with it."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

import pe_lightning
from pe_lightning.__main__ import HELP

ROOT = Path(__file__).parents[1]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == pe_lightning.__version__
    assert citation["cff-version"] == "1.2.0"
    assert all(reference["authors"] for reference in citation["references"])
    assert f"\n## {pe_lightning.__version__}, {citation['date-released']}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_constraints_hold_a_version_within_bounds_of_every_required_package():
    pins = dict(re.findall(r"^([\w-]+)==([^;\s]+)", (ROOT / "constraints.txt").read_text().lower(), re.MULTILINE))
    bounds = re.findall(r'"([\w-]+)(?:\[\w+\])?>=([\d.]+)[",]', (ROOT / "pyproject.toml").read_text().lower())
    assert len(bounds) > 40
    assert [name for name, bound in bounds if Version(pins[name]) < Version(bound)] == []


def test_it_is_described_by_the_same_words_everywhere():
    sentence = "Lightning-based training framework with a plugin registry of positional encoders for coordinate networks"
    names = ("README.md", "docs/index.md", "mkdocs.yml", "pyproject.toml", "CITATION.cff")
    texts = {name: (ROOT / name).read_text() for name in names}
    texts |= {"__init__.py": pe_lightning.__doc__, "--help": HELP}
    assert [name for name, text in texts.items() if sentence not in text] == []


def test_the_hosted_ci_calls_what_developers_call():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    script = ROOT / [step["run"] for step in job["steps"] if "run" in step][-1]
    assert script == ROOT / ".ci/run"
    assert os.access(script, os.X_OK)


def test_no_file_is_a_symbolic_link():
    """Windows and archives without links have them as text files."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    listed = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line for line in listed.splitlines() if line.startswith("120000")] == []
