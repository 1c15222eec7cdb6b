"""The numbers of the figure of docs/which.md are on the pages that it names too."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_numbers_are_on_the_pages_that_are_named():
    import which

    wrong = [
        (question.page, method, row["psnr"])
        for measurement, question in which.QUESTIONS.items()
        for method, row in which.rows(measurement).items()
        if f"{row['psnr']:.2f}" not in (DOCS / question.page).read_text()
    ]
    assert wrong == [], "measured again: python benchmarks/results.py --only NAME, or by the command of that page?"
