"""Files beside the package agree with it."""

import os
from pathlib import Path

import yaml

import pe_lightning

ROOT = Path(__file__).parents[1]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == pe_lightning.__version__
    assert citation["cff-version"] == "1.2.0"
    assert all(reference["authors"] for reference in citation["references"])
    assert f"\n## {pe_lightning.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_hosted_ci_calls_what_developers_call():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    script = ROOT / [step["run"] for step in job["steps"] if "run" in step][-1]
    assert script == ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
