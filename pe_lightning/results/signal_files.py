"""Signals as files, in the format of their medium, and the range, dtype and rate of their source.

| Medium | Written as |
| --- | --- |
| image | PNG of 8 bits, or 16 if the source has 16; 1 to 4 channels: grey, grey + alpha, RGB, RGB + alpha |
| video | MP4 (H.264); 1 channel (grey) or 3 (RGB) |
| audio | WAV in the source's dtype |
| array, and signals that the format of their medium cannot hold | NPY in the source's dtype and range, or HDF5 on request |

In pictures [0, 1] is black to white, clipped, and NaN is black. A signal resized along its first axis has the duration of
its source: its rate is multiplied by the ratio of the sizes.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import av
import h5py
import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame

from pe_lightning.errors import InputError
from pe_lightning.results.pictures import PNG_COMPRESSION, to_image, to_levels
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.blocks import row_blocks
from pe_lightning.signals.files import replacing
from pe_lightning.signals.raw import ValueRange
from pe_lightning.signals.sources.pictures import write_picture
from pe_lightning.signals.sources.sound import write_sound
from pe_lightning.signals.validation import choice

Formats: TypeAlias = Literal["auto", "png", "mp4", "wav", "npy", "h5"]
"""File formats; ``auto``: that of the medium, else NPY."""

Array = npt.NDArray[np.float32]

WAV_SUBTYPES = {"uint8": "PCM_U8", "int16": "PCM_16", "int32": "PCM_32", "float32": "FLOAT", "float64": "DOUBLE"}
FORMAT_OF_MEDIUM: dict[str, Formats] = {"image": "png", "video": "mp4", "audio": "wav", "array": "npy"}
AXES_OF_MEDIUM = {"image": ("height", "width"), "video": ("time", "height", "width"), "audio": ("time",)}


CHUNK_BYTES = 1 << 20
"""Largest chunk of an HDF5 dataset, in bytes: that of HDF5's cache."""


def choose_format(shape: tuple[int, ...], info: SignalInfo | None = None, formats: Formats = "auto") -> Formats:
    """The format in which :func:`write_signal` writes a signal; needs no values, so that errors are raised early.

    Args:
        shape: ``(*grid, C)`` of the signal.
        info: Shape and origin of the signals; without it, two axes are an image and anything else an array.
        formats: Requested format. ``auto`` becomes NPY if the format of the medium cannot hold the signal.
    """
    known = get_args(Formats)
    choice("output_format", formats, known)
    chosen = formats
    if formats == "auto":
        natural = FORMAT_OF_MEDIUM[info.media if info is not None else "image" if len(shape) == 3 else "array"]
        chosen = "npy" if _obstacle(natural, shape, info) else natural
    elif obstacle := _obstacle(formats, shape, info):
        possible = [form for form in known if form == "auto" or not _obstacle(form, shape, info)]
        raise InputError(
            f"a signal of shape {'x'.join(map(str, shape))} (channels last) cannot be written as {formats}: "
            f"{obstacle}. Possible: {', '.join(possible)}"
        )
    if chosen == "mp4" and "libx264" not in av.codecs_available:
        raise InputError(
            f"MP4 needs the H.264 encoder libx264, which the installed PyAV {av.__version__} lacks: use npy, or "
            "pip install --force-reinstall --only-binary av av"
        )
    return chosen


def write_signal(
    path: Path, values: Array, info: SignalInfo | None = None, index: int = 0, formats: Formats = "auto"
) -> Path:
    """Writes one signal atomically, and returns the path with its suffix.

    Args:
        path: Path without a suffix.
        values: ``(*grid, C)``, nominally in [0, 1].
        info: Shape and origin of the signals; without it NPY and HDF5 hold the unscaled values.
        index: Index of the signal.
        formats: Requested format.
    """
    chosen = choose_format(values.shape, info, formats)
    target = path.with_name(f"{path.name}.{chosen}")
    scaling = info.scaling if info is not None else ValueRange("float32")
    rate = _rate(values.shape, info)
    with replacing(target) as file:
        if chosen == "png":
            if scaling.dtype == "uint16":
                write_picture(file, to_levels(values, np.uint16), {})
            else:
                to_image(values).save(file, "PNG", compress_level=PNG_COMPRESSION)
        elif chosen == "mp4":
            usual = Fraction(25) if info is None else 25 * Fraction(values.shape[0], info.grid[0])
            _write_mp4(file, values, rate or usual)
        elif chosen == "wav":
            write_sound(file, scaling.restore(values, index), round(rate or 0), WAV_SUBTYPES[scaling.dtype])
        elif chosen == "npy":
            array = new_array(file, scaling.dtype, values.shape)
            _restore_into(array, values, scaling, index)
            array.flush()
        else:
            _write_h5(file, values, info, scaling, index, rate)
    return target


def _rate(shape: tuple[int, ...], info: SignalInfo | None) -> Fraction | None:
    return Fraction(info.rate) * Fraction(shape[0], info.grid[0]) if info is not None and info.rate is not None else None


def _obstacle(form: Formats, shape: tuple[int, ...], info: SignalInfo | None) -> str | None:
    """The reason why a format cannot hold a signal; ``None`` if it can."""
    axes, channels = len(shape) - 1, shape[-1]
    if form == "png" and not (axes == 2 and 1 <= channels <= 4):
        return "PNG needs 2 axes and 1 to 4 channels"
    if form == "mp4" and not (axes == 3 and channels in (1, 3)):
        return "MP4 needs 3 axes (time, height, width) and 1 or 3 channels"
    if form == "wav":
        dtype, samples_per_second = info.scaling.dtype if info is not None else "float32", _rate(shape, info)
        size = shape[0] * channels * np.dtype(dtype).itemsize
        fits = axes == 1 and channels <= 1024 and dtype in WAV_SUBTYPES and size < 2**32 - 64
        if not fits or samples_per_second is None or not 1 <= round(samples_per_second) < 2**31:
            return (
                f"WAV needs 1 axis, at most 1024 channels and 4 GiB, 1 to 2^31 samples per second (of the source: "
                f"{'none' if samples_per_second is None else f'{float(samples_per_second):g}'}), and one of the dtypes "
                f"{', '.join(WAV_SUBTYPES)}, not {dtype}"
            )
    return None


def _restore_into(target: Any, values: Array, scaling: ValueRange, index: int) -> None:
    for rows in row_blocks(values.shape):
        with np.errstate(over="ignore"):  # values beyond the dtype become infinite
            target[rows] = scaling.restore(values[rows], index)


def _write_mp4(path: Path, values: Array, rate: Fraction) -> None:
    """H.264 for common players: yuv420p and BT.709. The last row or column of an odd size is repeated."""
    rate = rate.limit_denominator(
        max(1, int(2**30 / max(float(rate), 1.0)))
    )  # MP4 stores numerator and denominator in 32 bits
    height, width = values.shape[1:3]
    padding = ((0, height % 2), (0, width % 2), (0, 0))
    options = {"movflags": "faststart", "movie_timescale": str(rate.numerator)}  # in milliseconds the end would be truncated
    with av.open(str(path), "w", format="mp4", options=options) as container:
        # 17 to 18 is considered visually lossless, 0 is lossless
        stream = container.add_stream("libx264", rate=rate, options={"crf": "15"})
        stream.height, stream.width, stream.pix_fmt = height + height % 2, width + width % 2, "yuv420p"
        context = stream.codec_context
        context.colorspace = context.color_primaries = 1  # ITU-T H.273: BT.709, sRGB, limited range
        context.color_trc, context.color_range = 13, 1
        for number, values_of_frame in enumerate(values):
            levels = np.pad(to_levels(values_of_frame), padding, mode="edge")
            frame = VideoFrame.from_ndarray(np.broadcast_to(levels, (*levels.shape[:2], 3)).copy(), format="rgb24")
            frame = frame.reformat(format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG")
            frame.pts, frame.time_base = number, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def new_array(path: Path, dtype: str, shape: Sequence[int]) -> np.memmap[Any, np.dtype[Any]]:
    """Creates an NPY file as a memory map. Its space is reserved, as writing to a full disk would kill the process."""
    array: np.memmap[Any, np.dtype[Any]] = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), tuple(shape))
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _write_h5(
    path: Path, values: Array, info: SignalInfo | None, scaling: ValueRange, index: int, rate: Fraction | None
) -> None:
    """A dataset ``values`` with attributes ``axes`` (names), ``rate`` (if known) and ``scaling`` (JSON, of this signal)."""
    low, high = scaling.of(index)
    content = io.BytesIO()  # HDF5 cannot close a file whose disk is full
    with h5py.File(content, "w") as file:
        dataset = file.create_dataset("values", shape=values.shape, dtype=scaling.dtype)
        _restore_into(dataset, values, scaling, index)
        _describe(dataset, axis_names(values.ndim - 1, info), ValueRange(scaling.dtype, (low,), (high,)), rate)
    path.write_bytes(content.getbuffer())


def axis_names(num_axes: int, info: SignalInfo | None) -> tuple[str, ...]:
    """Names of the axes of a signal and of its channels, such as ``("height", "width", "channel")``."""
    names = AXES_OF_MEDIUM.get(info.media, ()) if info is not None else ()
    if len(names) != num_axes:
        names = tuple(f"axis{number}" for number in range(1, num_axes + 1))
    return (*names, "channel")


def _describe(dataset: h5py.Dataset, axes: Sequence[str], scaling: ValueRange, rate: Fraction | None) -> None:
    dataset.attrs["axes"] = list(axes)
    dataset.attrs["scaling"] = json.dumps(scaling.to_dict())
    if rate is not None:
        dataset.attrs["rate"] = float(rate)


def add_signals(file: h5py.File, values: Array, names: Sequence[str], info: SignalInfo | None = None) -> None:
    """Adds the datasets ``values`` ``(S, *grid, C)``, in dtype and range of the source, and ``names`` ``(S,)``.

    The attributes of ``values`` are those of a file of one signal, with the axis ``signal`` before the others.
    """
    scaling = info.scaling if info is not None else ValueRange("float32")
    dataset = new_dataset(file, "values", values.shape, scaling.dtype)
    step = dataset.chunks[0]
    for start in range(0, len(values), step):
        with np.errstate(over="ignore"):  # values beyond the dtype become infinite
            block = [scaling.restore(signal, start + place) for place, signal in enumerate(values[start : start + step])]
        dataset[start : start + step] = np.stack(block)
    _describe(dataset, ("signal", *axis_names(values.ndim - 2, info)), scaling, _rate(values.shape[1:], info))
    # file names need not be UTF-8
    file.create_dataset("names", data=[name.encode(errors="surrogateescape") for name in names], dtype=h5py.string_dtype())


def new_dataset(file: h5py.File, name: str, shape: Sequence[int], dtype: npt.DTypeLike) -> h5py.Dataset:
    """Creates a compressed dataset in chunks of at most :data:`CHUNK_BYTES`, of whole signals or frames if they fit."""
    chunks = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        chunks[axis] = max(1, min(shape[axis], CHUNK_BYTES // (math.prod(chunks) * np.dtype(dtype).itemsize)))
        if chunks[axis] < shape[axis]:
            break
    return file.create_dataset(name, shape=shape, dtype=dtype, chunks=tuple(chunks), shuffle=True, compression=1)
