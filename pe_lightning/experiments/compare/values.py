"""Reconstructions of rows and cubes as files of a run hold them, with the truth where they have it, read in parts.

``<stem>_comparison.h5`` has both. Where there is none, as the signals stayed in their file, ``<stem>.npy`` or ``.h5`` has
the values; the last resort is sound or video. What cannot be read raises :class:`ValueError` with the name of the file.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pe_lightning import runs
from pe_lightning.experiments.compare.shelf import Entry

__all__ = ["Source", "find", "find_all", "read_frames", "read_row", "read_trained"]

MEDIA = {1: (".npy", ".h5", ".wav"), 3: (".npy", ".h5", ".mp4", ".gif")}
LOOKED_AT = 16
"""In how many parts of an array its range is looked for."""

DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError, struct.error)
"""What readers of damaged files raise."""

AnyArray = npt.NDArray[Any]


@dataclass(frozen=True)
class Source:
    """A file with a reconstruction.

    Args:
        path: The file.
        grid: Samples per axis of the signal.
        channels: How many channels.
        frames: Of a cube, the numbers of the frames that are there.
        truth: Whether the truth is there too.
        bounds: Which of its numbers are 0 and 1 to the model.
        rate: Samples per second along the first axis, if known.
        media: What the signal is, if known.
        note: What one who looks at it should know.
    """

    path: Path
    grid: tuple[int, ...]
    channels: int
    frames: tuple[int, ...] = ()
    truth: bool = False
    bounds: tuple[float, float] = (0.0, 1.0)
    rate: float | None = None
    media: str = ""
    note: str = ""


def find(entry: Entry) -> Source:
    """The file to read a signal of one or three axes from."""
    folder = entry.run.path / runs.RECONSTRUCTIONS
    pair = folder / f"{entry.stem}_comparison.h5"
    others = [folder / f"{entry.stem}{suffix}" for suffix in MEDIA[len(entry.grid)]]
    path = next((path for path in (pair, *others) if path.is_file()), None)
    if path is None:
        raise ValueError(f"no {pair.name}")
    with _naming(path):
        if path == pair:
            return _find_pair(path, entry.grid)
        if path.suffix in (".mp4", ".gif"):
            note = f"from {path.name}, which is lossy"
            return Source(path, entry.grid, 3, tuple(range(entry.grid[0])), media="video", note=note)
        return _find_wav(path, entry.grid) if path.suffix == ".wav" else _find_array(path, entry.grid)


def find_all(entries: Sequence[Entry]) -> list[dict[Entry, Source | str]]:
    """For every signal, in the order of the entries, the file of each run that was fitted to it, or why there is none."""
    subjects: dict[object, dict[Entry, Source | str]] = {}
    for entry in entries:
        try:
            source: Source | str = find(entry)
        except ValueError as error:
            source = str(error)
        subjects.setdefault(entry.subject, {})[entry] = source
    return list(subjects.values())


def read_frames(source: Source, wanted: Sequence[int], truth: bool = False) -> Iterator[npt.NDArray[np.uint8]]:
    """Frames of a cube as pictures of 8 bits, ``(H, W, C)`` of 1 to 4 channels, one at a time.

    Args:
        source: Where from.
        wanted: Which of its frames, ascending.
        truth: Those of the truth rather than of the reconstruction.
    """
    with _naming(source.path):
        if source.path.suffix in (".mp4", ".gif"):
            yield from _decode(source, wanted)
            return
        with _open(source.path, "truth" if truth else "reconstruction") as values:
            for frame in wanted:
                found = values[source.frames.index(frame)]
                if not source.truth:
                    part = found if source.channels <= 4 else found[..., :1]
                    found = np.rint(255 * np.clip(np.nan_to_num(_to_unit(part, source)), 0, 1)).astype(np.uint8)
                yield found


def read_row(source: Source, truth: bool = False) -> npt.NDArray[np.float32]:
    """A row, ``(N, C)``, around [0, 1]; of the truth rather than of the reconstruction if asked for."""
    with _naming(source.path):
        if source.path.suffix == ".wav":
            return _to_unit(_read_wav(source.path)[1], source)
        with _open(source.path, "truth" if truth else "reconstruction") as values:
            return _to_unit(values[:], source)


def read_trained(source: Source) -> npt.NDArray[np.bool_] | None:
    """Which samples of a row were trained on, ``(N,)``, if that is known."""
    if not source.truth:
        return None
    import h5py

    with _naming(source.path), h5py.File(source.path) as file:
        trained = file.get("trained")
        return np.asarray(trained[()], dtype=bool) if trained is not None and trained.shape == source.grid else None


# -- what a file is -----------------------------------------------------------------------------------------------------


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turns :data:`DAMAGE` into an error that names the file."""
    try:
        yield
    except DAMAGE as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error


@contextmanager
def _open(path: Path, name: str) -> Iterator[Any]:
    """An array to be read by slices: memory-mapped, or a dataset: the only one called ``values``, or one of a pair."""
    if path.suffix == ".npy":
        yield np.load(path, mmap_mode="r")
        return
    import h5py

    with h5py.File(path) as file:
        yield file[name if path.name.endswith("_comparison.h5") else "values"]


def _find_pair(path: Path, grid: tuple[int, ...]) -> Source:
    import h5py

    with h5py.File(path) as file:
        truth, made = file["truth"], file["reconstruction"]
        frames: tuple[int, ...] = ()
        expected = grid
        if len(grid) == 3:
            frames = tuple(int(frame) for frame in file.attrs["frames"])
            expected = (len(frames), *grid[1:])
            if not frames or list(frames) != sorted(set(frames)) or not 0 <= frames[0] <= frames[-1] < grid[0]:
                raise ValueError(f"frames {list(frames)} are not some of {grid[0]}, in order")
        if made.shape[:-1] != expected or truth.shape != made.shape or made.shape[-1] < 1:
            shapes = f"a reconstruction of {_text(made.shape)} and a truth of {_text(truth.shape)}"
            raise ValueError(f"{shapes} are not those of {_text(grid)} samples")
        for values in (truth, made):
            if values.dtype.kind != "f" if not frames else values.dtype != np.uint8 or values.shape[-1] > 4:
                raise ValueError(f"{values.shape[-1]} channels of {values.dtype} are not what a run leaves")
        media = str(file.attrs.get("media", ""))
        return Source(path, grid, made.shape[-1], frames, True, rate=_rate(file.attrs.get("rate")), media=media)


def _find_array(path: Path, grid: tuple[int, ...]) -> Source:
    with _open(path, "values") as values:
        if values.shape[:-1] != grid or values.dtype.kind not in "iuf":
            raise ValueError(f"{values.dtype} of {_text(values.shape)} is not a signal of {_text(grid)} samples")
        attributes: Any = getattr(values, "attrs", {})
        rate, note = _rate(attributes.get("rate")), ""
        if "scaling" in attributes:
            scaling = json.loads(attributes["scaling"])
            bounds = float(scaling["low"][0]), float(scaling["high"][0])
        elif values.dtype.kind in "iu":
            bounds = float(np.iinfo(values.dtype).min), float(np.iinfo(values.dtype).max)
        else:
            bounds, note = _range(values), f"from {path.name}, whose range is not known"
        frames = tuple(range(grid[0])) if len(grid) == 3 else ()
        return Source(path, grid, values.shape[-1], frames, bounds=bounds, rate=rate, note=note)


def _find_wav(path: Path, grid: tuple[int, ...]) -> Source:
    rate, values = _read_wav(path)
    if values.shape[:-1] != grid:
        raise ValueError(f"{_text(values.shape)} is not a signal of {_text(grid)} samples")
    integer = values.dtype.kind in "iu"
    bounds = (float(np.iinfo(values.dtype).min), float(np.iinfo(values.dtype).max)) if integer else (-1.0, 1.0)
    note = f"from {path.name}, in whole steps and clipped" if integer else ""
    return Source(path, grid, values.shape[-1], bounds=bounds, rate=rate, media="audio", note=note)


def _read_wav(path: Path) -> tuple[float, AnyArray]:
    from scipy.io import wavfile

    rate, values = wavfile.read(path)
    return float(rate), values.reshape(len(values), -1)


def _decode(source: Source, wanted: Sequence[int]) -> Iterator[npt.NDArray[np.uint8]]:
    import av

    height, width = source.grid[1:]
    left = list(wanted)
    with av.open(str(source.path)) as container:
        for number, frame in enumerate(container.decode(video=0)):
            if not left:
                return
            if number == left[0]:
                left.pop(0)
                picture = frame.to_ndarray(format="rgb24")[:height, :width]  # an odd size is written with a copy of its edge
                if picture.shape != (height, width, 3):
                    raise ValueError(f"frames of {_text(picture.shape)} are not those of {_text(source.grid)} samples")
                yield picture
    if left:
        raise ValueError(f"it has no frame {left[0] + 1}")


def _range(values: Any) -> tuple[float, float]:
    """[0, 1] for what may be an overshoot of it, else the least and the greatest of evenly spaced parts."""
    step = max(1, len(values) // LOOKED_AT) if values.ndim == 4 else 1
    found = values[::step]
    finite = found[np.isfinite(found)].astype(np.float64)
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return (low, high) if low < high and (low < -0.5 or high > 1.5) else (0.0, 1.0)


def _to_unit(values: AnyArray, source: Source) -> npt.NDArray[np.float32]:
    low, high = source.bounds
    if (low, high) == (0, 1):
        return np.asarray(values, dtype=np.float32)
    unit: npt.NDArray[np.float32] = ((values.astype(np.float64) - low) / (high - low)).astype(np.float32)
    return unit


def _rate(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) and value > 0 else None


def _text(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
