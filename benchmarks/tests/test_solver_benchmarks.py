"""The benchmark programs at sizes that take no time."""

import pytest
import torch

from pe_lightning.linalg import operators, threads


@pytest.mark.parametrize("banded", [True, False])
def test_stream(tmp_path, monkeypatch, banded):
    import solvers_stream

    if banded:
        monkeypatch.setattr(operators, "MIN_FEATURES", 16)
        monkeypatch.setattr(operators, "MAX_DENSITY", 1.0)
    solvers_stream.write(tmp_path / "source.h5", 160, 48)
    found = solvers_stream.run(str(tmp_path / "source.h5"), 40, 48)
    assert found["psnr"] > 20
    assert found["rendered"] == pytest.approx(found["psnr"], abs=1e-2)


def test_quality_prints_every_encoder(capsys):
    import solvers_quality

    solvers_quality.quality(torch.stack([solvers_quality.load(None)[0, 100:164, 200:264]]))
    out = capsys.readouterr().out
    assert all(f"\n{name} " in out for name in solvers_quality.PAPER)
    assert "bicubic" in out


def test_time_prints_an_encoder(capsys):
    import solvers_time

    solvers_time.timing(torch.rand(1, 24, 24, 1, generator=torch.Generator().manual_seed(0)), repeats=1)
    assert "\ngau " in capsys.readouterr().out


def test_routes_of_the_large_picture_agree():
    import solvers_large

    compact, dense = (solvers_large.run(route, 48, 24, 1)[2] for route in ("compact", "dense"))
    assert compact == pytest.approx(dense, abs=1e-4)
    assert len(solvers_large.run("plain", 48, 24, 1)[2]) == len(dense)


def test_threads_prints_both_sides_and_restores_the_limit(capsys):
    import solvers_threads

    before = threads.OPERATIONS_PER_THREAD
    solvers_threads.loaded(sizes=(24,), repeats=1)
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[-2:]] == [["grid", "24"], ["points", "24"]]
    assert before == threads.OPERATIONS_PER_THREAD
