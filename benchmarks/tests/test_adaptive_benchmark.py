"""The rows of ``benchmarks/adaptive.py`` on a small picture."""

import torch


def test_every_row_of_the_grid_and_the_noise_section(capsys):
    import adaptive

    y, x = torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij")
    edges = (0.5 + 0.5 * torch.tanh(2 * (x - 0.6 * y - 4)))[None, ..., None]
    methods = {
        "bicubic": adaptive.baseline("bicubic"),
        "Pillow LANCZOS": adaptive.lanczos,
        "Adaptive": adaptive.fitted,
        "noise: auto": adaptive.denoised,
    }
    found = adaptive.table(edges, methods)
    assert list(found) == list(methods)
    assert min(found.values()) > 15
    assert max(found, key=found.get) == "Adaptive"
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(methods)
