"""The page that compares measurements of other pages has their numbers."""

from pathlib import Path

import pytest
import which

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("question", which.QUESTIONS, ids=lambda question: question.signal)
def test_numbers_are_those_of_the_page_that_is_named(question):
    page = (DOCS / question.page).read_text()
    assert [row.method for row in question.rows if f"{row.psnr:.2f}" not in page] == []


def test_the_page_has_the_table():
    assert which.table() in (DOCS / "which.md").read_text()
