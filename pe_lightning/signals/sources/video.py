"""Videos, frame folders and volumes as signals of three axes: ``(T, H, W, C)`` or ``(Z, Y, X, C)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from pe_lightning.errors import InputError, refuse
from pe_lightning.signals.files import ARRAYS, PICTURES, Format, format_of_suffix, suffixes_of, user_path
from pe_lightning.signals.raw import RawSignals
from pe_lightning.signals.sources.arrays import array_clips, read_arrays
from pe_lightning.signals.sources.base import FileSource, sources
from pe_lightning.signals.sources.clips import Clip, alike, as_signals
from pe_lightning.signals.sources.images import read_frames
from pe_lightning.signals.sources.missing import with_missing
from pe_lightning.signals.sources.paths import SourceFile, as_list, expand, format_of
from pe_lightning.signals.sources.tiff import is_stack
from pe_lightning.signals.sources.video_files import read_video
from pe_lightning.signals.sources.volumes import read_nifti, read_tiff
from pe_lightning.signals.validation import as_size, choice, in_common, integer, is_integer, number

Preset: TypeAlias = Literal["papers"]
ClipKind: TypeAlias = Literal["video", "frames", "tiff", "nifti", "array"]

VIDEOS_AND_VOLUMES = frozenset({"video", "nifti", *ARRAYS})
PAPERS_FRAME_SAMPLES, PAPERS_CUBE_SAMPLES = 256, 128
MAX_RATE_DIFFERENCE = 0.01  # relative


@sources.register("video")
@dataclass(eq=False)
class VideoSource(FileSource):
    """Videos, frame folders or volumes as signals of three axes, decoded a few frames at a time.

    The arguments apply in the order ``fps``, ``frames``, ``resize``, ``center_crop``.

    Args:
        paths: Videos, TIFF stacks, NIfTI volumes, array files, folders of them, frame folders, or ``samples://NAME``.
            A folder that holds only pictures is one signal.
        frames: ``[start, stop]`` or ``[start, stop, step]`` along the first axis, as in a Python slice.
        center_crop: Central part to take, ``n`` or ``[h, w]`` of every frame, or ``[t, h, w]``.
        fps: Frames per second to resample videos to; for frame folders and volumes, their rate.
        preset: ``"papers"``: the central square of every frame is resized to 256 x 256, and the central cube of 128 x 128 x
            128 is taken (Zheng et al., ECCV 2022, Sec. 6.3).
    """

    suffixes = tuple(suffixes_of({"video", "nifti"}))
    datamodule = "VideoDataModule"

    frames: list[int | None] | None = None
    fps: float | None = None
    preset: Preset | None = None

    @classmethod
    def claims(cls, path: Path) -> bool:
        return super().claims(path) or is_stack(SourceFile(path, str(path)))

    @classmethod
    def recipe_group(cls, files: Sequence[Path]) -> str:
        volumes = all(format_of_suffix(file) in {"nifti", "tiff", *ARRAYS} for file in files)
        return "volume" if volumes else "video"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _are_slice_arguments(self.frames):
            raise InputError(
                "frames must be [start, stop] or [start, stop, step] of integers or null, the step at least 1; got "
                f"{self.frames!r}"
            )
        if self.fps is not None:
            number("fps", self.fps, "(0, inf)", hint=" of frames per second")
        if self.preset is not None:
            choice("preset", self.preset, Preset)
            if self.center_crop is not None or self.resize is not None:
                raise InputError(f"preset {self.preset} sets resize and center_crop; leave them out, or set preset: null")

    def _checked_crop(self) -> tuple[int | None, ...] | None:
        crop = self.center_crop
        if not isinstance(crop, (list, tuple)) or len(crop) != 3:
            size = as_size("center_crop", crop)
            return None if size is None else (None, *size)
        return (integer("center_crop", crop[0], 2), *(as_size("center_crop", crop[1:]) or ()))

    def read(self) -> RawSignals:
        """Describes the signals, whose ``rate`` is in frames per second after ``fps`` and the step of ``frames``."""
        found = [(file, _kind(file)) for file in self._found]
        given = {"video" if kind == "frames" else kind: file.given for file, kind in reversed(found)}
        missing, kinds = self._missing, {kind for _, kind in found}
        no_key = f"key {self.key!r} chooses an array of an .npz or HDF5 file; leave it out for other files"
        no_range = "value_range is for volumes and floating-point frames, not for videos; leave it out"
        refuse(
            (len(given) > 1, f"files of several kinds cannot be fitted together ({given}); give files of one kind"),
            (self.key is not None and "array" not in given, no_key),
            (self.value_range is not None and "video" in kinds, no_range),
        )
        missing.check(
            "volumes", *(["alpha", "colour"] if kinds <= {"frames"} else ["colour"] * (kinds <= {"video", "frames"}))
        )
        if "array" in given and self._unedited:
            raw = read_arrays([file for file, _ in found], 3, self.key, self.value_range, fills=missing.values)
            return with_missing(replace(raw, rate=self.fps), missing)
        clips: list[Clip] = []
        for file, kind in found:
            if kind == "array":
                clips += array_clips(file, self.key, self._limits, fills=missing.values)
            elif kind in ("tiff", "nifti"):
                read = read_tiff if kind == "tiff" else read_nifti
                clips.append(read(file, self.max_pixels, self._limits, missing.values))
            elif kind == "video":
                clip = read_video(file, self.fps, self.max_pixels)
                clips.append(clip.marked(missing.in_picture) if missing.kind in ("colour", "value") else clip)
            else:
                clips.append(read_frames(file, self.max_pixels, self._limits, missing, self.fps))
        return with_missing(self._joined([self._edited(clip) for clip in clips]), missing)

    @property
    def _unedited(self) -> bool:
        return super()._unedited and (self.frames, self.preset) == (None, None)

    def _expanded(self) -> list[SourceFile]:
        found: list[SourceFile] = []
        for text in as_list(self.paths):
            folder = SourceFile(user_path(text), text)
            inside = {format_of(file, by_content=False) for file in folder.content()} if folder.path.is_dir() else set()
            pictures = PICTURES if not inside & VIDEOS_AND_VOLUMES else frozenset()
            files = expand([text], VIDEOS_AND_VOLUMES | pictures, "video, volume or frame", "video")
            are_frames = inside & pictures and ("picture" in inside or not is_stack(files[0]))
            found += [folder] if are_frames else files
        return found

    def _edited(self, clip: Clip) -> Clip:
        clip = replace(clip, rate=self.fps) if clip.rate is None else clip
        clip = clip if self.frames is None else clip.picked(self.frames)
        if clip.grid[0] < 2:
            raise InputError(f"{clip.file.given!r} gives {clip.grid[0]} frame(s) or slice(s); a signal needs at least 2")
        if self.preset is not None:
            if clip.grid[0] < PAPERS_CUBE_SAMPLES:
                raise InputError(
                    f"preset papers needs {PAPERS_CUBE_SAMPLES} frames, and {clip.file.given!r} gives {clip.grid[0]}; "
                    "set preset: null, and resize and center_crop instead"
                )
            side = min(clip.grid[1:])
            clip = clip.cropped((None, side, side)).resized([PAPERS_FRAME_SAMPLES] * 2)
            return clip.cropped([PAPERS_CUBE_SAMPLES] * 3)
        if self.resize is not None:
            clip = clip.resized(self.resize)
        return clip if self._crop is None else clip.cropped(self._crop)

    def _joined(self, clips: Sequence[Clip]) -> RawSignals:
        common = [min(clip.grid[axis] for clip in clips) for axis in range(3)]
        grid = in_common(
            "sizes (frames or slices x height x width)",
            [(clip.file.given, clip.grid) for clip in clips],
            f"Set center_crop (the largest that all of them have is {common}), or frames: [0, {common[0]}] and resize",
        )
        rates = [(clip.file.given, clip.rate) for clip in clips if clip.rate is not None]
        first = rates[0][1] if rates else None
        if first and any(abs(rate / first - 1) > MAX_RATE_DIFFERENCE for _, rate in rates):
            in_common("numbers of frames per second", rates, "Set fps")
        clips = alike(clips, self.color)
        if clips[0].media == "array":
            stored = [(clip.file.given, clip.stored) for clip in clips]
            in_common("dtypes of volumes", stored, "Save them in one dtype, or fit them in separate runs")
        return as_signals(clips, grid, notify=self._limits is None)


def _are_slice_arguments(frames: object) -> bool:
    if frames is None:
        return True
    if not isinstance(frames, (list, tuple)) or len(frames) not in (2, 3):
        return False
    whole = all(edge is None or is_integer(edge, -(2**63)) for edge in frames)
    return whole and (len(frames) == 2 or frames[2] is None or frames[2] > 0)


def _kind(file: SourceFile) -> ClipKind:
    """Kind of a file by its content or its suffix; unknown files are tried as videos."""
    if file.path.is_dir():
        return "frames"
    kinds: dict[Format | None, ClipKind] = {**dict.fromkeys(ARRAYS, "array"), "tiff": "tiff", "nifti": "nifti"}
    still = format_of(file.path, by_content=False) == "picture" and file.path.suffix.lower() not in (".gif", ".webp")
    kind = kinds.get(format_of(file.path), "video")
    if kind == "video" and still:
        raise InputError(f"{file.given!r} is one picture; give the folder that holds the frames, or use ImageDataModule")
    return kind
