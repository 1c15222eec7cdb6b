"""The benchmark of exact fits at sizes that take no time."""

from pe_lightning.linalg import threads


def test_quality_prints_every_encoder(capsys):
    import solvers
    from harness import load

    solvers.quality(load("samples://astronaut")[None, 100:164, 200:264])
    out = capsys.readouterr().out
    assert all(f"\n| {name} " in out for name in solvers.PAPER)
    assert "bicubic" in out


def test_threads_prints_both_sides_and_restores_the_limit(capsys):
    import solvers

    before = threads.OPERATIONS_PER_THREAD
    solvers.loaded(sizes=(32,), repeats=1)
    assert [line.split()[1:3] for line in capsys.readouterr().out.splitlines()[-2:]] == [["grid", "32"], ["points", "32"]]
    assert before == threads.OPERATIONS_PER_THREAD
