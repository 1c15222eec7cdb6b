"""Numbers that README and the home page quote stand on the page, or in the file of results, that they come from."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUOTING = ["README.md", "docs/index.md", "docs/gallery.md"]
MEASURED = re.compile(r"(?<![\d.])\d+\.\d\d(?![\d.])|\d{1,3},\d{3}")
"""Numbers with two decimals, and thousands with a comma."""


def sources() -> str:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if str(path.relative_to(ROOT)) not in QUOTING]
    return "\n".join(path.read_text() for path in [*pages, *(ROOT / "benchmarks").glob("*.yaml")])


@pytest.mark.parametrize("name", QUOTING)
def test_quoted_numbers_are_those_of_their_source(name):
    found = set(MEASURED.findall(sources()))
    not_measured = re.compile(r"^```.*?^```|Python\s3\.\d+", re.DOTALL | re.MULTILINE)
    quoted = MEASURED.findall(not_measured.sub("", (ROOT / name).read_text()))
    if name == "README.md":
        assert len(quoted) > 10
    assert [number for number in quoted if number not in found] == []


def test_the_table_of_the_readme_says_what_docs_say_of_the_same_method():
    readme, prior = (ROOT / "README.md").read_text(), (ROOT / "docs/prior.md").read_text()
    row = re.search(r"`Adaptive` with .*?\*\*([\d.]+) dB\*\* \| \*\*([\d.]+) dB\*\*", readme)
    assert row
    assert all(number in prior for number in row.groups())
    assert "45.24 dB with 207,000 numbers" in readme
    assert re.search(r"^\| 207,000 \| 45\.24 \|", (ROOT / "docs/sparse.md").read_text(), re.MULTILINE)


def test_the_readme_is_short_and_its_pictures_exist():
    readme = (ROOT / "README.md").read_text()
    assert readme.count("\n") <= 150
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", readme)
    assert len(pictures) >= 5
    assert [name for name in pictures if not (ROOT / name).is_file()] == []
