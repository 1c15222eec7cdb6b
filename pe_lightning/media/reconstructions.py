"""The reconstructions of a run: every signal as a file, and beside its truth as a picture and as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from pe_lightning.data.batches import SignalInfo
from pe_lightning.media.figures import row_plot
from pe_lightning.media.pictures import FRAMES, comparison, comparison_frames, to_levels, write_png
from pe_lightning.media.signals import Formats, write_signal
from pe_lightning.metrics import unit_of
from pe_lightning.runs import file_names, frames_of, replacing

__all__ = ["write_comparison", "write_reconstructions"]

Array = npt.NDArray[np.float32]
Write = Callable[[Path, Array, SignalInfo, int], Path | None]

SHEETS = 64
"""How many rows, videos or volumes are compared with the truth in a picture; every image is."""
COMPARED_FRAMES = 32
"""How many frames of a cube are in the file that compares it with the truth, at most."""
COMPARED_BYTES = 1 << 27
"""About how many bytes such a file has before compression, at most: of larger frames there are fewer."""


def write_reconstructions(
    folder: Path,
    metrics: Mapping[str, Any],
    predictions: Array,
    values: Array,
    info: SignalInfo | None = None,
    formats: Formats = "auto",
    train_mask: npt.NDArray[np.bool_] | None = None,
    write: Write | None = None,
) -> list[str]:
    """Writes every signal, and of signals of 1 to 3 axes ``<stem>_comparison.png`` and ``<stem>_comparison.h5``.

    The picture shows truth, reconstruction and error; of many rows or cubes, it is that of the first :data:`SHEETS`. The
    HDF5 file has truth and reconstruction as data (see :func:`write_comparison`).

    Args:
        folder: Where to.
        metrics: With ``signals``, and the scores per signal for the captions.
        predictions: ``(S, *grid, C)``.
        values: The truth, same shape.
        info: What the source is; without it images are PNG, and anything else NPY.
        formats: What the signals are written as.
        train_mask: Which samples were trained on, ``(S or 1, *grid)``.
        write: Writes a signal in a format of its source's own, or returns ``None``.

    Returns:
        The paths of the pictures, those of the first signals.
    """
    pictures = []
    metric = metrics.get("metric", "psnr")
    for index, stem in enumerate(file_names(tuple(metrics["signals"]))):
        prediction, truth, rate = predictions[index], values[index], info.rate if info is not None else None
        if write is None or info is None or write(folder / stem, prediction, info, index) is None:
            write_signal(folder / stem, prediction, info, index, formats)
        if not 2 <= truth.ndim <= 4:
            continue
        trained = None if train_mask is None else train_mask[index if len(train_mask) > 1 else 0]
        write_comparison(folder / f"{stem}_comparison.h5", prediction, truth, info, trained)
        if truth.ndim != 3 and index >= SHEETS:
            continue
        score = metrics[f"test/{metric}_per_signal"][index]
        held_out = "" if score is None else f", {f'{score:.2f} {unit_of(metric)}'.rstrip()} held out"
        caption = f"reconstruction{held_out}"
        if truth.ndim == 2:
            sheet = row_plot(prediction, truth, trained, caption, rate)
        elif truth.ndim == 3:
            sheet = comparison(prediction, truth, caption)
        else:
            frames = frames_of(len(truth), FRAMES)
            sheet = comparison_frames(prediction[frames], truth[frames], caption, frames, len(truth))
        pictures.append(str(write_png(folder / f"{stem}_comparison.png", sheet)))
    return pictures


def write_comparison(
    path: Path,
    prediction: Array,
    truth: Array,
    info: SignalInfo | None = None,
    trained: npt.NDArray[np.bool_] | None = None,
) -> Path:
    """Writes reconstruction and truth of a signal of 1 to 3 axes atomically, for ``pe-lightning compare`` to show.

    HDF5 with datasets ``truth`` and ``reconstruction``. Of a row they are float32, what was [0, 1] in training, and
    ``trained`` has one boolean per sample. Of a picture or cube they are 8-bit pictures ``(n, H, W, C)``, n = 1 for a
    picture, else frames of the cube whose numbers are the attribute ``frames``; of more than four channels the first. The
    attributes ``media`` and ``rate`` are those of the source, where it is known.

    Args:
        path: Where to.
        prediction: ``(*grid, C)``.
        truth: Same shape.
        info: What the source is.
        trained: Which samples were trained on, ``(*grid,)``.
    """
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        if truth.ndim == 2:
            for name, row in (("truth", truth), ("reconstruction", prediction)):
                file.create_dataset(name, data=row, dtype=np.float32, chunks=True, shuffle=True, compression=1)
            if trained is not None:
                file.create_dataset("trained", data=trained, compression=1)
        else:
            if truth.ndim == 3:
                truth, prediction = truth[None], prediction[None]
            most = max(1, COMPARED_BYTES // (2 * truth[0].size))
            frames = frames_of(len(truth), min(COMPARED_FRAMES, most))
            shape = (len(frames), *truth.shape[1:3], truth.shape[3] if truth.shape[3] <= 4 else 1)
            for name, values in (("truth", truth), ("reconstruction", prediction)):
                dataset = file.create_dataset(name, shape, np.uint8, chunks=(1, *shape[1:]), compression=1)
                for number, frame in enumerate(frames):
                    dataset[number] = to_levels(values[frame, ..., : shape[3]])
            file.attrs["frames"] = frames
        if info is not None:
            file.attrs["media"] = info.media
            if info.rate is not None:
                file.attrs["rate"] = info.rate
    return path
