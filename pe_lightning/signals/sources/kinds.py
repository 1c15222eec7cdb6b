"""The kind of signals in files, by suffix, and in arrays, by shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES, check_readable, suffixes_of
from pe_lightning.signals.sources.arrays import MAX_CHANNELS, find_array
from pe_lightning.signals.sources.paths import SourceFile, expand, format_of, is_stack, missing, visible_files
from pe_lightning.signals.sources.samples import SCHEME, video_samples

Kind: TypeAlias = Literal["images", "rows", "video"]
"""Names of the registered sources of signals of two, one and three axes."""

PICTURE_CHANNELS = (1, 3, 4)
"""Numbers of channels of a picture: grey, RGB, RGB and opacity."""
MAX_ASPECT_RATIO = 8
"""Arrays of two axes whose ratio is larger may be pictures or sets of rows."""
NOUNS: dict[Kind, str] = {"rows": "row", "images": "picture", "video": "cube"}


class UnclearKind(InputError):
    """The files may hold several kinds of signals, or none that is known; callers add how to specify the kind."""


@dataclass(frozen=True)
class Layout:
    """Interpretation of the axes of an array.

    Args:
        kind: The source that reads the array in this way.
        shape: Complete shape ``(S, N_1, ..., N_D, C)``.
    """

    kind: Kind
    shape: tuple[int, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of samples per axis, ``(N_1, ..., N_D)``."""
        return self.shape[1:-1]

    def __str__(self) -> str:
        count, channels, noun = self.shape[0], self.shape[-1], NOUNS[self.kind]
        signals = f"one {noun}" if count == 1 else f"{count} {noun}s"
        samples = f"{signals} of {'x'.join(map(str, self.grid))} samples"
        return samples if channels == 1 else f"{samples} with {channels} channels"


def plausible_layouts(shape: Sequence[int]) -> list[Layout]:
    """Plausible layouts of an array, the most likely first.

    A last axis of at most 4 is channels. Two axes of similar length are a picture, three a cube. A first axis of 1 counts
    signals. Empty if no layout has at least 2 samples per axis, or if the channels seem to be the first axis.

    >>> [str(layout) for layout in plausible_layouts((64, 48, 3))]
    ['one picture of 64x48 samples with 3 channels']
    >>> [str(layout) for layout in plausible_layouts((16, 5000))]
    ['one picture of 16x5000 samples', '16 rows of 5000 samples']
    """
    return [layout for layout in _layouts(tuple(shape)) if min(layout.grid) >= 2 and min(layout.shape) >= 1]


def _layouts(shape: tuple[int, ...]) -> list[Layout]:
    axes, last = len(shape), shape[-1] if shape else 0
    if axes == 5:
        return [Layout("video", shape)]
    if axes not in (1, 2, 3, 4) or channels_first(shape):
        return []
    if axes > 1 and shape[0] == 1:
        return _layouts(shape[1:])[:1]
    with_channels = last <= MAX_CHANNELS
    if axes == 1:
        return [Layout("rows", (1, *shape, 1))]
    if axes == 2 and with_channels:
        return [Layout("rows", (1, *shape))]
    if axes == 4:
        cubes = [Layout("video", (1, *shape) if with_channels else (*shape, 1))]
        return [*cubes, Layout("images", shape)] if with_channels else cubes
    if axes == 3 and not with_channels:
        pictures = [Layout("images", (*shape, 1))] if shape[0] > MAX_ASPECT_RATIO * max(shape[1:]) else []
        return [Layout("video", (1, *shape, 1)), *pictures]
    full = shape if axes == 3 else (*shape, 1)
    short, long = sorted(full[:2])
    picture, rows = Layout("images", (1, *full)), Layout("rows", full)
    if short <= MAX_CHANNELS or long > MAX_ASPECT_RATIO * short or full[-1] not in PICTURE_CHANNELS:
        return [picture, rows]
    return [picture]


def channels_first(shape: Sequence[int]) -> bool:
    """Whether the third axis from the end is probably channels, as in torch."""
    channels = PICTURE_CHANNELS[1:] if len(shape) == 3 else PICTURE_CHANNELS
    return len(shape) in (3, 4) and shape[-3] in channels and min(shape[-2:]) > MAX_CHANNELS


def describe_layouts(label: str, shape: Sequence[int]) -> str:
    """First part of the error message for an array that is ambiguous or unsupported."""
    layouts = plausible_layouts(shape)
    if layouts:
        return f"{label} has shape {tuple(shape)}, which may be {' or '.join(map(str, layouts))}"
    hint = "at least 2 samples are needed on each of 1 to 3 axes"
    if channels_first(shape):
        hint = f"its channels seem to come first: move them to the end, numpy.moveaxis(array, {len(shape) - 3}, -1)"
    return f"{label} has shape {tuple(shape)}; {hint}"


def kind_of(*paths: str, key: str | None = None) -> Kind:
    """The registered source that reads files, folders or samples.

    The kind is found by the suffix, for TIFF by the number of pages, and for arrays by the shape, with a notice. In a
    folder, arrays count only without pictures, videos and sound, and tables only without arrays, too.

    Args:
        paths: Files, folders or ``samples://NAME``.
        key: Name of the array of an ``.npz`` or HDF5 file that has several.

    Raises:
        UnclearKind: If a path is of unknown kind, an array has several plausible layouts, or the kinds differ.
        InputError: If a path does not exist, or an array or a TIFF cannot be read.
    """
    kinds: dict[Kind, str] = {}
    for path in paths:
        kinds |= dict.fromkeys(_kinds_in(path, key), path)
    if len(kinds) > 1:
        listed = " and ".join(f"{kind} ({path!r})" for kind, path in sorted(kinds.items()))
        raise UnclearKind(f"signals that are fitted together are of one kind, these are {listed}; give files of one kind")
    return next(iter(kinds))


def _kinds_in(path: str, key: str | None) -> set[Kind]:
    if path.startswith(SCHEME):
        return {"video" if path.removeprefix(SCHEME) in video_samples() else "images"}
    given = Path(path).expanduser()
    if given.is_dir():
        check_readable(path)
    files = visible_files(given) if given.is_dir() else [given]
    formats = {file: format_of(file, by_content=False) for file in files}
    if media := {kind for file in files if (kind := _kind_of_media(file))}:
        return media
    if arrays := [file for file in files if formats[file] in ARRAYS]:
        return {_kind_of_array(expand([str(arrays[0])], ARRAYS, "array")[0], key)}
    if "table" in formats.values():
        return {"rows"}
    if not given.exists():
        raise missing(given)
    raise UnclearKind(
        f"{path!r} {'holds no file' if given.is_dir() else 'is no file'} of a known kind; the kinds are "
        f"{', '.join(suffixes_of({*PICTURES, *ARRAYS, 'sound', 'table', 'video', 'nifti'}))}"
    )


def _kind_of_media(path: Path) -> Kind | None:
    format = format_of(path, by_content=False)
    if format in ("video", "nifti") or (format == "tiff" and path.is_file() and is_stack(SourceFile(path, str(path)))):
        return "video"
    return "images" if format in PICTURES else "rows" if format == "sound" else None


def _kind_of_array(file: SourceFile, key: str | None) -> Kind:
    array = find_array(file, key)
    layouts = plausible_layouts(array.shape)
    if len(layouts) != 1:
        raise UnclearKind(describe_layouts(array.label, array.shape))
    rank_zero_info(
        f"{array.label} of shape {array.shape} is read as {layouts[0]}; for another reading: --config row/closed_form, "
        "image/closed_form or volume/closed_form"
    )
    return layouts[0].kind
