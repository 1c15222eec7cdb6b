"""Videos, frame folders and volumes as signals of three axes: ``(T, H, W, C)`` or ``(Z, Y, X, C)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pe_lightning.data.signals import RawSignals
from pe_lightning.data.sources.array_files import file_kind
from pe_lightning.data.sources.arrays import read_arrays
from pe_lightning.data.sources.clips import Clip, check_frames, cropped, picked, resized
from pe_lightning.data.sources.cube_files import CUBE_SUFFIXES, Kind, Paths, cube_files, cube_sources
from pe_lightning.data.sources.decode import MAX_PIXELS, check_max_pixels
from pe_lightning.data.sources.frames import read_frames
from pe_lightning.data.sources.images import Color, as_size, check_choice
from pe_lightning.data.sources.joining import clip_of_arrays, edited_arrays, joined
from pe_lightning.data.sources.sources import Source
from pe_lightning.data.sources.timing import check_fps
from pe_lightning.data.sources.video import read_video
from pe_lightning.data.sources.volumes import read_nifti, read_tiff
from pe_lightning.errors import InputError

__all__ = ["CUBE_SUFFIXES", "Preset", "cube_files", "direct", "read_cubes"]

Preset: TypeAlias = Literal["papers"]

_PAPERS_FRAME, _PAPERS_CUBE = 256, 128


def read_cubes(
    paths: Paths,
    frames: Sequence[int | None] | None = None,
    center_crop: int | Sequence[int] | None = None,
    resize: int | Sequence[int] | None = None,
    fps: float | None = None,
    color: Color = "auto",
    preset: Preset | None = None,
    key: str | None = None,
    value_range: Sequence[float] | None = None,
    max_pixels: int | None = MAX_PIXELS,
) -> RawSignals:
    """Describes videos, frame folders or volumes as signals of three axes; they are decoded a few frames at a time.

    What is set happens in the order fps, frames, resize, center_crop.

    Args:
        paths: Videos, TIFF stacks, NIfTI volumes, array files, folders of them, frame folders, or ``samples://NAME``.
            A folder of nothing but pictures is one signal.
        frames: ``[start, stop]`` or ``[start, stop, step]`` along the first axis, as in a Python slice.
        center_crop: ``n`` or ``[h, w]`` of every frame, or ``[t, h, w]``, the central part to keep.
        resize: ``n`` (``n`` x ``n``) or ``[h, w]`` to resample every frame to: bicubic, anti-aliased, in the dtype of the
            source. It does not keep the aspect ratio.
        fps: Frames per second to resample videos to. For what has no clock (frame folders, volumes), its rate.
        color: ``"auto"``: one channel if all are grey, else RGB. ``"rgb"``: always three. ``"grey"``: always one, the luma.
        preset: ``"papers"``: the central square of every frame, resized to 256 x 256, of which the central cube of 128 x
            128 x 128 is kept (Zheng et al., ECCV 2022, Sec. 6.3).
        key: Which array of an ``.npz`` or HDF5 file.
        value_range: ``[low, high]`` of volumes, the numbers that become 0 and 1.
        max_pixels: Refuse frames that claim more; ``None`` for no limit.

    Returns:
        Signals of one shape. ``rate`` is in frames per second, after ``fps`` and the step of ``frames``.

    Raises:
        InputError: If a setting is malformed, a source cannot be read, or the sources differ in size, kind or rate.
    """
    shaping = _Shaping.of(frames, center_crop, resize, preset)
    check_fps(fps)
    check_choice("color", color, Color)
    check_max_pixels(max_pixels)
    sources = cube_sources(paths)
    kinds = {kind for _, kind in sources}
    if len({"video" if kind == "frames" else kind for kind in kinds}) > 1:
        listed = "; ".join(f"{kind}: {next(source.given for source, k in sources if k == kind)!r}" for kind in sorted(kinds))
        raise InputError(f"sources of several kinds cannot be fitted together ({listed}); give one kind")
    _check_unused(kinds, key, value_range)
    if "array" in kinds:
        raw = read_arrays([source.path for source, _ in sources], 3, key=key, value_range=value_range)
        if shaping.nothing and color == "auto":
            return replace(raw, rate=fps)
        shaped = shaping.apply(clip_of_arrays(raw, sources[0][0], fps))
        return edited_arrays(raw, shaped, color)
    clips = [_clip(source, kind, fps, value_range, max_pixels) for source, kind in sources]
    clips = [shaping.apply(replace(clip, rate=fps) if clip.rate is None else clip) for clip in clips]
    return joined(clips, color)


def direct(
    paths: Paths,
    frames: Sequence[int | None] | None = None,
    center_crop: int | Sequence[int] | None = None,
    resize: int | Sequence[int] | None = None,
    color: Color = "auto",
    preset: Preset | None = None,
) -> bool:
    """Whether the signals are read by slices, without decoding: ``.npy`` and HDF5 files of which nothing is left out.

    Raises:
        InputError: If a path is missing.
    """
    if any(setting is not None for setting in (frames, center_crop, resize, preset)) or color != "auto":
        return False
    return all(kind == "array" and file_kind(source.path) in ("npy", "h5") for source, kind in cube_sources(paths))


@dataclass(frozen=True)
class _Shaping:
    """What is kept of each source."""

    frames: Sequence[int | None] | None
    crop: tuple[int | None, int, int] | None
    size: tuple[int, int] | None
    papers: bool

    @classmethod
    def of(cls, frames: Any, center_crop: Any, resize: Any, preset: Any) -> _Shaping:
        check_frames(frames)
        if preset is not None:
            check_choice("preset", preset, Preset)
            if center_crop is not None or resize is not None:
                raise InputError(
                    f"preset {preset} sets resize and center_crop itself; leave them out, or set preset to null"
                )
        three = isinstance(center_crop, (list, tuple)) and len(center_crop) == 3
        if three and any(isinstance(side, bool) or not isinstance(side, int) or side < 2 for side in center_crop):
            raise InputError(f"center_crop [t, h, w] must be three integers >= 2; got {center_crop!r}")
        flat = None if three else as_size("center_crop", center_crop)
        crop = tuple(center_crop) if three else (None, *flat) if flat else None
        return cls(frames, crop, as_size("resize", resize), preset is not None)

    @property
    def nothing(self) -> bool:
        return self.frames is None and self.crop is None and self.size is None and not self.papers

    def apply(self, clip: Clip) -> Clip:
        clip = picked(clip, self.frames)
        if self.papers:
            if len(clip.frames) < _PAPERS_CUBE:
                after = "" if self.frames is None else f" after frames {list(self.frames)}"
                raise InputError(
                    f"preset papers needs {_PAPERS_CUBE} frames, and {clip.source.given!r} has {len(clip.frames)}{after}; "
                    "set preset to null, and resize and center_crop as you like"
                )
            side = min(clip.height, clip.width)
            clip = resized(cropped(clip, (None, side, side)), (_PAPERS_FRAME, _PAPERS_FRAME))
            return cropped(clip, (_PAPERS_CUBE, _PAPERS_CUBE, _PAPERS_CUBE))
        if self.size is not None:
            clip = resized(clip, self.size)
        return clip if self.crop is None else cropped(clip, self.crop)


def _check_unused(kinds: set[Kind], key: str | None, value_range: Sequence[float] | None) -> None:
    """Raises :class:`InputError` if a setting would have no effect."""
    if key is not None and kinds != {"array"}:
        raise InputError(f"key {key!r} chooses an array of an .npz or HDF5 file; leave it out for other files")
    if value_range is not None and kinds & {"video", "frames"}:
        raise InputError("value_range is for volumes; videos and pictures state their range: leave it out")


def _clip(source: Source, kind: Kind, fps: float | None, value_range: Any, max_pixels: int | None) -> Clip:
    if kind == "video":
        return read_video(source, fps, max_pixels)
    if kind == "frames":
        return read_frames(source, fps, max_pixels)
    return (read_tiff if kind == "tiff" else read_nifti)(source, value_range, max_pixels)
