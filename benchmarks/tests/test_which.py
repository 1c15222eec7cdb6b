"""docs/which.md has the table of the file of results, whose numbers the pages that it names have too."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_is_on_the_page_and_its_numbers_on_those_that_are_named():
    import which

    wrong = [
        (question.page, row.method, row.value("psnr"))
        for question in which.QUESTIONS
        for row in question.rows
        if f"{row.value('psnr'):.2f}" not in (DOCS / question.page).read_text()
    ]
    assert wrong == [], "measured again: python benchmarks/results.py --only NAME, or by the command of that page?"
    assert which.table() in (DOCS / "which.md").read_text()
