"""A reconstruction or prediction as a file: in the format of its medium, the range, dtype and rate of its source.

| Medium | Written as |
| --- | --- |
| image | PNG of 8 bits, of 16 if the source has 16; 1 to 4 channels: grey, grey + alpha, RGB, RGB + alpha |
| video | MP4 (H.264), or GIF where asked for; 1 channel (grey) or 3 (RGB) |
| audio | WAV in the source's dtype |
| array, and what its medium's format cannot hold | NPY in the source's dtype and range, or HDF5 where asked for |

Pictures show [0, 1] as black to white, clamped, not-a-number as black. A signal that was resized along its first axis
lasts as long as its source: its rate is the source's times the ratio of the sizes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from pe_lightning.callbacks.media import (
    GIF_MAX_RATE,
    WAV_DTYPES,
    WAV_MAX_BYTES,
    encode_gif,
    encode_mp4,
    encode_wav,
    require_h264,
    to_levels,
)
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.signals import Scaling
from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.runs import replacing

__all__ = ["Formats", "choose_format", "write_png", "write_signal"]

Formats: TypeAlias = Literal["auto", "png", "mp4", "gif", "wav", "npy", "h5"]
"""What a signal is written as; ``auto``: what suits its medium, else NPY."""

Array = npt.NDArray[np.float32]
AnyArray = npt.NDArray[Any]

DEFAULT_FRAME_RATE = 25
"""Frames per second of a source that has no rate."""
SLAB = 1 << 20
"""How many values are converted at a time."""

_NATURAL: dict[str, Formats] = {"image": "png", "video": "mp4", "audio": "wav", "array": "npy"}
_AXES = {"image": ("height", "width"), "video": ("time", "height", "width"), "audio": ("time",)}


def choose_format(
    shape: tuple[int, ...], info: SignalInfo | None = None, formats: Formats = "auto", rate: float | None = None
) -> Formats:
    """The format that :func:`write_signal` gives a signal; needs no values, so a wrong choice can be refused early.

    Args:
        shape: ``(*grid, C)`` of what will be written.
        info: What the source is; without it, two axes of 1 to 4 channels are an image and anything else an array.
        formats: What is asked for. ``auto`` becomes NPY if the medium's format cannot hold the signal.
        rate: Samples per second along the first axis, if not as in the source.

    Raises:
        InputError: If the format is unknown or cannot hold the signal, or MP4 is chosen and PyAV cannot encode it.
    """
    known = get_args(Formats)
    if formats not in known:
        meant = did_you_mean(str(formats), known)
        raise InputError(f"unknown output format {formats!r}{meant}; there are {', '.join(known)}")
    if info is not None and len(shape) != info.num_axes + 1:
        raise InputError(f"a signal of shape {shape} is not one of {info.num_axes} axes and channels")
    if formats == "auto":
        natural = _NATURAL[info.media if info is not None else "image" if _is_picture(shape) else "array"]
        chosen = "npy" if _obstacle(natural, shape, info, rate) else natural
    else:
        chosen = formats
        obstacle = _obstacle(chosen, shape, info, rate)
        if obstacle is not None:
            possible = [form for form in known if form == "auto" or _obstacle(form, shape, info, rate) is None]
            raise InputError(
                f"a signal of shape {'x'.join(map(str, shape))} (channels last) cannot be written as {formats}: "
                f"{obstacle}. Possible: {', '.join(possible)}"
            )
    if chosen == "mp4":
        require_h264()
    return chosen


def write_signal(
    path: Path,
    values: Array,
    info: SignalInfo | None = None,
    place: int = 0,
    formats: Formats = "auto",
    rate: float | None = None,
) -> Path:
    """Writes one signal atomically.

    Args:
        path: Where to, without a suffix.
        values: ``(*grid, C)``, what was [0, 1] in training.
        info: What the source is; without it NPY and HDF5 hold the values as they are.
        place: Which of the source's signals it is.
        formats: What it is written as.
        rate: Samples per second along the first axis; by default as in the source, times the ratio of the sizes.

    Returns:
        The path with its suffix.

    Raises:
        InputError: As :func:`choose_format`.
    """
    chosen = choose_format(values.shape, info, formats, rate)
    target = path.with_name(f"{path.name}.{chosen}")
    with replacing(target) as file:
        if chosen == "png":
            _encode_png(file, values, deep=info is not None and info.scaling.dtype == "uint16")
        elif chosen == "mp4":
            encode_mp4(file, values, _frame_rate(values.shape, info, rate))
        elif chosen == "gif":
            encode_gif(file, values, _frame_rate(values.shape, info, rate))
        elif chosen == "wav":
            speed, samples = round(_rate(values.shape, info, rate) or 0), (values.shape[0], values.shape[1])
            encode_wav(file, samples, _scaling(info).dtype, speed, _restored(values, info, place))
        elif chosen == "h5":
            _encode_h5(file, values, info, place, _rate(values.shape, info, rate))
        else:
            _encode_npy(file, values, info, place)
    return target


def write_png(path: Path, image: Image.Image) -> Path:
    """Writes an image atomically and returns its path."""
    with replacing(path) as file:
        image.save(file, "PNG")
    return path


# -- what a format can hold ------------------------------------------------------------------------------------------


def _is_picture(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and 1 <= shape[-1] <= 4


def _scaling(info: SignalInfo | None) -> Scaling:
    return info.scaling if info is not None else Scaling("float32")


def _ratio(shape: tuple[int, ...], info: SignalInfo | None) -> Fraction:
    return Fraction(shape[0], info.grid[0]) if info is not None else Fraction(1)


def _rate(shape: tuple[int, ...], info: SignalInfo | None, rate: float | None) -> Fraction | None:
    """Samples per second along the first axis of what is written; ``None`` if unknown."""
    given = rate if rate is not None or info is None else info.rate
    if given is None:
        return None
    if not (np.isfinite(given) and given > 0):
        raise InputError(f"a rate is a positive number of samples per second, got {given}")
    return Fraction(given) if rate is not None else Fraction(given) * _ratio(shape, info)


def _frame_rate(shape: tuple[int, ...], info: SignalInfo | None, rate: float | None) -> Fraction:
    return _rate(shape, info, rate) or DEFAULT_FRAME_RATE * _ratio(shape, info)


def _obstacle(form: Formats, shape: tuple[int, ...], info: SignalInfo | None, rate: float | None) -> str | None:
    """Why a format cannot hold a signal, if so."""
    axes, channels = len(shape) - 1, shape[-1]
    if form == "png" and not _is_picture(shape):
        return "PNG needs 2 axes and 1 to 4 channels"
    if form in ("mp4", "gif"):
        if axes != 3 or channels not in (1, 3):
            return f"{form.upper()} needs 3 axes (time, height, width) and 1 or 3 channels"
        frame_rate = _frame_rate(shape, info, rate)
        if form == "gif" and frame_rate > GIF_MAX_RATE:
            return f"GIF shows at most {GIF_MAX_RATE} frames per second, not {float(frame_rate):g}"
    return _wav_obstacle(shape, _scaling(info).dtype, _rate(shape, info, rate)) if form == "wav" else None


def _wav_obstacle(shape: tuple[int, ...], dtype: str, rate: Fraction | None) -> str | None:
    if len(shape) != 2:
        return "WAV needs 1 axis"
    if dtype not in WAV_DTYPES:
        return f"WAV holds {', '.join(WAV_DTYPES)}, not {dtype}"
    if rate is None:
        return "WAV needs a number of samples per second, and the source has none"
    frame_bytes = shape[1] * np.dtype(dtype).itemsize
    if frame_bytes >= 2**16 or frame_bytes * shape[0] > WAV_MAX_BYTES or not 1 <= round(rate) < 2**32 / frame_bytes:
        return "WAV holds at most 4 GiB, and as much a second"
    return None


# -- files --------------------------------------------------------------------------------------------------------------


def _slabs(values: Array) -> Iterator[slice]:
    """The first axis in parts of about :data:`SLAB` values."""
    rows = max(1, SLAB * len(values) // max(1, values.size))
    return (slice(start, start + rows) for start in range(0, len(values), rows))


def _restored(values: Array, info: SignalInfo | None, place: int) -> Iterator[AnyArray]:
    """The values in the source's range and dtype, part after part."""
    for part in _slabs(values):
        with np.errstate(over="ignore"):  # what has diverged beyond the dtype becomes infinite
            yield values[part] if info is None else info.scaling.restore(values[part], place)


def _encode_png(path: Path, values: Array, deep: bool) -> None:
    if not deep:
        levels = to_levels(values)
        Image.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels).save(path, "PNG")
        return
    import png  # Pillow writes no colour of 16 bits

    height, width, channels = values.shape
    writer = png.Writer(width, height, greyscale=channels < 3, alpha=channels in (2, 4), bitdepth=16)
    with path.open("wb") as file:
        writer.write_packed(file, (to_levels(row, np.uint16).astype(">u2").tobytes() for row in values))


def _encode_npy(path: Path, values: Array, info: SignalInfo | None, place: int) -> None:
    dtype = values.dtype if info is None else np.dtype(info.scaling.dtype)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": values.shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in _restored(values, info, place):
            file.write(part.tobytes())


def _encode_h5(path: Path, values: Array, info: SignalInfo | None, place: int, rate: Fraction | None) -> None:
    """A dataset ``values`` with attributes ``axes`` (names), ``rate`` (if known) and ``scaling`` (JSON, of this signal)."""
    import h5py

    dtype = values.dtype if info is None else np.dtype(info.scaling.dtype)
    low, high = _scaling(info).of(place)
    names = _AXES.get(info.media, ()) if info is not None else ()
    if len(names) != values.ndim - 1:
        names = tuple(f"axis{number}" for number in range(1, values.ndim))
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("values", shape=values.shape, dtype=dtype)
        for part, block in zip(_slabs(values), _restored(values, info, place), strict=True):
            dataset[part] = block
        dataset.attrs["axes"] = [*names, "channel"]
        dataset.attrs["scaling"] = json.dumps(Scaling(str(dtype), (low,), (high,)).to_dict())
        if rate is not None:
            dataset.attrs["rate"] = float(rate)
