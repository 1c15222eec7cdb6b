"""The rows of ``benchmarks/adaptive.py`` on a small picture."""

import torch


def test_every_row_of_the_grid_and_the_noise_section(capsys):
    import adaptive

    y, x = torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij")
    edges = (0.5 + 0.5 * torch.tanh(2 * (x - 0.6 * y - 4)))[None, ..., None]
    methods = {
        "bicubic": adaptive.baseline("bicubic"),
        "R": adaptive.edge_directed,
        "B": adaptive.by_leave_one_out,
        "window 1.5": adaptive.fitted(window=1.5),
        "Adaptive": adaptive.fitted(),
        "noise: auto": adaptive.denoised,
    }
    found = adaptive.table(edges, methods)
    assert list(found) == list(methods)
    assert min(found.values()) > 15
    assert found["B"] != found["window 1.5"]  # errors at twice the spacing are left out
    assert "per picture" in capsys.readouterr().out
