"""Number 4: a picture larger than memory allows, from HDF5 and back."""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import torch
from solvers_large import picture
from solvers_quality import coordinates
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.solvers import choose_grid, grid_blocks, solve_blocks


def stream(size: int, tile: int = 1024) -> dict[str, float]:
    """Prints one line; runs in a process of its own, for its peak of memory."""
    features = size // 4
    print(f"\n{size}^2 RGB, gau, K = {features} per axis, from HDF5 in tiles of {tile}^2 and back", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.h5"
        write(source, size, tile)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = pool.apply(run, (str(source), features, tile))
    gigabytes = size * size * 3 * 4 / 1e9
    print(
        f"choose {found['choose']:.1f} s (ridge {found['ridge']:.1e}), fit {found['fit']:.1f} s "
        f"({gigabytes / found['fit']:.2f} GB/s), render {found['render']:.1f} s ({gigabytes / found['render']:.2f} GB/s), "
        f"peak {found['peak']:.0f} MB ({found['before']:.0f} MB after imports); data {gigabytes * 1000:.0f} MB, "
        f"train PSNR {found['psnr']:.2f} dB by the solver, {found['rendered']:.2f} dB as rendered",
        flush=True,
    )
    return found


def write(path: Path, size: int, tile: int) -> None:
    """Writes the picture, a tile at a time."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("values", (1, size, size, 3), "f4", chunks=(1, min(tile, size), min(tile, size), 3))
        for box in grid_blocks((size, size), (tile, tile)):
            data[(0, *box)] = picture(*box)[0].numpy()


def run(path: str, features: int, tile: int) -> dict[str, float]:
    """Fits and renders; the numbers of the line above."""
    before = peak_megabytes()
    encoder = {"name": "gau", "num_features": features}
    with h5py.File(path) as file, h5py.File(Path(path).with_name("rendered.h5"), "w") as target:
        data = file["values"]
        size = data.shape[1]
        axes = [coordinates(size)] * 2
        out = target.create_dataset("values", data.shape, "f4", chunks=data.chunks)

        def blocks() -> Iterator[tuple[tuple[int, ...], Tensor]]:
            for box in grid_blocks((size, size), (tile, tile)):
                yield tuple(part.start for part in box), torch.from_numpy(data[(slice(None), *box)])

        began = time.perf_counter()
        part = slice(size // 4, size // 4 + min(512, size // 2))
        window = torch.from_numpy(data[:, part, part])
        choice = choose_grid(window, [x[part] for x in axes], [encoders.resolve(encoder)] * 2, full_size=(size, size))
        chosen = time.perf_counter()
        solution = solve_blocks(blocks(), encoder, axes, ridge=choice.ridge)
        fitted = time.perf_counter()
        for box in grid_blocks((size, size), (tile, tile)):
            out[(slice(None), *box)] = solution.predict([x[part] for x, part in zip(axes, box, strict=True)]).numpy()
        rendered = time.perf_counter()
        peak = peak_megabytes()
        error = sum(
            float((torch.from_numpy(out[(slice(None), *box)] - data[(slice(None), *box)])).double().square().sum())
            for box in grid_blocks((size, size), (tile, tile))
        )
    logs = -10 * torch.log10(torch.tensor([float(solution.squared_error[0]), error]) / solution.count[0])
    return {
        "choose": chosen - began,
        "ridge": choice.ridge,
        "fit": fitted - chosen,
        "render": rendered - fitted,
        "peak": peak,
        "before": before,
        "psnr": float(logs[0]),
        "rendered": float(logs[1]),
    }


def peak_megabytes() -> float:
    """The highest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
