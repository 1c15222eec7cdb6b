"""The benchmark programs at sizes that take no time."""

import torch

from pe_lightning.linalg import threads


def test_quality_prints_every_encoder(capsys):
    import solvers_quality

    solvers_quality.quality(torch.stack([solvers_quality.load(None)[0, 100:164, 200:264]]))
    out = capsys.readouterr().out
    assert all(f"\n{name} " in out for name in solvers_quality.PAPER)
    assert "bicubic" in out


def test_threads_prints_both_sides_and_restores_the_limit(capsys):
    import solvers_threads

    before = threads.OPERATIONS_PER_THREAD
    solvers_threads.loaded(sizes=(24,), repeats=1)
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[-2:]] == [["grid", "24"], ["points", "24"]]
    assert before == threads.OPERATIONS_PER_THREAD
