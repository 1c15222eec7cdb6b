"""Missing samples filled, signals denoised or enlarged: each signal by the plan that applies to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pe_fill.formats.editable import EditableFile, read_original
from pe_fill.formats.in_memory import AnyMask, edit_memory
from pe_fill.formats.point_axes import Limit, periods_of_grid
from pe_fill.members.seasonal import SEASONAL
from pe_fill.members.table import MEMBERS, REMOVED
from pe_fill.mixture.limits import check_dates
from pe_fill.plans.signal import FilledSignal, Frame, Signal
from pe_fill.plans.table import fill_signal
from pe_fill.request import SHIPPED, FillRequest, FoldsLike, ModelName
from pe_fill.results.filled import Filled
from pe_lightning.errors import InputError
from pe_lightning.estimators import Fits
from pe_lightning.linalg.threads import one_blas_thread
from pe_lightning.signals.axes import SampleKind, channels_first
from pe_lightning.signals.files import check_readable, user_path
from pe_lightning.signals.raw import AnyArray
from pe_lightning.signals.sources.missing import Missing, MissingLike
from pe_lightning.signals.sources.paths import SCHEME, SourceFile, image_samples, sample_path, video_samples
from pe_lightning.signals.validation import choice

Source: TypeAlias = str | os.PathLike[str] | AnyArray | Tensor | EditableFile


def fill(
    values: Source,
    missing: AnyMask = "nan",
    *,
    model: ModelName | Callable[[], Fits] = "auto",
    encoder: str | None = None,
    smooth: bool = False,
    upscale: int | Sequence[int] = 1,
    samples: SampleKind | Literal["auto"] = "auto",
    pretrained: str = SHIPPED,
    folds: FoldsLike = "auto",
    block: int | None = None,
    axes: int | None = None,
    seed: int = 0,
    std: bool = False,
    grow: int | None = None,
    members: Sequence[str] | None = None,
    key: str | None = None,
    noise: float | None = None,
    noise_sample: str | None = None,
    periodic: str | Sequence[str] | None = None,
    max_gap: Limit | None = None,
    max_distance: Limit | None = None,
) -> Filled:
    """Fills the missing samples of a file or an array.

    Several methods predict the missing samples from the known ones and are mixed; known samples are unchanged to the bit.
    Known samples under moved copies of the gaps are hidden and predicted too: these errors give the weights, the standard
    deviations and the score.

    Args:
        values: A file, a folder of frames, ``samples://NAME``, a result of :func:`read_file`, or an array: ``(N,)``,
            ``(H, W)``, ``(H, W, C)`` with C of at most 4, ``(T, H, W)``, ``(T, H, W, C)``, or with its channels first as
            in torch. Where a NumPy masked array is masked, samples are missing.
        missing: Which samples are missing besides NaN: ``nan``, ``alpha``, a colour ``#rrggbb``, a number, lost frames
            ``frames:10-14,30``, or a mask file that is not zero there
            (:class:`~pe_lightning.signals.sources.missing.Missing`); of an array also an
            array of booleans, or of numbers that are not 0 at missing samples, or a picture of Pillow.
        model: ``adaptive``: :class:`~pe_fill.Adaptive`. ``exact``: the exact fit of a linear layer, with width
            and ridge by held-out samples. ``auto``: the mixture of ``members`` where the first applies, else the second; to
            smooth, missing samples are filled first, then patches and a sparse fit are mixed for pictures, and other signals
            have the sparse fit. Or a function that makes a model which is solved for. Models other than the mixture are
            scored by fits of four fifths of the known samples.
        encoder: Encoder of the exact fit.
        smooth: Whether known samples are replaced too, by values without noise.
        upscale: Samples per axis of the result relative to the source: 1, 2, 3, 4, 6 or 8; of clips in a file, per axis of
            their frames. Or one number per axis, such as ``(1, 2, 2)`` for the frames of an array.
        samples: With ``upscale``: ``cells`` if the samples are means, as the pixels of a camera. The result then has means
            over smaller cells, whose means are the known samples, and centres coincide. ``points`` are values at points:
            they are unchanged, and the result has predictions between them. ``auto``: points on one axis and in rasters
            that declare them, else cells.
        pretrained: With ``upscale``, a network that was trained on other pictures: ``pictures``, which is shipped; ``none``;
            or a checkpoint of ``datasets/make_priors.py``, of ``cells``, or of ``pictures`` for points.
        folds: Held-out known samples for the score: ``random`` ones, ``blocks``, or ``none`` for no score. ``auto``: of the
            mixture, moved copies of the gaps; else blocks as wide as the gaps where these are wide, or random ones.
        block: Samples per axis of a block.
        axes: Number of axes of a signal, where the shape of an array leaves it open.
        seed: Seed of folds, models and encoders.
        std: Whether to compute standard deviations of missing samples too, which takes further fits. They are NaN where too
            few samples are known.
        grow: Pixels by which missing samples of pictures and frames grow, because damage has soft edges. ``None``: 3 where
            the file is a JPEG, which spreads damage around it, else 0.
        members: Methods of the mixture: some of ``autoregressive`` (rows), ``biharmonic`` (pictures), ``cubic``,
            ``delaunay`` (pictures), ``fourier``, ``kriging``, ``motion`` (lost frames), ``neighbours`` (along the first
            axis, as between frames), ``patches`` (pictures) and ``seasonal`` (rows with a period). By default the ones that
            suit the axes and numbers of samples.
        key: Name of the array of an HDF5 file that has several.
        noise: With ``smooth``, of pictures: the standard deviation of the noise in the units of the values. By default it
            is found, white and equal in all channels.
        noise_sample: With ``smooth``, in place of ``noise``: rows and columns of a flat region of the picture, such as
            ``0:32,100:160``, whose variation is noise. It may be correlated, and differ between channels.
        periodic: Periods of the values of a row, ``time=24h`` (s, min, h, d, y), ``hour=24`` or, in samples, ``row=24``; or
            axes that repeat, whose samples cover the period, such as ``lon`` (degrees). ``auto``, the default: up to two
            periods of a row (not of sound) are proposed by its periodogram, and taken where held-out blocks become more
            precise. ``none``: none.
        max_gap: Samples of the longest gap that is filled, or its length in time, such as ``3h``, along the only axis of
            dates. On more axes a gap is longer where more samples are missing along all of them.
        max_distance: Largest distance from a known sample that is filled, in samples, or in time, such as ``3h``. Samples
            beyond a limit stay missing: NaN, the value that the file declares as missing, or the value that it has.

    Returns:
        The filled values and their scores.

    Example:
        >>> import numpy as np
        >>> y, x = np.mgrid[:24, :24] / 24
        >>> picture = np.sin(4 * x * y)
        >>> picture[5:8, 5:20] = np.nan
        >>> bool(np.isfinite(fill(picture).values).all())
        True
    """
    options = dict(locals())
    return filled_by(options.pop("values"), options.pop("missing"), FillRequest(**options))


def filled_by(values: Source, missing: AnyMask, request: FillRequest) -> Filled:
    """The missing samples of a file or an array, filled as requested; see :func:`fill`."""
    if not isinstance(values, (str, os.PathLike, EditableFile)):
        if request.key is not None:
            raise InputError("key is the name of an array in a file: leave it out")
        return fill_file(edit_memory(values, missing, request.axes, request.grow), request, np.shape(values))
    if not isinstance(missing, (str, int, float, list)):
        raise InputError("the mask of a file is a file: save it with numpy.save(path, mask), or as PNG")
    if not isinstance(values, EditableFile):
        return fill_file(read_file(values, missing, request.axes, request.grow, request.key), request)
    if names := [*["missing"] * (missing != "nan"), *request.changed_options(("axes", "grow", "key"))]:
        raise InputError(
            f"{', '.join(names)}: a file that is read has these already: give them to read_file(path, missing, axes, "
            "grow, key); where a labelled array has numbers for missing values, array.where(array != -9999)"
        )
    return fill_file(values, request)


@one_blas_thread
def fill_file(original: EditableFile, request: FillRequest, shape: tuple[int, ...] | None = None) -> Filled:
    """The missing samples of signals that are read, filled as requested; ``shape`` is that of an array in memory."""
    for name in request.members or ():
        if name in REMOVED:
            raise InputError(f"{name!r} is no member any more, as mixtures are as good without it: leave it out")
        choice("members", name, (*MEMBERS, SEASONAL))
    stack, marked, enlarges = original.values, original.missing, request.enlarges
    moved = shape is not None and request.axes is None and channels_first(shape)
    if shape is None:
        shape = stack.shape[1:] if len(stack) == 1 else stack.shape
    frame = _frame(original, request)
    if not marked.any() and not request.smooth and not enlarges:
        raise InputError(
            "no sample is missing, so there is nothing to fill: mark missing samples (missing: mask.png, white where "
            "they are, alpha, '#ff00ff', -9999, or frames:10-14 of a clip), enlarge (upscale: 2), or denoise (smooth)"
        )
    check_dates(frame.axes, request.max_gap, request.max_distance)
    changed, signals = list[AnyArray](), list[FilledSignal]()
    spread, left = np.zeros(stack.shape if request.has_std else 0), np.zeros_like(marked)
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(request.seed)
        for place, (name, values, missing) in enumerate(zip(original.names, stack, marked, strict=True)):
            if not missing.any() and not request.smooth and not enlarges:
                changed.append(values)
                continue
            signal = Signal(name, values, missing, request, frame)
            result = fill_signal(signal)
            left[place] = missing & signal.left[..., None]
            changed.append(result.values)
            signals.append(result.about)
            if result.std is not None:
                spread[place] = result.std
    whole = np.stack(changed)
    if enlarges:
        shape = _upscaled_shape(shape, stack.shape, whole.shape)
        marked = left = np.zeros(whole.shape, bool)
    results: list[AnyArray] = [whole, marked, left, *([_smallest_float(spread)] if request.has_std else [])]
    if moved:
        results = [np.moveaxis(each, -1, -3) for each in results]
    values, marked, left, *spreads = (each.reshape(shape) for each in results)
    points = enlarges and frame.samples == "points"
    return Filled(values, marked, signals, original, whole, spreads[0] if spreads else None, points, left)


def _frame(original: EditableFile, request: FillRequest) -> Frame:
    num_axes, samples = original.values.ndim - 2, request.samples
    factors = _factors(request.upscale, original) if request.enlarges else ()
    if samples == "auto":
        samples = "points" if num_axes not in (2, 3) or original.points else "cells"
    periods, axes = periods_of_grid(request.periodic, original.axes, num_axes)
    return Frame(axes, periods, original.media, factors, samples)


def _factors(upscale: int | Sequence[int], original: EditableFile) -> tuple[int, ...]:
    num_axes = original.values.ndim - 2
    if not original.resizes:
        raise InputError(
            f"{original.names[0]!r} is in a format that keeps its number of samples: pictures, TIFF, .npy, videos and "
            "folders of frames are enlarged; save the samples as .npy"
        )
    if isinstance(upscale, int):
        return tuple(1 if original.media == "video" and axis == 0 else upscale for axis in range(num_axes))
    if len(upscale) != num_axes or max(upscale) == 1:
        raise InputError(f"upscale is one number, or one for each of {num_axes} axes, not all 1; got {list(upscale)}")
    return tuple(upscale)


def read_file(
    path: str | os.PathLike[str],
    missing: MissingLike = "nan",
    axes: int | None = None,
    grow: int | None = None,
    key: str | None = None,
) -> EditableFile:
    """The signals of a file or a folder of frames, with their missing values; see :func:`fill`."""
    given = os.fspath(path)
    if given.startswith(SCHEME):
        kind: Literal["image", "video"] = "video" if given.removeprefix(SCHEME) in video_samples() else "image"
        file = SourceFile(sample_path(given, kind), given)
    else:
        check_readable(given, image_samples())
        file = SourceFile(user_path(given), given)
    return read_original(file, Missing(missing), axes, grow, key)


def _upscaled_shape(shape: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    found = list(shape)
    start = next(place for place in range(len(shape)) if shape[place : place + len(before) - 2] == before[1:-1])
    found[start : start + len(before) - 2] = after[1:-1]
    return tuple(found)


def _smallest_float(std: AnyArray) -> AnyArray:
    """Standard deviations as float32, or as float64 where float32 has no numbers of their size."""
    known, limits = std[std > 0], np.finfo(np.float32)
    fits = not known.size or (known.min() >= limits.tiny and known.max() <= limits.max)
    return std.astype(np.float32) if fits else std
