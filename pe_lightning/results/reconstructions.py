"""Reconstructions of a run: each signal as a file, and its comparison with the truth as a picture and as data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL.Image import Image

from pe_lightning.errors import show_interpolation
from pe_lightning.evaluation.metrics import unit_of
from pe_lightning.results.comparisons import ALL_SIGNALS
from pe_lightning.results.pictures import COMPARED_FRAMES, comparison, comparison_frames, row_plot, to_levels, write_png
from pe_lightning.results.runs import MAX_FILES, file_names, frames_of
from pe_lightning.results.signal_files import add_signals, new_dataset, new_hdf5, write_signal
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.files import write_atomically
from pe_lightning.signals.raw import RawSignals

Array = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

MAX_STORED_FRAMES = 32
"""Largest number of frames of a cube in a comparison file."""
MAX_STORED_BYTES = 1 << 27
"""Approximate largest size of a comparison file before compression; limits the number of frames."""
MAX_TOGETHER_BYTES = 1 << 30
"""Largest size of the values that one file of all signals holds."""


def write_reconstructions(
    folder: Path,
    metrics: Mapping[str, Any],
    predictions: Array,
    values: Array,
    info: SignalInfo,
    train_mask: Mask | None = None,
    interpolation: tuple[str, Array] | None = None,
    draw: bool = True,
) -> list[str]:
    """Writes all signals, and for signals of 1 to 3 axes ``<stem>_comparison.h5`` and ``.png``, whose paths it returns.

    Of more than 64 signals, whose values take at most :data:`MAX_TOGETHER_BYTES`, the first 64 have files and pictures, and
    ``reconstructions.h5`` has the values and comparisons of all.

    Args:
        folder: Folder of the files.
        metrics: Content of ``metrics.json``: names of the signals, and their scores for the captions.
        predictions: ``(S, *grid, C)``.
        values: The truth, same shape.
        info: Shape and origin of the signals.
        train_mask: Mask of the trained samples, ``(S or 1, *grid)``.
        interpolation: Name and values of the best interpolation.
        draw: Whether to write the pictures.
    """
    stems, frames, pictures = file_names(tuple(metrics["signals"])), [0], []
    if values.ndim == 5:
        most = MAX_STORED_BYTES // (2 * values[0, 0].size)
        frames = frames_of(values.shape[1], min(MAX_STORED_FRAMES, max(1, most)))
    arrays = {"reconstruction": predictions, "truth": values}
    captions = {"reconstruction": _captions("reconstruction", metrics, metrics)}
    if interpolation is not None:
        name, arrays["interpolation"] = interpolation
        shown = f"{show_interpolation(name, info.num_axes)} interpolation"
        captions["interpolation"] = _captions(shown, metrics["baselines"][name], metrics)
    together = len(stems) > MAX_FILES and predictions.nbytes <= MAX_TOGETHER_BYTES
    if together:
        write_comparison(folder / ALL_SIGNALS, arrays, info, frames, train_mask, metrics["signals"])
    for index, stem in enumerate(stems[:MAX_FILES] if together else stems):
        signal = {name: array[index] for name, array in arrays.items()}
        trained = None if train_mask is None else train_mask[index % len(train_mask)]
        write_signal(folder / stem, signal["reconstruction"], info, index)
        if not 3 <= values.ndim <= 5:
            continue
        if not together:
            compared = {name: array[frames] for name, array in signal.items()} if values.ndim == 5 else signal
            write_comparison(folder / f"{stem}_comparison.h5", compared, info, frames, trained, index=index)
        if draw and index < MAX_FILES:
            sheet = _sheet(signal, {name: texts[index] for name, texts in captions.items()}, trained, info, index)
            pictures.append(str(write_png(folder / f"{stem}_comparison.png", sheet)))
    return pictures


def _captions(what: str, scores: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """A caption for each signal, with the held-out score if there is one, else of the trained samples."""
    metric = metrics.get("metric", "psnr")
    captions = [what] * len(metrics["signals"])
    for stage, words in (("train", "of trained samples"), ("test", "held out")):
        for index, score in enumerate(scores.get(f"{stage}/{metric}_per_signal", ())):
            if score is not None:
                captions[index] = f"{what}, {f'{score:.2f} {unit_of(metric)}'.rstrip()} {words}"
    return captions


def _sheet(
    signal: Mapping[str, Array], captions: Mapping[str, str], trained: Mask | None, info: SignalInfo, index: int
) -> Image:
    prediction, truth, caption = signal["reconstruction"], signal["truth"], captions["reconstruction"]
    beside = (captions["interpolation"], signal["interpolation"]) if "interpolation" in signal else None
    if truth.ndim == 2:
        return row_plot(prediction, truth, trained, caption, info, beside, index=index)
    if truth.ndim == 3:
        return comparison(prediction, truth, caption, trained=trained, interpolation=beside)
    shown = frames_of(len(truth), COMPARED_FRAMES)
    mask = None if trained is None else trained[shown]
    beside = None if beside is None else (beside[0], beside[1][shown])
    return comparison_frames(prediction[shown], truth[shown], caption, shown, len(truth), mask, beside)


def write_comparison(
    path: Path,
    values: Mapping[str, Array],
    info: SignalInfo,
    frames: Sequence[int] = (0,),
    trained: Mask | None = None,
    names: Sequence[str] | None = None,
    index: int = 0,
) -> None:
    """Writes the comparison of a signal of 1 to 3 axes atomically, for ``pe-lightning compare``, or of all signals.

    HDF5 with the datasets ``truth``, ``reconstruction`` and perhaps ``interpolation``, from ``values`` ``(*grid, C)``. A row
    is float32, nominally in [0, 1], beside the mask ``trained`` ``(N,)``, ``range`` ``(2,)``, the values in the user's units
    that 0 and 1 stand for, and the attribute ``axis`` (JSON). A picture is 8-bit ``(1, H, W, C)``, a cube ``(n, H, W, C)``:
    only these ``frames`` are in ``values``. Of more than four channels the first is stored. The signal has the number
    ``index`` in ``info``.

    With ``names`` of several signals, all arrays have a first axis of signals, and cubes have all frames;
    :func:`~pe_lightning.results.signal_files.add_signals` adds the reconstructions to the file.
    """
    num_dims = values["truth"].ndim - (names is not None)
    with new_hdf5(partial(write_atomically, path)) as file:
        if names is not None:
            add_signals(file, values["reconstruction"], names, info)
        dtype = np.float32 if num_dims == 2 else np.uint8
        for name, array in values.items() if 2 <= num_dims <= 4 else ():
            shape, convert = _stored(array.shape[-num_dims:], frames)
            if names is None:
                new_dataset(file, name, shape, dtype)[...] = convert(array)
                continue
            dataset = new_dataset(file, name, (len(array), *shape), dtype)
            for start in range(0, len(array), step := dataset.chunks[0]):
                block = array[start : start + step]
                dataset[start : start + step] = np.stack([convert(s[frames] if num_dims == 4 else s) for s in block])
        if num_dims > 2:
            file.attrs["frames"] = list(frames)
        else:
            if trained is not None:
                file.create_dataset("trained", data=trained, compression=1)
            if info.axes and info.axes[0].samples is None:
                file.attrs["axis"] = json.dumps(info.axes[0].to_dict())
            ranges = [info.shown_range(signal) for signal in ([index] if names is None else range(len(names)))]
            file.create_dataset("range", data=ranges[0] if names is None else ranges)
        file.attrs["media"] = info.media
        if info.rate is not None:
            file.attrs["rate"] = info.rate


def _stored(shape: Sequence[int], frames: Sequence[int]) -> tuple[tuple[int, ...], Callable[[Array], npt.NDArray[Any]]]:
    """The shape of a signal ``(*grid, C)`` in a comparison, and the conversion of the signal or its frames."""
    if len(shape) == 2:
        return tuple(shape), lambda array: array
    channels = shape[-1] if shape[-1] <= 4 else 1
    stored = (len(frames), *shape[-3:-1], channels)
    return stored, lambda array: to_levels(array[..., :channels]).reshape(stored)


def compare_files(paths: Sequence[Path], truth: RawSignals, info: SignalInfo) -> None:
    """Writes the comparisons of reconstructions in NPY files with the file of the signals, block by block.

    Rows, pictures and frames that exceed :data:`MAX_STORED_BYTES` have none.
    """
    count, *frame = info.grid if info.num_axes == 3 else (1, *info.grid)
    size = 4 * info.num_signals * info.channels * math.prod(frame)
    if info.num_axes > 3 or size > MAX_STORED_BYTES:
        return
    frames = frames_of(count, min(MAX_STORED_FRAMES, MAX_STORED_BYTES // size))
    parts = [slice(n, n + 1) for n in frames] if info.num_axes == 3 else [slice(0, info.grid[0])]
    rest = [slice(0, n) for n in info.grid[1:]]
    values = np.concatenate([truth.read((part, *rest)) for part in parts], 1)
    for index, path in enumerate(paths):
        stored = np.load(path, mmap_mode="r")
        prediction = info.scaling.to_unit(np.concatenate([stored[part] for part in parts]), index)
        compared = {"truth": values[index], "reconstruction": prediction}
        write_comparison(path.with_name(f"{path.stem}_comparison.h5"), compared, info, frames)
