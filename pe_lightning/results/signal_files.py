"""Signals as files, in the format of their medium, and the range, dtype and rate of their source.

| Medium | Written as |
| --- | --- |
| image | PNG of 8 bits, or 16 if the source has 16; 1 to 4 channels: grey, grey + alpha, RGB, RGB + alpha |
| video | MP4 (H.264); 1 channel (grey) or 3 (RGB) |
| audio | WAV in the source's dtype |
| array, and signals that the format of their medium cannot hold | NPY in the source's dtype and range, or HDF5 on request |

In pictures [0, 1] is black to white, clipped, and NaN is black. A signal resized along its first axis keeps its duration.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import av
import h5py
import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame

from pe_lightning.errors import InputError
from pe_lightning.registry import Registry
from pe_lightning.results.output import Output
from pe_lightning.results.pictures import PNG_COMPRESSION, to_image, to_levels
from pe_lightning.results.runs import file_names
from pe_lightning.signals.axes import Axis
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.signals.blocks import row_blocks
from pe_lightning.signals.files import replacing
from pe_lightning.signals.raw import ValueRange
from pe_lightning.signals.sources.pictures import deep_png
from pe_lightning.signals.sources.sound import write_sound
from pe_lightning.signals.validation import choice

Array = npt.NDArray[np.float32]
Batch: TypeAlias = GridBatch | PointBatch

WAV_SUBTYPES = {"uint8": "PCM_U8", "int16": "PCM_16", "int32": "PCM_32", "float32": "FLOAT", "float64": "DOUBLE"}
CHUNK_BYTES = 1 << 20
"""Largest chunk of an HDF5 dataset: the size of HDF5's cache."""


class Medium:
    """Writes signals of one medium; the base class writes arrays, NPY.

    Another package registers a subclass in the entry-point group ``pe_lightning.media``, under the name that its source
    gives as ``RawSignals.media``.
    """

    suffix: ClassVar[str] = "npy"
    """Suffix of its files, without the dot."""
    axes: ClassVar[tuple[str, ...]] = ()
    """Names of the axes of a signal, if they are known."""

    def obstacle(self, shape: tuple[int, ...], info: SignalInfo) -> str | None:
        """The reason why a signal ``(*grid, C)`` becomes NPY; ``None`` if this medium can hold it."""
        return None

    def write(self, file: Path, values: Array, info: SignalInfo, index: int) -> None:
        """Writes a signal to a file.

        Args:
            file: The file, of any name.
            values: ``(*grid, C)``, nominally in [0, 1].
            info: Shape and origin of the signals.
            index: Index of the signal.
        """
        array = new_array(file, info.scaling.dtype, values.shape)
        _restore_into(array, values, info.scaling, index)
        array.flush()

    def places(self, path: str, axes: Sequence[Axis]) -> npt.NDArray[np.float64]:
        """Coordinates of a file of places in [0, 1), ``(P, D)``, NaN where one is missing."""
        raise InputError("at needs a model of scattered points, whose coordinates have names and units")

    def predict(
        self, folder: Path, values: Array, info: SignalInfo, output: Output | None = None, std: Array | None = None
    ) -> list[Path]:
        """Writes a prediction below the folder of the run, and returns the files.

        Args:
            folder: The folder of the run.
            values: ``(S, n_1, ..., n_D, C)``, or at places ``(S, P, 1)``, nominally in [0, 1].
            info: Shape and origin of the signals.
            output: The samples and their format; ``None``: samples of a grid, in the format of the medium.
            std: Standard deviations of scattered points, same shape as ``values``.
        """
        formats = "auto" if output is None else output.output_format
        inside = folder / "x".join(map(str, values.shape[1:-1]))
        signals = zip(file_names(info.names), values, strict=True)
        return [write_signal(inside / stem, signal, info, n, formats) for n, (stem, signal) in enumerate(signals)]

    def pictures(
        self, folder: Path, metrics: Mapping[str, Any], prediction: Array, batch: Batch, info: SignalInfo, draw: bool
    ) -> list[str] | None:
        """Writes the files of a test beside the truth, and returns the pictures among them.

        ``None``, the default, leaves it to :func:`~pe_lightning.results.reconstructions.write_reconstructions`.

        Args:
            folder: The folder of the reconstructions.
            metrics: Content of ``metrics.json``.
            prediction: ``(S, *grid, C)``, or at points ``(S, P, C)``, nominally in [0, 1].
            batch: The truth, with masks.
            info: Shape and origin of the signals.
            draw: Whether to draw pictures.
        """
        return None


media: Registry[Medium] = Registry("medium", Medium, "pe_lightning.media")
"""Media by the name that :attr:`SignalInfo.media` has."""
media.register("array")(Medium)


@media.register("image")
class ImageMedium(Medium):
    """Pictures: PNG of 8 bits, or of 16 if the source has 16."""

    suffix = "png"
    axes = ("height", "width")

    def obstacle(self, shape: tuple[int, ...], info: SignalInfo) -> str | None:
        return None if len(shape) == 3 and 1 <= shape[-1] <= 4 else "PNG needs 2 axes and 1 to 4 channels"

    def write(self, file: Path, values: Array, info: SignalInfo, index: int) -> None:
        if info.scaling.dtype == "uint16":
            file.write_bytes(deep_png(to_levels(values, np.uint16)))
        else:
            to_image(values).save(file, "PNG", compress_level=PNG_COMPRESSION)


@media.register("video")
class VideoMedium(Medium):
    """Videos: MP4, 25 frames per second if the rate is unknown."""

    suffix = "mp4"
    axes = ("time", "height", "width")

    def obstacle(self, shape: tuple[int, ...], info: SignalInfo) -> str | None:
        possible = len(shape) == 4 and shape[-1] in (1, 3)
        return None if possible else "MP4 needs 3 axes (time, height, width) and 1 or 3 channels"

    def write(self, file: Path, values: Array, info: SignalInfo, index: int) -> None:
        _write_mp4(file, values, _rate(values.shape, info) or 25 * Fraction(values.shape[0], info.grid[0]))


@media.register("audio")
class AudioMedium(Medium):
    """Sound: WAV in the source's dtype."""

    suffix = "wav"
    axes = ("time",)

    def obstacle(self, shape: tuple[int, ...], info: SignalInfo) -> str | None:
        axes, channels = len(shape) - 1, shape[-1]
        dtype, samples_per_second = info.scaling.dtype, _rate(shape, info)
        size = shape[0] * channels * np.dtype(dtype).itemsize
        fits = axes == 1 and channels <= 1024 and dtype in WAV_SUBTYPES and size < 2**32 - 64
        if fits and samples_per_second is not None and 1 <= round(samples_per_second) < 2**31:
            return None
        return (
            f"WAV needs 1 axis, at most 1024 channels and 4 GiB, 1 to 2^31 samples per second (of the source: "
            f"{'none' if samples_per_second is None else f'{float(samples_per_second):g}'}), and one of the dtypes "
            f"{', '.join(WAV_SUBTYPES)}, not {dtype}"
        )

    def write(self, file: Path, values: Array, info: SignalInfo, index: int) -> None:
        rate = round(_rate(values.shape, info) or 0)
        write_sound(file, info.scaling.restore(values, index), rate, WAV_SUBTYPES[info.scaling.dtype])


class HDF5(Medium):
    """HDF5, on request."""

    suffix = "h5"

    def write(self, file: Path, values: Array, info: SignalInfo, index: int) -> None:
        """Writes a dataset ``values`` with the attributes ``axes`` (names), ``rate`` (if known) and ``scaling`` (JSON)."""
        low, high = info.scaling.limits(index)
        limits = ValueRange(info.scaling.dtype, (low,), (high,))
        with new_hdf5(file.write_bytes) as opened:
            dataset = opened.create_dataset("values", shape=values.shape, dtype=limits.dtype)
            _restore_into(dataset, values, limits, 0)
            _describe(dataset, axis_names(values.ndim - 1, info), limits, _rate(values.shape, info))


WRITERS = {medium.suffix: medium() for medium in (ImageMedium, VideoMedium, AudioMedium, Medium, HDF5)}


def choose_medium(shape: tuple[int, ...], info: SignalInfo, formats: str = "auto") -> Medium:
    """The medium that writes a signal ``(*grid, C)``, by a suffix or ``auto``: its own if that can hold it, else NPY."""
    choice("output_format", formats, ("auto", *WRITERS))
    chosen = media.create(info.media) if formats == "auto" else WRITERS[formats]
    if obstacle := chosen.obstacle(shape, info):
        if formats == "auto":
            return Medium()
        possible = ["auto", *(form for form, writer in WRITERS.items() if not writer.obstacle(shape, info))]
        raise InputError(
            f"a signal of shape {'x'.join(map(str, shape))} (channels last) cannot be written as {formats}: "
            f"{obstacle}. Possible: {', '.join(possible)}"
        )
    if chosen.suffix == "mp4" and "libx264" not in av.codecs_available:
        raise InputError(
            f"MP4 needs the H.264 encoder libx264, which the installed PyAV {av.__version__} lacks: use npy, or "
            "pip install --force-reinstall --only-binary av av"
        )
    return chosen


def write_signal(path: Path, values: Array, info: SignalInfo, index: int = 0, formats: str = "auto") -> Path:
    """Writes one signal ``(*grid, C)``, nominally in [0, 1], atomically, and returns the path with the suffix added."""
    medium = choose_medium(values.shape, info, formats)
    target = path.with_name(f"{path.name}.{medium.suffix}")
    with replacing(target) as file:
        medium.write(file, values, info, index)
    return target


def _rate(shape: tuple[int, ...], info: SignalInfo) -> Fraction | None:
    return None if info.rate is None else Fraction(info.rate) * Fraction(shape[0], info.grid[0])


def _restore_into(target: Any, values: Array, scaling: ValueRange, index: int) -> None:
    for rows in row_blocks(values.shape):
        with np.errstate(over="ignore"):  # values beyond the dtype become infinite
            target[rows] = scaling.restore(values[rows], index)


def _write_mp4(path: Path, values: Array, rate: Fraction) -> None:
    """H.264 for common players: yuv420p and BT.709. The last row or column of an odd size is repeated."""
    # MP4 stores numerator and denominator in 32 bits
    rate = rate.limit_denominator(max(1, int(2**30 / max(float(rate), 1.0))))
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


@contextmanager
def new_hdf5(write: Callable[[bytes], object]) -> Iterator[h5py.File]:
    """An HDF5 file whose content ``write`` gets at the end: HDF5 cannot close a file whose disk is full."""
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        yield file
    write(content.getvalue())


def new_array(path: Path, dtype: str, shape: Sequence[int]) -> np.memmap[Any, np.dtype[Any]]:
    """Creates an NPY file as a memory map; reserves its space, as writing to a full disk would kill the process."""
    array: np.memmap[Any, np.dtype[Any]] = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), tuple(shape))
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def axis_names(num_axes: int, info: SignalInfo) -> tuple[str, ...]:
    """Names of the axes of a signal and of its channels, such as ``("height", "width", "channel")``."""
    names = media.get(info.media).axes
    return (*(names if len(names) == num_axes else (f"axis{n + 1}" for n in range(num_axes))), "channel")


def _describe(dataset: h5py.Dataset, axes: Sequence[str], scaling: ValueRange, rate: Fraction | None) -> None:
    dataset.attrs["axes"] = list(axes)
    dataset.attrs["scaling"] = json.dumps(scaling.to_dict())
    if rate is not None:
        dataset.attrs["rate"] = float(rate)


def add_signals(file: h5py.File, values: Array, names: Sequence[str], info: SignalInfo) -> None:
    """Adds the datasets ``values`` ``(S, *grid, C)``, in dtype and range of the source, and ``names`` ``(S,)``.

    ``values`` has the attributes of :class:`HDF5`, and the first axis ``signal``.
    """
    dataset = new_dataset(file, "values", values.shape, info.scaling.dtype)
    for start in range(0, len(values), step := dataset.chunks[0]):
        with np.errstate(over="ignore"):  # values beyond the dtype become infinite
            block = [info.scaling.restore(signal, start + n) for n, signal in enumerate(values[start : start + step])]
        dataset[start : start + step] = np.stack(block)
    _describe(dataset, ("signal", *axis_names(values.ndim - 2, info)), info.scaling, _rate(values.shape[1:], info))
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
