"""The page that compares measurements of other pages has their numbers."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_numbers_are_those_of_the_pages_that_are_named():
    import which

    wrong = [
        (question.page, row.method, row.psnr)
        for question in which.QUESTIONS
        for row in question.rows
        if f"{row.psnr:.2f}" not in (DOCS / question.page).read_text()
    ]
    assert wrong == []
    assert which.table() in (DOCS / "which.md").read_text()
