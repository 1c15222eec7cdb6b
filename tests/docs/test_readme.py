"""README is short, and its pictures exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_is_short_and_its_pictures_exist():
    readme = (ROOT / "README.md").read_text()
    assert readme.count("\n") <= 130
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", readme)
    assert len(pictures) >= 5
    assert [name for name in pictures if not (ROOT / name).is_file()] == []
