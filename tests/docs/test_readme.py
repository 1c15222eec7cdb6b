"""README is short, its pictures exist, and it begins with the framework, as the home page does."""

import re
from pathlib import Path

import pytest

from pe_lightning.encoders import registry

ROOT = Path(__file__).parents[2]


def test_the_readme_is_short_and_its_pictures_exist():
    readme = (ROOT / "README.md").read_text()
    assert readme.count("\n") <= 130
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", readme)
    assert len(pictures) >= 5
    assert [name for name in pictures if not (ROOT / name).is_file()] == []


def test_the_readme_names_every_encoder():
    readme = (ROOT / "README.md").read_text()
    ours = [name for name in registry if registry.get(name).__module__.startswith("pe_lightning.")]
    assert len(ours) >= 20
    assert [name for name in ours if f"`{name}`" not in readme] == []


@pytest.mark.parametrize(
    "text", [(ROOT / name).read_text() for name in ("README.md", "docs/index.md")], ids=["README", "index"]
)
def test_training_solving_and_comparing_come_before_the_tools(text):
    steps = ["fit --config image/demo", "--model.solver exact --trainer.max_steps 0\n", "pe-lightning compare"]
    steps += ["--trainer.devices", " fill "]
    places = [text.index(step) for step in steps]
    assert places == sorted(places)
