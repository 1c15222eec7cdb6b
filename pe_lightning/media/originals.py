"""Files whose missing values can be replaced: their signals in the dtype of the file, and a writer of changed copies.

:data:`ORIGINALS` holds one reader per format. A reader returns an :class:`Original`, whose ``write`` keeps the format,
dtype, range and metadata of the file.
"""

from __future__ import annotations

import io
import math
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import png
from numpy.typing import NDArray
from PIL import Image

from pe_lightning.checks import free_memory
from pe_lightning.data.axes import Axis
from pe_lightning.data.signals import AnyArray
from pe_lightning.data.sources.arrays import declared_fills, find_array
from pe_lightning.data.sources.kinds import describe_layouts, plausible_layouts
from pe_lightning.data.sources.missing import Missing
from pe_lightning.data.sources.paths import PICTURES, SourceFile, format_of, reading, visible_files
from pe_lightning.data.sources.pictures import decode_image
from pe_lightning.data.sources.tables import layout_of
from pe_lightning.data.sources.tables import read_table as read_columns
from pe_lightning.data.sources.video_files import read_stored_frames
from pe_lightning.errors import InputError, show_bytes
from pe_lightning.media.lossless import lossless_suffixes, write_lossless

__all__ = ["ORIGINALS", "Original", "check_fit_memory", "read_original", "signals_of"]

Mask = NDArray[np.bool_]
Reader = Callable[[SourceFile, Missing, int | None], "Original"]

PIXEL_CHUNKS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"sBIT", b"hIST", b"bKGD", b"tIME"})
"""Chunks of a PNG file that depend on its pixels or on how they are stored; the others are copied."""
LOSSLESS_PICTURES = (".png",)
TIFF_TAGS = (270, 282, 283, 296, 305, 306, 315, 33432, 34675, 33550, 33922, 34264, 34735, 34736, 34737, 42112)
"""Tags of a TIFF file that are copied: description, resolution, software, date, artist, copyright, ICC profile, GeoTIFF."""
SOUND_SUBTYPES = ("PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")
NODATA_TAG = 42113  # GDAL_NODATA
ADAPTIVE_SAMPLE_BYTES = 600
"""Memory that the adaptive fit takes for each known sample where others are missing."""


@dataclass(frozen=True)
class Original:
    """The signals of a file, with the values that it stores.

    Args:
        names: One name per signal.
        values: ``(S, N_1, ..., N_D, C)`` in the dtype of the file.
        missing: Where a value is missing, of the same shape.
        suffixes: Suffixes of the files that :attr:`write` writes, the first by default.
        write: ``write(path, values)`` writes a copy of the file with other values of the same shape, or of more samples
            per axis where ``resizes``.
        media: Medium for pictures beside the result: ``image``, ``video``, ``audio`` or ``array``.
        resizes: Whether ``write`` takes values of another number of samples.
        axes: The axes in the user's units, if the file has coordinates.
    """

    names: tuple[str, ...]
    values: AnyArray
    missing: Mask
    suffixes: tuple[str, ...]
    write: Callable[[Path, AnyArray], None]
    media: str = "array"
    resizes: bool = False
    axes: tuple[Axis, ...] = ()


def read_original(file: SourceFile, missing: Missing, axes: int | None = None) -> Original:
    """The signals of a file, with its missing values.

    Args:
        file: The file.
        missing: What marks them.
        axes: Number of axes of a signal, where the shape of an array does not say it.

    Raises:
        InputError: If the format has no reader, the file cannot be read, or the mask does not fit.
    """
    form = "frames" if file.path.is_dir() else format_of(file.path)
    reader = ORIGINALS.get(str(form))
    if reader is None:
        raise InputError(f"fill cannot write files as {file.given!r}; it fills {', '.join(sorted(ORIGINALS))}")
    found = reader(file, missing, axes)
    if missing.kind in ("mask", "frames"):  # beside what the reader marked
        masks = missing.marks(found.values.shape[1:-1], len(found.values))
        for signal, marked in enumerate(found.missing):
            marked |= masks[signal if len(masks) > 1 else 0][..., None]
    return found


def check_fit_memory(known: int) -> None:
    """Refuses more known samples than the adaptive fit holds in the free memory.

    Raises:
        InputError: If they are too many.
    """
    needed, free = known * ADAPTIVE_SAMPLE_BYTES, free_memory()
    if needed > free:
        raise InputError(
            f"the adaptive fit of {known:,} known samples takes about {show_bytes(needed)}, and {show_bytes(free)} are "
            "free: fill a part of the file, such as a crop or the frames around those that are lost"
        )


def signals_of(values: AnyArray, label: str, axes: int | None = None) -> AnyArray:
    """An array as signals ``(S, N_1, ..., N_D, C)``, a view.

    Args:
        values: Of any shape that has one plausible reading, or that ``axes`` makes clear: ``(N_1, ..., N_D)`` is one signal,
            with a last axis of at most 4 its channels, with a longer one a first axis that counts signals.
        label: What messages call it.
        axes: Number of axes of a signal.

    Raises:
        InputError: If the reading is not clear.
    """
    layouts = [each for each in plausible_layouts(values.shape) if axes in (None, len(each.grid))]
    if not layouts and axes is not None and values.ndim == axes + 2:
        return values
    if len(layouts) != 1:
        raise InputError(f"{describe_layouts(label, values.shape)}; say how many axes a signal has, axes=2 or --axes 2")
    return values.reshape(layouts[0].shape)


def _in_shape(values: AnyArray, shape: Sequence[int], signals: Sequence[int]) -> AnyArray:
    """Signals ``(S, N_1, ..., N_D, C)``, of any number of samples, in the axes of the array that they come from.

    Args:
        values: The signals.
        shape: Shape of the array.
        signals: Shape of its signals.
    """
    axes = len(signals) - 2
    channels = [] if tuple(shape[len(shape) - axes :]) == tuple(signals[1:-1]) else [values.shape[-1]]
    return values.reshape(*shape[: len(shape) - axes - len(channels)], *values.shape[1:-1], *channels)


def _mark(values: AnyArray, missing: Missing, fills: Iterable[float] = ()) -> Mask:
    """Values that are not finite, or equal to a fill value."""
    marked = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    for fill in [*fills, *([] if missing.value is None else [missing.value])]:
        marked |= values == fill
    return marked


# -- pictures -----------------------------------------------------------------------------------------------------------


def read_picture(file: SourceFile, missing: Missing, axes: int | None) -> Original:
    """A picture of 8 or 16 bits; written as PNG. Opacity is copied, and full at samples that alpha marked."""
    image = decode_image(file)
    if image.dtype.kind == "f":
        raise InputError(
            f"fill writes pictures of 8 or 16 bits, and {file.given!r} has another number; save it as TIFF or .npy"
        )
    opacity = image[..., -1:] if image.shape[-1] in (2, 4) else None
    marked: Mask = np.asarray(np.isnan(missing.in_picture(image, file.given)).any(-1))
    colours = image if opacity is None else image[..., :-1]
    with reading(file.given), Image.open(file.path) as opened:
        kept = {key: opened.info[key] for key in ("icc_profile", "dpi") if opened.info.get(key)}
        chunks: list[tuple[bytes, bytes]] = []
        if opened.format == "PNG":
            with file.path.open("rb") as stream:
                chunks = [(bytes(kind), bytes(data)) for kind, data in png.Reader(file=stream).chunks()]

    def write(path: Path, values: AnyArray) -> None:
        pixels = values[0]
        if opacity is not None and pixels.shape[:2] == opacity.shape[:2]:
            alpha = np.where(marked[..., None], np.iinfo(image.dtype).max, opacity) if missing.kind == "alpha" else opacity
            pixels = np.concatenate([pixels, alpha.astype(image.dtype)], -1)
        content = _png_bytes(pixels, kept)
        path.write_bytes(_with_chunks(content, chunks) if chunks else content)

    names, shape = (file.stem,), colours.shape
    return Original(
        names,
        np.ascontiguousarray(colours)[None],
        np.broadcast_to(marked[..., None], shape).copy()[None],
        LOSSLESS_PICTURES,
        write,
        "image",
        resizes=opacity is None or bool((opacity == opacity.max()).all()) or missing.kind == "alpha",
    )


def _png_bytes(pixels: AnyArray, kept: dict[str, Any]) -> bytes:
    """A PNG file of ``(H, W, C)`` uint8 or uint16."""
    buffer, (height, width, channels) = io.BytesIO(), pixels.shape
    if pixels.dtype == np.uint8:
        Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(buffer, "PNG", **kept)
    else:  # Pillow does not write 16-bit colour
        writer = png.Writer(width, height, greyscale=channels < 3, alpha=channels in (2, 4), bitdepth=16)
        writer.write_packed(buffer, (np.ascontiguousarray(row.astype(">u2")).tobytes() for row in pixels))
    return buffer.getvalue()


def _with_chunks(content: bytes, chunks: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A PNG file with the metadata of another: its chunks that do not depend on the pixels, before the first of these."""
    own = [(bytes(kind), bytes(data)) for kind, data in png.Reader(bytes=content).chunks()]
    pixels = [(kind, data) for kind, data in own if kind in (b"IHDR", b"IDAT", b"IEND")]
    copied = [(kind, data) for kind, data in chunks if kind not in PIXEL_CHUNKS]
    copied = [(kind, _upright(data) if kind == b"eXIf" else data) for kind, data in copied]
    buffer = io.BytesIO()
    png.write_chunks(buffer, [pixels[0], *copied, *pixels[1:]])
    return buffer.getvalue()


def _upright(data: bytes) -> bytes:
    """EXIF data without an orientation, which is applied to the pixels."""
    exif = Image.Exif()
    exif.load(data)
    if exif.get(274, 1) == 1:
        return data
    exif[274] = 1
    return exif.tobytes().removeprefix(b"Exif\0\0")


def read_tiff(file: SourceFile, missing: Missing, axes: int | None) -> Original:
    """A TIFF picture or stack of integers or floating point, with its declared fill value (GDAL_NODATA)."""
    import tifffile

    missing.check("TIFF files", "alpha", "colour")
    with reading(file.given), tifffile.TiffFile(file.path) as tiff:
        series, page = tiff.series[0], tiff.pages[0]
        array, planar = series.asarray(), page.planarconfig
        tags = [tag for tag in page.tags.values() if tag.code in TIFF_TAGS]
        nodata = page.tags.valueof(NODATA_TAG)
        options = {
            "photometric": page.photometric,
            "compression": page.compression if page.compression in (1, 8, 32946, 5, 32773, 34925, 50000) else None,
            "planarconfig": planar if page.samplesperpixel > 1 else None,
            "extrasamples": page.extrasamples or None,
        }
        extra = [
            (tag.code, tag.dtype, tag.count, tag.value, True) for tag in tags if tag.code not in (270, 282, 283, 296, 305)
        ]
        description, software = page.description or None, page.software or None
        resolution = (page.tags.valueof(282), page.tags.valueof(283)) if 282 in page.tags else None
        separate, shaped = page.samplesperpixel > 1 and series.axes.startswith("S"), tiff.is_shaped
    if array.dtype.kind not in "iuf":
        raise InputError(f"{file.given!r} holds {array.dtype} values; fill takes integers and floating point")
    view = np.moveaxis(array, 0, -1) if separate else array
    signals = signals_of(view, repr(file.given), axes)
    try:
        fills = [] if nodata is None else [float(str(nodata).strip("\0 "))]
    except ValueError:
        fills = []
    marked = _mark(signals, missing, fills)
    channels = signals.shape[-1]
    opacity = bool(page.extrasamples) and channels in (2, 4) and signals.ndim == 4
    if missing.kind in ("alpha", "colour"):
        marked |= np.stack([np.isnan(missing.in_picture(image, file.given)).any(-1, keepdims=True) for image in signals])
    if opacity and missing.kind != "alpha":
        marked[..., -1] = False

    def write(path: Path, values: AnyArray) -> None:
        result = _in_shape(values, view.shape, signals.shape)
        result = np.moveaxis(result, -1, 0) if separate else result
        given = {name: value for name, value in options.items() if value is not None}
        metadata: dict[str, Any] | None = {} if shaped else None
        tifffile.imwrite(
            path,
            np.ascontiguousarray(result),
            description=description,
            software=software or False,
            resolution=resolution,
            metadata=metadata,
            extratags=extra,
            **given,
        )

    media = "image" if signals.ndim == 4 and len(signals) == 1 else "array"
    return Original(_names(file, len(signals)), signals, marked, (".tif", ".tiff"), write, media, resizes=media == "image")


def _names(file: SourceFile, count: int) -> tuple[str, ...]:
    return (file.stem,) if count == 1 else tuple(f"{file.stem}-{number}" for number in range(count))


# -- arrays -------------------------------------------------------------------------------------------------------------


def read_npy(file: SourceFile, missing: Missing, axes: int | None) -> Original:
    """A ``.npy`` file."""
    missing.check("arrays")
    found = find_array(file)
    array = found.load()
    signals = signals_of(array, found.label, axes)

    def write(path: Path, values: AnyArray) -> None:
        with path.open("wb") as stream:
            np.save(stream, _in_shape(values, array.shape, signals.shape))

    return Original(_names(file, len(signals)), signals, _mark(signals, missing), (".npy",), write, resizes=True)


def read_hdf5(file: SourceFile, missing: Missing, axes: int | None) -> Original:
    """An HDF5 file with one dataset; a copy of the file with other values in it."""
    import h5py

    missing.check("arrays")
    found = find_array(file)
    array = found.load()
    signals = signals_of(array, found.label, axes)
    with found.open() as dataset:
        fills = declared_fills(dataset)

    def write(path: Path, values: AnyArray) -> None:
        shutil.copyfile(file.path, path)
        with h5py.File(path, "r+", locking=False) as stream:
            stream[found.key][...] = values.reshape(array.shape)

    suffix = file.path.suffix.lower()
    names = _names(file, len(signals))
    return Original(names, signals, _mark(signals, missing, fills), (suffix, ".h5", ".hdf5"), write)


# -- tables and sound ---------------------------------------------------------------------------------------------------


def read_table(file: SourceFile, missing: Missing, axes: int | None) -> Original:
    """A text table: every column of numbers is a signal. The text of known cells is unchanged."""
    missing.check("tables")
    columns, layout = read_columns(file, fill=missing.value), layout_of(file)
    values = np.stack([column.values for column in columns])[..., None]
    marked, digits = ~np.isfinite(values), [layout.decimals(column.place) for column in columns]

    def write(path: Path, changed: AnyArray) -> None:
        cells: dict[tuple[int, int], str] = {}
        for signal, column in enumerate(columns):
            for row in np.flatnonzero(changed[signal, :, 0] != np.where(marked[signal, :, 0], np.nan, values[signal, :, 0])):
                cells[int(row), column.place] = layout.written(float(changed[signal, row, 0]), digits[signal])
        path.write_bytes(layout.replaced(cells))

    suffix = file.path.suffix.lower()
    names = tuple(column.name or file.stem for column in columns)
    return Original(names, values, marked, tuple(dict.fromkeys([suffix, ".csv", ".tsv", ".txt"])), write)


def read_sound(file: SourceFile, missing: Missing, axes: int | None) -> Original:
    """A sound file without loss (WAV, FLAC, AIFF), in its own sample format."""
    import soundfile

    missing.check("sound")
    with reading(file.given):
        info = soundfile.info(file.path)
        dtype = {"PCM_16": "int16", "FLOAT": "float32", "DOUBLE": "float64"}.get(info.subtype, "int32")
        if info.format not in ("WAV", "WAVEX", "FLAC", "AIFF", "RF64") or info.subtype not in SOUND_SUBTYPES:
            raise InputError(
                f"{file.given!r} is {info.format} {info.subtype}; fill takes PCM and floating-point WAV, FLAC, AIFF"
            )
        values = soundfile.read(file.path, dtype=dtype, always_2d=True)[0][None]

    def write(path: Path, changed: AnyArray) -> None:
        buffer = io.BytesIO()  # libsndfile does not report errors of the file system
        soundfile.write(buffer, changed[0], info.samplerate, subtype=info.subtype, format=info.format)
        path.write_bytes(buffer.getbuffer())

    return Original((file.stem,), values, _mark(values, missing), (file.path.suffix.lower(),), write, "audio")


# -- cubes --------------------------------------------------------------------------------------------------------------


def read_nifti(file: SourceFile, missing: Missing, axes: int | None) -> Original:
    """A NIfTI volume; the header of the copy is that of the file, with its slope and intercept."""
    import nibabel

    missing.check("volumes")
    with reading(file.given):
        image: Any = nibabel.load(file.path)
        stored = np.asanyarray(image.dataobj.get_unscaled())
        slope, intercept = image.dataobj.slope, image.dataobj.inter
    signals = signals_of(stored, repr(file.given), axes or 3)
    marked = _mark(signals if missing.value is None else signals * slope + intercept, missing)

    def write(path: Path, values: AnyArray) -> None:
        header = image.header.copy()
        header.set_slope_inter(slope, intercept)
        copied = type(image)(values.reshape(stored.shape), image.affine, header)
        copied.header.set_slope_inter(slope, intercept)
        name = path.with_name(path.name + "".join(file.path.suffixes[-2:] if file.path.suffix == ".gz" else [".nii"]))
        nibabel.save(copied, name)
        name.replace(path)

    suffix = ".nii.gz" if file.path.name.lower().endswith(".nii.gz") else ".nii"
    return Original(_names(file, len(signals)), signals, marked, (suffix,), write)


def read_frames(file: SourceFile, missing: Missing, axes: int | None) -> Original:
    """A folder of frames as pictures with numbers in their names; missing numbers are lost frames.

    Frames that are not changed are copied; others are written as PNG.
    """
    paths = [path for path in visible_files(file.path) if format_of(path, by_content=False) in PICTURES]
    numbered = {}
    for path in paths:
        found = re.search(r"(\d+)(?=\D*$)", path.stem)
        if found is None:
            raise InputError(
                f"a folder is read as the frames of a clip, with a number in each name; {path.name!r} in {file.given!r} has "
                f"none. To fill each picture: pe-lightning fill {file.given}/* --out FOLDER"
            )
        numbered[int(found[1])] = path
    if len(numbered) < len(paths) or len(paths) < 2:
        raise InputError(f"{file.given!r} needs at least two frames, each with a number of its own in its name")
    frames = {number: read_picture(SourceFile(path, str(path)), missing, None) for number, path in numbered.items()}
    kinds = {(frame.values.shape, frame.values.dtype) for frame in frames.values()}
    if len(kinds) > 1:
        raise InputError(f"the frames in {file.given!r} differ in size, channels or dtype; save them alike")
    every, some = range(min(frames), max(frames) + 1), next(iter(frames.values()))
    values = np.zeros((1, len(every), *some.values.shape[1:]), some.values.dtype)
    marked = np.ones(values.shape, bool)
    for place, number in enumerate(every):
        if number in frames:
            values[0, place], marked[0, place] = frames[number].values[0], frames[number].missing[0]

    def name_of(number: int) -> str:
        near = numbered[min(numbered, key=lambda other: abs(other - number))].name
        digits = re.search(r"(\d+)(?=\D*$)", Path(near).stem)
        assert digits is not None
        return f"{Path(near).stem[: digits.start()]}{number:0{len(digits[1])}d}{Path(near).stem[digits.end() :]}.png"

    def write(path: Path, changed: AnyArray) -> None:
        path.mkdir()
        for place, number in enumerate(every):
            if number in frames and not marked[0, place].any() and (changed[0, place] == values[0, place]).all():
                shutil.copy2(numbered[number], path)
            elif number in frames:
                frames[number].write(path / name_of(number), changed[:, place])
            else:
                (path / name_of(number)).write_bytes(_png_bytes(changed[0, place], {}))

    return Original((file.stem,), values, marked, ("",), write, "video")


def read_clip(file: SourceFile, missing: Missing, axes: int | None) -> Original:
    """A video; frames that its times leave out are lost. Written without loss, with the sound and tags of the file."""
    missing.check("videos", "colour")
    clip, places = read_stored_frames(file)
    check_fit_memory(math.prod(clip.grid))  # before the frames are decoded
    shape = (1, int(places[-1]) + 1, *clip.size, clip.channels)
    values, marked = np.zeros(shape, clip.stored), np.ones(shape, bool)
    for place, frame in zip(places, (frame for block in clip.blocks() for frame in block), strict=True):
        values[0, place] = frame
        marked[0, place] = missing.kind in ("colour", "value") and np.isnan(missing.in_picture(frame, file.given))
    rate = clip.rate or 1.0

    def write(path: Path, changed: AnyArray) -> None:
        write_lossless(path, changed[0], rate, file.path)

    suffixes = lossless_suffixes(file.path, values.dtype)
    return Original((file.stem,), values, marked, suffixes, write, "video")


ORIGINALS: dict[str, Reader] = {
    "picture": read_picture,
    "tiff": read_tiff,
    "npy": read_npy,
    "hdf5": read_hdf5,
    "table": read_table,
    "sound": read_sound,
    "nifti": read_nifti,
    "frames": read_frames,
    "video": read_clip,
}
"""Readers of files by their format (:func:`~pe_lightning.data.sources.paths.format_of`); ``frames`` is a folder."""
