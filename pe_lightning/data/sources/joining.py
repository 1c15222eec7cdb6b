"""Videos, frame folders or volumes of one shape as one set of signals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from pe_lightning.data.signals import AnyArray, RawSignals, Scaling
from pe_lightning.data.sources.clips import Clip, converted, first_axis, frames_per_slab, recolored
from pe_lightning.data.sources.images import Color
from pe_lightning.data.sources.sources import Source, distinct_names
from pe_lightning.errors import InputError

__all__ = ["clip_of_arrays", "edited_arrays", "joined"]

_SAME_RATE = 0.01  # relative


def joined(clips: Sequence[Clip], color: Color) -> RawSignals:
    """Clips as signals, after their channels and, for videos, their dtypes have been made the same.

    Raises:
        InputError: If they differ in size, rate, channels that are not colours, or, for volumes, dtype.
    """
    _check_grids(clips)
    channels = _channels({clip.channels for clip in clips}, color)
    if channels is not None:
        clips = [recolored(clip, channels) for clip in clips]
    clips = _one_dtype(clips)
    first = clips[0]
    scalings = [clip.scaling for clip in clips]
    scaling = scalings[0]
    if len(set(scalings)) > 1:
        scaling = Scaling(scaling.dtype, tuple(each.low[0] for each in scalings), tuple(each.high[0] for each in scalings))
    return RawSignals(
        names=distinct_names([_named(clip.source) for clip in clips]),
        grid=first.grid,
        channels=first.channels,
        stored=first.stored,
        scaling=scaling,
        unit=first.unit,
        blocks=partial(_slabs, tuple(clips)),
        rate=_one_rate(clips),
        media=first.media,
    )


def _slabs(clips: Sequence[Clip]) -> Iterator[AnyArray]:
    for clip in clips:
        yield from clip.slabs()


def _named(source: Source) -> Source:
    """With a stem that is the whole name of a folder, and has no ``.nii`` left."""
    path = source.path.absolute()  # so that "." has a name
    if path.is_dir():
        return Source(path.with_name(f"{path.name}.x"), source.given)
    return Source(path.with_suffix("") if path.name.lower().endswith(".nii.gz") else path, source.given)


def _check_grids(clips: Sequence[Clip]) -> None:
    by_grid: dict[tuple[int, ...], list[str]] = {}
    for clip in clips:
        by_grid.setdefault(clip.grid, []).append(clip.source.given)
    if len(by_grid) == 1:
        return
    listed = "; ".join(
        f"{'x'.join(str(n) for n in grid)}: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        for grid, names in list(by_grid.items())[:8]
    )
    common = [min(grid[axis] for grid in by_grid) for axis in range(3)]
    raise InputError(
        f"the {len(clips)} signals have {len(by_grid)} different sizes ({first_axis(clips[0].media)}s x height x width), "
        f"but signals are fitted together and share one grid. {listed}{'; …' if len(by_grid) > 8 else ''}. Set "
        f"center_crop (the largest that all of them have is {common}), or frames: [0, {common[0]}] and resize"
    )


def _channels(present: set[int], color: Color) -> int | None:
    """Number of channels of all; ``None``: unchanged."""
    if color == "auto" and len(present) == 1:
        return None
    if not present <= {1, 3}:
        raise InputError(
            f"signals of {', '.join(str(number) for number in sorted(present))} channels cannot be brought to one number, "
            f"nor to color {color}: that works for 1 (grey) and 3 (RGB). Give them apart, with color auto"
        )
    return {"auto": 3, "rgb": 3, "grey": 1}[color]


def _one_dtype(clips: Sequence[Clip]) -> Sequence[Clip]:
    """Videos in the widest dtype among them; volumes have one already."""
    dtypes = sorted({clip.stored for clip in clips})
    if len(dtypes) == 1:
        return clips
    if clips[0].media != "video":
        listed = "; ".join(f"{name}: {next(c.source.given for c in clips if c.stored == name)!r}" for name in dtypes)
        raise InputError(
            f"the volumes hold numbers of different dtypes ({listed}); save them in one dtype, or fit them apart"
        )
    widest = "float32" if "float32" in dtypes else "uint16"
    return [converted(clip, widest) for clip in clips]


def _one_rate(clips: Sequence[Clip]) -> float | None:
    rates = [clip.rate for clip in clips]
    first = rates[0]
    for clip, rate in zip(clips, rates, strict=True):
        if rate is not None and first is not None and abs(rate / first - 1) > _SAME_RATE:
            raise InputError(
                f"{clips[0].source.given!r} has {first:g} frames per second and {clip.source.given!r} {rate:g}, but signals "
                "that are fitted together share one; set fps"
            )
    return first


def clip_of_arrays(raw: RawSignals, source: Source, rate: float | None) -> Clip:
    """The shape of signals from array files, to be picked from, resized and cropped; it cannot be read itself."""
    frames, height, width = raw.grid
    scaling = Scaling(raw.scaling.dtype)
    return Clip(source, range(frames), height, width, raw.channels, raw.stored, scaling, raw.unit, "array", _unread, rate)


def _unread(_: range) -> Iterator[AnyArray]:
    raise NotImplementedError


def edited_arrays(raw: RawSignals, clip: Clip, color: Color) -> RawSignals:
    """The signals with the frames and the edits of ``clip``, which was made of them."""
    channels = _channels({clip.channels}, color)
    clip = clip if channels is None else recolored(clip, channels)
    return replace(
        raw, grid=clip.grid, channels=clip.channels, blocks=partial(_array_slabs, raw, clip), array=None, rate=clip.rate
    )


def _array_slabs(raw: RawSignals, clip: Clip) -> Iterator[AnyArray]:
    limit = frames_per_slab(int(np.prod(raw.shape[2:])) * np.dtype(raw.stored).itemsize)
    if raw.array is None:
        yield from _passing_by(raw, clip)
        return
    opened = raw.array()
    rest = (slice(None),) * 3
    for signal in range(raw.shape[0]):
        for start in range(0, len(clip.frames), limit):
            part = clip.frames[start : start + limit]
            index = (slice(signal, signal + 1), slice(part.start, part.stop, part.step), *rest)
            yield clip.edit(opened[index][0])


def _passing_by(raw: RawSignals, clip: Clip) -> Iterator[AnyArray]:
    """Decodes everything, and keeps the frames of ``clip`` of each signal."""
    start = 0
    for slab in raw.blocks():
        kept = [number - start for number in clip.frames if start <= number < start + len(slab)]
        if kept:
            yield clip.edit(slab[kept])
        start = (start + len(slab)) % raw.grid[0]
