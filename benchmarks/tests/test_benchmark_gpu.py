"""The table of seconds per signal, at sizes that take no time."""

import pytest
import torch


def lines(capsys, *more: str) -> list[list[str]]:
    import gpu

    gpu.main(["--size", "32", "--cube", "16", "--scale", "0.01", *more])
    return [line.split() for line in capsys.readouterr().out.splitlines()[2:]]


def test_every_row_has_seconds_and_a_score(capsys):
    found = lines(capsys)
    assert [row[:2] for row in found] == [
        [table, name]
        for table in ("T1", "T2", "T3", "T4")
        for name in ("simple", "complex", "solved")
        if (table, name) != ("T4", "solved")
    ]
    for table, name, seconds, _, each, steps, score, _ in found:
        assert int(steps) == {"simple": 20, "complex": 20, "solved": 0}[name] // (1 if table in ("T1", "T2") else 4)
        assert float(seconds) > 0
        assert (each == "-") == (name == "solved")
        assert float(score) > 5


def test_rows_without_time_are_estimated(capsys):
    row, *_ = lines(capsys, "--only", "T2", "--budget", "0.001")
    assert float(row[2].removeprefix("~")) > 0
    assert row[2].startswith("~")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu(capsys):
    assert all(int(row[-1]) > 0 for row in lines(capsys, "--precision", "bf16-mixed"))
