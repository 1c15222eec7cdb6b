"""Tables of benchmarks at sizes that take no time, and numbers of figures."""

from pathlib import Path

import torch

from pe_lightning.linalg import threads

DOCS = Path(__file__).parents[2] / "docs"


def test_every_row_of_the_grid_and_the_noise_section(capsys):
    import adaptive

    y, x = torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij")
    edges = (0.5 + 0.5 * torch.tanh(2 * (x - 0.6 * y - 4)))[None, ..., None]
    methods = {**adaptive.BOTH, "noise: auto": adaptive.denoised}
    found = adaptive.table(edges, methods)
    assert list(found) == list(methods)
    assert min(found.values()) > 15
    assert max(found, key=found.get) == "Adaptive"
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(methods)


def test_threads_prints_both_sides_and_restores_the_limit(capsys):
    import solvers

    before = threads.OPERATIONS_PER_THREAD
    solvers.loaded(sizes=(32,), repeats=1)
    assert [line.split()[1:3] for line in capsys.readouterr().out.splitlines()[-2:]] == [["grid", "32"], ["points", "32"]]
    assert before == threads.OPERATIONS_PER_THREAD


def test_the_numbers_of_the_figure_are_on_the_pages_that_are_named():
    import figures

    wrong = [
        (question["page"], method, row["psnr"])
        for measurement, question in figures.QUESTIONS.items()
        for method, row in figures.rows(measurement).items()
        if f"{row['psnr']:.2f}" not in (DOCS / question["page"]).read_text()
    ]
    assert wrong == [], "measured again: python benchmarks/results.py --only NAME, or by the command of that page?"
