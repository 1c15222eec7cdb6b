"""Missing samples filled: a fit of all known samples of a signal predicts the others."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pe_fill.checks import SHIPPED, check_fill_options, check_fit_memory, check_limits, noise_region
from pe_fill.estimators.adaptive import AdaptiveFit
from pe_fill.estimators.enlarging import (
    MIN_REDUCED_SAMPLES,
    Enlargement,
    Enlarger,
    by_fit,
    by_network,
    by_pillow,
    check_enlarging_memory,
    enlarge_cells,
    resized_by_pillow,
    too_small,
)
from pe_fill.estimators.gap_limits import beyond_limits
from pe_fill.estimators.gap_scores import interpolated_gaps
from pe_fill.estimators.priors import NO_PRIOR, read_prior
from pe_fill.estimators.series import MAX_SEASONAL, SEASONAL, SeasonalMember, SeriesFit
from pe_fill.formats.editable import EditableFile
from pe_fill.formats.layouts import array_as_signals
from pe_fill.formats.original import grown_mask, read_original
from pe_fill.formats.point_axes import Limit, periods_of_grid
from pe_fill.solvers.gap_copies import Hidden, imitated_gaps
from pe_fill.solvers.gap_members import AXES as MEMBER_AXES
from pe_fill.solvers.gap_members import MEMBERS, Member, default_members
from pe_fill.solvers.gap_mixture import GapMixture, fill_gaps
from pe_fill.solvers.gaps import has_wide_gaps, mean_distance
from pe_fill.solvers.patch_noise import MIN_PIXELS, mixed_denoising, noise_level, remove_noise
from pe_fill.solvers.point_level import NUM_NEIGHBOURS
from pe_fill.solvers.seasons import find_periods
from pe_fill.sparse.estimator import SparseOptions, SparseRidge
from pe_lightning.encoders import automatic_width, with_seed
from pe_lightning.errors import InputError
from pe_lightning.estimators import Field, Fits, LinearRidge
from pe_lightning.estimators.folds import FoldScore, interpolated_folds, predicted_at, score_folds
from pe_lightning.linalg.threads import one_blas_thread
from pe_lightning.signals import (
    Axis,
    FoldSampling,
    GridBatch,
    GridSampling,
    Signals,
    Storage,
    ValueRange,
    grid_axes,
    point_coordinates,
    validation,
)
from pe_lightning.signals.axes import SampleKind, channels_first
from pe_lightning.signals.distributed import rank_zero_info, without_notices
from pe_lightning.signals.files import check_readable, replacing, user_path
from pe_lightning.signals.raw import AnyArray, Media, is_one_of
from pe_lightning.signals.repeated import note_repeated
from pe_lightning.signals.sources import TensorSource
from pe_lightning.signals.sources.missing import Missing, MissingLike
from pe_lightning.signals.sources.paths import SCHEME, SourceFile, image_samples, sample_path, video_samples
from pe_lightning.signals.splitting import Splitting

FoldsLike: TypeAlias = Literal["auto", "random", "blocks", "none"]
ModelName: TypeAlias = Literal["auto", "adaptive", "exact"]
Mask = NDArray[np.bool_]

MAX_FOLD_SAMPLES = 1 << 16
"""Known samples of a signal over all folds that are fitted for its score; of larger signals fewer folds are scored."""
POINTS_AT_ONCE = 1 << 16
DENOISING_ENCODER, MIN_DENOISED = "keys", 256
"""Encoder of fits without noise, and fewest samples of a signal for the sparse one."""
LANCZOS_MARGIN = 2
"""Samples at the edges that the score of an enlargement of points leaves out."""
PILLOW = {f"Pillow {method.name}": method for method in (Image.Resampling.LANCZOS, Image.Resampling.BICUBIC)}
"""Filters that enlargements are compared with."""
NO_FOLDS = "too few known samples, or too close to each other, to hold some out"
TOO_SMALL = "an enlargement is scored from {} samples per axis on"


@dataclass
class FilledSignal:
    """One signal with its missing samples predicted.

    Args:
        name: Its name.
        num_missing: Missing samples.
        num_samples: All samples.
        model: The fitted model, or the mixture with the weights of its members; ``None`` if all missing samples are beyond a
            limit.
        unit: An error of 1 in [0, 1], in the units of the source.
        protocol: How the held-out known samples are chosen, or why there is no score.
        score: Score of the held-out samples.
        baselines: Scores of interpolation of the same samples.
        left_out: Reasons why other baselines have no score.
        noise: Standard deviation of the noise that ``smooth`` removed, in the units of the source; 0 if there was none, and
            ``None`` where a fit smooths as much as held-out samples support.
        periods: Periods of the values of a row, in the unit of its axis (of dates in seconds), or in samples.
        num_left: Samples that stay missing, beyond a limit.
    """

    name: str
    num_missing: int
    num_samples: int
    model: Field | GapMixture | Enlargement | None
    unit: float
    protocol: str = "no folds"
    score: FoldScore | None = None
    baselines: dict[str, FoldScore] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    noise: float | None = None
    periods: tuple[float, ...] = ()
    num_left: int = 0


@dataclass(repr=False)
class Filled:
    """Filled signals.

    Args:
        values: In the shape and dtype of the given values.
        missing: Where a value was missing, of the same shape.
        signals: Each signal: its model and its scores.
        original: The file or array of the known values.
        stack: The values as ``(S, N_1, ..., N_D, C)``.
        std: Standard deviation of the values in units of the source, float32 (float64 where they exceed its range), zero at
            known samples, in the shape of ``values``; of values that were not seen, about 90 % are within 1.645 of it.
            ``None`` without ``std``.
        points: Whether the samples of an enlargement are values at points.
        left: Where a value still is missing, beyond ``max_gap`` or ``max_distance``, in the shape of ``values``.
    """

    values: AnyArray
    missing: Mask
    signals: list[FilledSignal]
    original: EditableFile
    stack: AnyArray
    std: AnyArray | None = None
    points: bool = False
    left: Mask = field(default_factory=lambda: np.zeros((), bool))

    def __repr__(self) -> str:
        score = "no score" if math.isnan(self.score) else f"{self.score:.2f} dB"
        lost = sum(signal.num_missing for signal in self.signals)
        return f"Filled({' x '.join(map(str, self.values.shape))} {self.values.dtype}, {lost} samples were missing, {score})"

    @property
    def score(self) -> float:
        """PSNR in dB of held-out known samples, mean over signals; NaN without folds."""
        found = [float(signal.score.values) for signal in self.signals if signal.score is not None]
        return float(np.mean(found)) if found else math.nan

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes a copy of the file with the filled values, in its format and with its metadata; not over the file."""
        if not self.original.suffixes:
            raise InputError("these values come from an array: save them with numpy.save(path, filled.values)")
        check_suffix(Path(path), self.original)
        source = self.original.path
        if source is not None and os.path.exists(path) and os.path.samefile(path, source):
            raise InputError(f"{os.fspath(path)!r} is the file that was filled, and is not replaced: choose another path")
        with replacing(Path(path)) as temporary:
            self.write_to(temporary)
        return Path(path)

    def write_to(self, path: Path) -> None:
        """Writes a new file without checks; with standard deviations where the format holds them."""
        options: dict[str, Any] = {}
        if self.original.holds_std and self.std is not None:
            options["std"] = self.std.reshape(self.stack.shape)
        if self.original.located:
            options["points"] = self.points
        if self.original.marks_left and self.left.any():
            options["left"] = self.left.reshape(self.stack.shape)
        self.original.write(path, self.stack, **options)


@one_blas_thread
def fill(
    values: str | os.PathLike[str] | AnyArray | Tensor | EditableFile,
    missing: MissingLike | Mask | Image.Image = "nan",
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
            or a checkpoint of ``prior/cells`` for cells, of ``prior/pictures`` for points.
        folds: Held-out known samples for the score: ``random`` ones, ``blocks``, or ``none`` for no score. ``auto``: of the
            mixture, moved copies of the gaps; else blocks as wide as the gaps where these are wide, or random ones.
        block: Samples per axis of a block.
        axes: Number of axes of a signal, where the shape of an array leaves it open.
        seed: Seed of folds, models and encoders.
        std: Whether to compute standard deviations of missing samples too, which takes further fits. They are NaN where too
            few samples are known.
        grow: Pixels by which missing samples of pictures and frames grow, because damage has soft edges. ``None``: 3 where
            the file is a JPEG, which spreads damage around it, else 0.
        members: Methods of the mixture: some of ``adaptive``, ``autoregressive`` (rows), ``biharmonic`` (pictures),
            ``cubic``, ``delaunay`` (pictures), ``fourier``, ``kriging``, ``motion`` (lost frames), ``neighbours`` and
            ``pchip`` (along the first axis, as between frames), ``patches`` (pictures), ``seasonal`` (rows with a period)
            and ``thin_plate``. By default the ones that suit the axes and numbers of samples.
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
    enlarges = upscale != 1
    check_fill_options(
        model, encoder, smooth, upscale, std, folds, block, grow, noise, noise_sample, max_gap, max_distance, pretrained
    )
    if validation.choice("samples", samples, ("auto", "points", "cells")) == "cells" and not enlarges:
        raise InputError("samples: cells is for enlarging: add upscale (such as 2), or leave it out")
    for name in members or ():
        validation.choice("members", name, (*MEMBERS, SEASONAL))
    if members is not None and (model != "auto" or encoder is not None or smooth or enlarges or not members):
        raise InputError("members are of the mixture that fills gaps: name one or more, without model, smooth and upscale")
    if isinstance(values, (str, os.PathLike, EditableFile)):
        if not isinstance(missing, (str, int, float, list)):
            raise InputError("the mask of a file is a file: save it with numpy.save(path, mask), or as PNG")
        given = {"missing": missing != "nan", "axes": axes is not None, "grow": grow is not None, "key": key is not None}
        if isinstance(values, EditableFile) and (names := [name for name, is_given in given.items() if is_given]):
            raise InputError(
                f"{', '.join(names)}: a file that is read has these already: give them to read_file(path, missing, axes, "
                "grow, key); where a labelled array has numbers for missing values, array.where(array != -9999)"
            )
        original = values if isinstance(values, EditableFile) else read_file(values, missing, axes, grow, key)
        shape = original.values.shape[1:] if len(original.values) == 1 else original.values.shape
        moved = False
    else:
        if key is not None:
            raise InputError("key is the name of an array in a file: leave it out")
        shape = np.shape(values)
        moved = axes is None and channels_first(shape)
        original = _of_array(values, missing, axes, grow)
    stack, marked = original.values, original.missing
    factors = _factors(upscale, original) if enlarges else ()
    if not marked.any() and not smooth and not enlarges:
        raise InputError(
            "no sample is missing, so there is nothing to fill: mark missing samples (missing: mask.png, white where "
            "they are, alpha, '#ff00ff', -9999, or frames:10-14 of a clip), enlarge (upscale: 2), or denoise (smooth)"
        )
    if samples == "auto":
        samples = "points" if stack.ndim - 2 not in (2, 3) or original.points else "cells"
    periods, axes_of_signals = periods_of_grid(periodic, original.axes, stack.ndim - 2)
    options = _Options(
        model, encoder, smooth, factors, samples, pretrained, folds, block, seed, std, members, axes_of_signals,
        noise, noise_sample, original.media, periods, max_gap, max_distance,
    )  # fmt: skip
    check_limits(max_gap, max_distance, axes_of_signals)
    changed, signals, spread, left = [], [], np.zeros(stack.shape if std else 0), np.zeros_like(marked)
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        for place, (name, signal, where) in enumerate(zip(original.names, stack, marked, strict=True)):
            if not where.any() and not smooth and not enlarges:
                changed.append(signal)
                continue
            task = _Signal(name, signal, where, options)
            result, about, deviations = task.fill()
            left[place] = where & task.left[..., None]
            changed.append(result)
            if deviations is not None:
                spread[place] = deviations
            signals.append(about)
    whole = np.stack(changed)
    if enlarges:
        shape = _upscaled_shape(shape, stack.shape, whole.shape)
        marked = left = np.zeros(whole.shape, bool)
    results: list[AnyArray] = [whole, marked, left, *([_smallest_float(spread)] if std else [])]
    if moved:
        results = [np.moveaxis(each, -1, -3) for each in results]
    values, marked, left, *spreads = (each.reshape(shape) for each in results)
    points = enlarges and samples == "points"
    return Filled(values, marked, signals, original, whole, spreads[0] if std else None, points, left)


def _factors(upscale: int | Sequence[int], original: EditableFile) -> tuple[int, ...]:
    """Samples of the result per sample of the source, of each axis."""
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


def _of_array(
    values: AnyArray | Tensor, missing: MissingLike | Mask | Image.Image, axes: int | None, grow: int | None
) -> EditableFile:
    """An array as the signals of a file that is not written."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.ma.getdata(values)
    if array.dtype.kind not in "iuf":
        raise InputError(f"fill takes integers and floating point; got an array of {array.dtype}")
    hidden = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else np.zeros(array.shape, bool)
    if isinstance(missing, Image.Image):
        missing = np.asarray(missing)
    if isinstance(missing, (np.ndarray, Tensor)):
        hidden = hidden | _full_mask(np.asarray(missing), array.shape)
    if axes is None and channels_first(array.shape):
        rank_zero_info(f"values of shape {array.shape} are read with their channels first")
        array, hidden, axes = np.moveaxis(array, -3, -1), np.moveaxis(hidden, -3, -1), 2
    stack = array_as_signals(array, "values", axes)
    marked = hidden.reshape(stack.shape)
    if stack.dtype.kind == "f":
        stack = np.where(marked, np.nan, stack) if hidden.any() else stack  # samples that are not filled stay missing
        marked = marked | ~np.isfinite(stack)
    if not isinstance(missing, (np.ndarray, Tensor)):
        rule = Missing(missing)
        rule.check("arrays")
        if rule.kind == "mask":
            raise InputError("the mask of an array is an array of booleans")
        marked |= is_one_of(stack, rule.values)
        for lost in rule.in_grid(stack.shape[1:-1], len(stack)):
            marked |= lost[..., None]
    note_repeated("values", [stack[~marked]], "give it as missing={0}")
    if grow:
        if stack.ndim < 4:
            raise InputError("grow is for missing samples of pictures and frames")
        marked = grown_mask(marked, grow)
    names = tuple(f"signal{number}" for number in range(len(stack)))
    return EditableFile(names, stack, marked, (), _no_file, resizes=True)


def _no_file(path: Path, values: AnyArray) -> None:
    """An array has no file to write; :meth:`Filled.write` says what to type."""


def _full_mask(mask: AnyArray, shape: tuple[int, ...]) -> Mask:
    """A mask of booleans or numbers for an array, from one of its shape, of its leading axes, or with an axis of 1 last."""
    if mask.ndim > 1 and mask.shape[-1] == 1 and shape[mask.ndim - 1 :] != (1,):
        mask = mask[..., 0]
    plane = channels_first(shape) and mask.shape == shape[-2:]
    numbers = mask.dtype.kind in "biuf" and not np.isnan(mask).any()
    if not numbers or not (plane or mask.shape in (shape, shape[: mask.ndim])):
        raise InputError(
            f"a mask is booleans, or numbers that are not 0 at missing samples, of the shape of the values, {shape}; got "
            f"{mask.dtype} {mask.shape}{'' if numbers else ' with NaN' if mask.dtype.kind == 'f' else ''}"
        )
    if plane:
        return np.broadcast_to(mask != 0, shape)
    return np.broadcast_to((mask != 0).reshape(*mask.shape, *[1] * (len(shape) - mask.ndim)), shape)


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


@dataclass(frozen=True)
class _Options:
    """The arguments of :func:`fill` that hold for every signal."""

    model: ModelName | Callable[[], Fits]
    encoder: str | None
    smooth: bool
    factors: tuple[int, ...]
    samples: SampleKind
    pretrained: str
    folds: FoldsLike
    block: int | None
    seed: int
    std: bool
    members: Sequence[str] | None
    axes: tuple[Axis, ...]
    noise: float | None
    noise_sample: str | None
    media: Media
    periods: tuple[float, ...] | None
    max_gap: Limit | None
    max_distance: Limit | None

    @property
    def is_automatic(self) -> bool:
        return self.model == "auto" and self.encoder is None

    def make_model(self, grid: Sequence[int], known: int, pretrained: str) -> Callable[[], Fits]:
        """A function that makes the model for a signal with so many known samples."""
        if callable(self.model):
            return self.model
        adapts = _adapts(grid, known)
        if self.model == "adaptive" and not adapts:
            raise InputError(f"the adaptive fit needs more samples than {known}, of 1 to 3 axes: set model exact")
        if self.encoder is None and adapts and self.model != "exact":
            if known < math.prod(grid):
                check_fit_memory(known)
            return lambda: AdaptiveFit(noise="auto" if self.smooth else "none", pretrained=pretrained)
        return lambda: LinearRidge(automatic_width(with_seed(self.encoder or "laplace", self.seed)))


class _Signal:
    """One signal ``(N_1, ..., N_D, C)`` with missing values, which are predicted."""

    def __init__(self, name: str, values: AnyArray, missing: Mask, options: _Options) -> None:
        self.name, self.values, self.missing, self.options = name, values, missing, options
        self.unknown: Mask = np.asarray(missing.any(-1))
        """Samples with a missing channel."""
        self.grid, self.num_known = self.unknown.shape, int((~self.unknown).sum())
        if not self.num_known and missing.all():
            raise InputError(
                f"all {self.unknown.size} samples of {name!r} are missing: there is nothing to fit. A mask is 0 at known "
                "samples"
            )
        if not self.num_known and (pattern := _bayer_pattern(missing)):
            raise InputError(
                f"{name!r}: every pixel has one channel, in the Bayer pattern {pattern} of a camera: the package "
                "colour-demosaicing predicts the others, by colour_demosaicing.demosaicing_CFA_Bayer_Menon2007("
                f"np.where(missing, 0, values).sum(-1), {pattern!r})"
            )
        if not self.num_known:
            whole = [str(channel) for channel in range(missing.shape[-1]) if missing[..., channel].all()]
            which = f"channel {', '.join(whole)} is" if whole else "one channel or another of every sample is"
            raise InputError(
                f"{name!r}: {which} missing entirely, of {missing.shape[-1]} (from 0), and a sample is missing if one of "
                "its channels is: leave the channel out, or fill each channel as a signal"
            )
        self.left: Mask = np.zeros_like(self.unknown)
        """Missing samples that stay missing."""
        if options.max_gap is not None or options.max_distance is not None:
            self.left = beyond_limits(self.unknown, options.axes, options.max_gap, options.max_distance)
        self.filled = missing & ~self.left[..., None]
        """Values that are predicted."""
        self.scaling = _scaling(values, missing)
        unit = self.scaling.to_unit(np.where(missing, 0, values) if values.dtype.kind == "f" else values, 0)
        unit[self.unknown] = np.nan
        self.unit = torch.from_numpy(unit)
        """The values in [0, 1], NaN at unknown samples."""

    @cached_property
    def data(self) -> Signals:
        """The known samples, all trained on."""
        name = re.sub(r"[/\\\0]", "_", self.name) or "signal"
        return _read_quietly(TensorSource(self.unit[None], [name], self.options.axes))

    @cached_property
    def complete(self) -> Tensor:
        """The values of :attr:`data`, with missing samples predicted."""
        return _complete(self.data)

    def about(
        self, model: Field | GapMixture | Enlargement | None, periods: Sequence[float] = (), **scores: Any
    ) -> FilledSignal:
        unit = self.scaling.high[0] - self.scaling.low[0]
        lengths = tuple(period * self.length for period in periods)
        counts = int(self.unknown.sum()), self.unknown.size
        return FilledSignal(self.name, *counts, model, unit, periods=lengths, num_left=int(self.left.sum()), **scores)

    def fill(self) -> tuple[AnyArray, FilledSignal, AnyArray | None]:
        """The values, how they were predicted, and standard deviations with the option ``std``."""
        options = self.options
        if self.left.any() and not self.filled.any():
            return self.values, self.about(None, protocol="no sample is filled"), None
        if options.factors and options.samples == "cells":
            return (*self.divide_cells(), None)
        even = all(axis.samples is None for axis in options.axes)
        adapts = options.is_automatic and _adapts(self.grid, self.num_known)
        fills = adapts and not options.smooth and not options.factors
        if fills and even:
            check_fit_memory(self.num_known)
            return self.by_members()
        is_picture, smooths = len(self.grid) == 2 and min(self.grid) >= MIN_PIXELS, options.smooth and adapts
        if even and smooths and is_picture and (noise := self.noise()) is not None:
            result, about, _ = self.by_fit(
                lambda part: _without_noise(self.complete if part is self.data else _complete(part), noise)
            )
            about.noise = about.unit * (
                noise if isinstance(noise, float) else float(noise.std((0, 1)).square().mean().sqrt())
            )
            return (result if about.noise else np.where(self.missing, result, self.values)), about, None
        if options.noise is not None or options.noise_sample is not None:
            raise InputError(
                f"noise and noise_sample are of pictures of at least {MIN_PIXELS} x {MIN_PIXELS} pixels at even distances, "
                f"{2 * NUM_NEIGHBOURS[1] + 1} of them known; {self.name!r} has {' x '.join(map(str, self.grid))} samples, "
                f"{self.num_known} of them known: leave them out"
            )
        if options.members is not None:
            why = "it has too few known samples" if even else "its samples are at unequal distances"
            raise InputError(f"{self.name!r} is not filled by a mixture of members, because {why}: leave members out")
        if fills and len(self.grid) == 1:
            with without_notices():
                return self.by_fit(SeriesFit(self.periods).fit, self.periods)
        if even and smooths and not is_picture and self.unknown.size >= MIN_DENOISED:
            return self.by_fit(_sparse)
        make = options.make_model(self.grid, self.num_known, options.pretrained)
        return self.by_fit(lambda part: make().fit(part))

    def noise(self) -> float | Tensor | None:
        """The noise of a picture: its standard deviation, or a sample ``(h, w, C)``; ``None`` if it is not found."""
        options = self.options
        if options.noise is not None:
            return options.noise / (self.scaling.high[0] - self.scaling.low[0])
        if options.noise_sample is None:
            return noise_level(self.complete[0], torch.from_numpy(~self.unknown))
        sample = self.unit[noise_region(options.noise_sample, self.grid)]
        if not float(sample.std((0, 1)).sum()) > 0:
            raise InputError(f"noise_sample {options.noise_sample!r} has no noise, or missing pixels: name another region")
        return sample

    @cached_property
    def periods(self) -> tuple[float, ...]:
        """Periods of the values of a row, relative to the length of [0, 1): given ones, or ones that are found."""
        (size,), axes, given, known = self.grid, self.options.axes, self.options.periods, ~self.unknown
        if given is not None:
            return tuple(period / self.length for period in given)
        if self.options.media == "audio" or not 1 < self.num_known <= MAX_SEASONAL:
            return ()
        times = axes[0].grid() if axes else np.arange(size) / size
        return find_periods(times[known], self.unit.double().numpy()[known])

    @property
    def length(self) -> float:
        """The length of [0, 1) of a row in the unit of its axis, or in samples."""
        return abs(self.options.axes[0].length) if self.options.axes else float(self.grid[0])

    def by_members(self) -> tuple[AnyArray, FilledSignal, AnyArray | None]:
        """By a mixture of members, weighted and scored by imitated gaps."""
        options, known = self.options, torch.from_numpy(~self.unknown)
        periodic = [axis.periodic for axis in options.axes]
        imitates = options.folds in ("auto", "none") and options.block is None
        wanted = torch.from_numpy(self.unknown & ~self.left)
        hidden = imitated_gaps(~wanted, options.seed, periodic) if imitates else []
        if self.left.any():  # the copies are of gaps that are filled
            hidden = [some._replace(mask=some.mask & known, scored=some.scored & known) for some in hidden]
            hidden = [some for some in hidden if bool(some.scored.any())]
        protocol = f"{len(hidden)} {hidden[0].words}" if hidden else ""
        if not hidden and (scored := self.make_folds()) is not None:
            sampling, count, protocol = scored
            hidden = [Hidden(mask, mask) for mask in map(torch.from_numpy, islice(self.held_out(sampling), count))]
        for name in options.members or ():
            if len(self.grid) not in (axes := MEMBER_AXES.get(name, (len(self.grid),))):
                takes = " or ".join(map(str, axes))
                raise InputError(
                    f"the member {name!r} fills signals of {takes} axes; {self.name!r} has {len(self.grid)}: leave it out"
                )
        names, periods, others = list(options.members or default_members(known)), tuple[float, ...](), dict[str, Member]()
        if len(self.grid) == 1 and (options.members is None or SEASONAL in names):
            periods = self.periods
            in_samples = [period * self.grid[0] for period in periods]
            others = {SEASONAL: SeasonalMember(self.unit, known, in_samples)} if periods else {}
            names += [] if SEASONAL in names else [*others]
        if SEASONAL in names and not others:
            raise InputError(f"{self.name!r} has no period for the member {SEASONAL!r}: leave it out, or give periodic")
        with without_notices():
            found = fill_gaps(self.unit, known, names, hidden, periodic, others, wanted)
        for name, why in found.failed.items():
            rank_zero_info(f"{self.name!r}: the member {name!r} is left out, as it cannot be computed ({why})")
        about = self.about(found, periods)
        if not found.held_out:
            about.protocol = NO_FOLDS
        elif options.folds != "none":
            factors = torch.cat([some.carried for some in found.held_out]).flatten().tolist()
            low, high = f"{min(factors):.2f}", f"{max(factors):.2f}"
            times = low if low == high else f"{low} to {high}"
            about.protocol = protocol if times == "1.00" else f"{protocol}, errors times {times}"
            about.score, about.baselines, about.left_out = interpolated_gaps(self.unit, names, found.held_out, options.seed)
        result = np.where(self.filled, self.scaling.restore(found.values.numpy(), 0), self.values)
        return result, about, np.where(self.filled, found.std.double().numpy() * about.unit, 0) if options.std else None

    def by_fit(
        self, fitted: Callable[[Signals], Field], periods: Sequence[float] = ()
    ) -> tuple[AnyArray, FilledSignal, AnyArray | None]:
        """By one fit, scored by folds."""
        options, scaling, missing, data = self.options, self.scaling, self.missing, self.data
        held_out: dict[str, Any] = {}
        if options.folds != "none" and options.factors:
            held_out = _upscale_scores(data, fitted, options.factors)
        elif options.folds != "none":
            held_out["protocol"] = NO_FOLDS
            if (scored := self.make_folds()) is not None:
                sampling, count, held_out["protocol"] = scored
                with torch.random.fork_rng():
                    held_out["score"] = score_folds(data, fitted, sampling, count)
                held_out["baselines"], held_out["left_out"] = interpolated_folds(data, sampling, count)
        model = fitted(data)
        about = self.about(model, periods, **held_out)
        if options.factors:
            axes = grid_axes([f * n for f, n in zip(options.factors, self.grid, strict=True)])
            with torch.no_grad():
                result = scaling.restore(model.grid(axes)[0].cpu().numpy(), 0)
            at_known = tuple(slice(None, None, factor) for factor in options.factors)
            result[at_known] = np.where(missing, result[at_known], self.values)
            return result, about, None
        index = torch.from_numpy(np.flatnonzero(np.ones_like(self.unknown) if options.smooth else self.filled.any(-1)))
        predicted = scaling.restore(predicted_at(model, data.evaluation_batch(), index)[0].numpy(), 0)
        result, channels = self.values.copy(), self.values.shape[-1]
        flat, where = result.reshape(-1, channels), self.filled.reshape(-1, channels)[index]
        flat[index] = predicted if options.smooth else np.where(where, predicted, flat[index])
        if not options.std:
            return result, about, None
        deviations = np.zeros(result.shape)
        if model.has_std:
            found = _deviations(model, data, index).double().numpy() * about.unit
        else:
            rank_zero_info(f"{self.name!r}: {self.num_known} samples give {model.label} no deviations: they are NaN")
            found = np.full(predicted.shape, np.nan)
        deviations.reshape(-1, channels)[index] = np.where(where, found, 0)
        return result, about, deviations

    def make_folds(self) -> tuple[FoldSampling, int, str] | None:
        """Folds with held-out samples as far from known ones as missing samples; how many are scored; both in words.

        A fold holds out at most half of the known samples. ``None`` if these are too few, or too close to each other, for
        folds that nobody has asked for.
        """
        folds, block, seed = self.options.folds, self.options.block, self.options.seed
        given, distance = folds in ("random", "blocks") or block is not None, mean_distance(self.unknown)
        if folds not in ("random", "blocks"):
            wide = block is not None or has_wide_gaps(distance, float(self.unknown.mean()), self.grid, seed)
            folds = "blocks" if wide else "random"
        if folds == "random" and block is not None:
            raise InputError("block is the size of blocks: set folds blocks, or leave it out")
        side = block or max(2, round(4 * distance - 2))  # samples of a long gap of width w are w/4 + 1/2 from its edges
        sizes = [min(side, max(1, n // 5)) if block is None else side for n in self.grid]
        for blocks in [sizes] * (folds == "blocks") + [None] * (folds == "random" or not given):
            number = min(5, math.prod(-(-n // size) for n, size in zip(self.grid, blocks or [1] * len(sizes), strict=True)))
            sampling = FoldSampling("blocks" if blocks else "random", max(2, number), size=blocks, seed=seed)
            most = min(number, max(1, MAX_FOLD_SAMPLES // self.num_known))
            masks = self.held_out(sampling) if number > 1 else iter([~self.unknown])
            counts = [int(mask.sum()) for mask in islice(masks, most)]
            if max(counts) <= min(self.num_known // 2, self.num_known - 2):
                some = f"{len(counts)} of " if len(counts) < number else ""
                return sampling, len(counts), some + sampling.words()
        if given:
            raise InputError(
                f"{self.name!r}, {sampling.words()}: a fold would hold out more than half of the {self.num_known} known "
                "samples: leave out folds and block, or set folds none"
            )
        return None

    def held_out(self, sampling: FoldSampling) -> Iterator[Mask]:
        """The known samples of each fold that has some."""
        for fold in range(sampling.number):
            trained = sampling.of(fold).split(self.grid, 1).train_mask().reshape(self.grid).numpy()
            mask: Mask = ~self.unknown & ~trained
            if mask.any():
                yield mask

    def divide_cells(self) -> tuple[AnyArray, FilledSignal]:
        """Means over the parts of the samples, which are means over cells; missing cells are filled first."""
        options, factors = self.options, self.options.factors
        check_enlarging_memory(self.name, self.values.shape, factors)
        unit = self.unit
        if self.missing.any():
            points = replace(options, factors=(), smooth=False, folds="none", std=False, samples="points")
            whole, _, _ = _Signal(self.name, self.values, self.missing, points).fill()
            unit = torch.from_numpy(self.scaling.to_unit(whole, 0)).clamp(0, 1)
        scored = options.folds != "none" and len([factor for factor in factors if factor > 1]) > 1
        alternatives = {key: by_pillow(method, factors) for key, method in PILLOW.items()} if scored else {}
        found = enlarge_cells(unit, factors, self.members_of_cells(), alternatives, self.values.dtype.kind in "iu")
        about = self.about(found)
        if found.truth is None:
            about.protocol = TOO_SMALL.format(MIN_REDUCED_SAMPLES * max(factors))
        elif options.folds != "none":
            by = "x".join(map(str, factors)) if len(set(factors)) > 1 else str(factors[0])
            about.protocol = f"the signal reduced to means over cells, 1/{by}, and enlarged again"
            scores = {key: _score(prediction, found.truth) for key, prediction in found.held_out.items()}
            about.score, about.baselines = scores.pop(""), {key: scores[key] for key in alternatives}
        return self.scaling.restore(found.values.numpy(), 0), about

    def members_of_cells(self) -> dict[str, Enlarger]:
        """Methods that divide cells, by name."""
        options, factors, automatic = self.options, self.options.factors, self.options.is_automatic
        found: dict[str, Enlarger] = {}
        if automatic and options.pretrained != NO_PRIOR:
            prior = read_prior(options.pretrained, "cells")
            if all(factor == 1 or prior.steps(factor) for factor in factors):
                found[f"the network {options.pretrained!r} trained on other pictures"] = by_network(prior, factors)
        size = math.prod(self.grid)
        make = replace(options, smooth=False).make_model(self.grid, size, NO_PRIOR if automatic else options.pretrained)

        def fit(part: Tensor) -> Field:
            return make().fit(_read_quietly(TensorSource(part[None]), "cells"))

        return {**found, "Adaptive" if automatic else "the fit": by_fit(fit, factors)}


def _read_quietly(source: TensorSource, samples: SampleKind = "points") -> Signals:
    """Values in memory, whose known samples are all trained on."""
    with without_notices():
        return Signals.read(source, Splitting(GridSampling(1), "none", Storage(in_memory=True), samples=samples))


def _smallest_float(std: AnyArray) -> AnyArray:
    """Standard deviations as float32, or as float64 where float32 has no numbers of their size."""
    known, limits = std[std > 0], np.finfo(np.float32)
    fits = not known.size or (known.min() >= limits.tiny and known.max() <= limits.max)
    return std.astype(np.float32) if fits else std


def _adapts(grid: Sequence[int], known: int) -> bool:
    """Whether local fits have enough samples."""
    return len(grid) <= len(NUM_NEIGHBOURS) and known > 2 * NUM_NEIGHBOURS[min(len(grid), 3) - 1]


def _complete(data: Signals) -> Tensor:
    """The values of one signal ``(1, N_1, ..., N_D, C)``, with missing samples predicted."""
    values, trained = data.values.clone(), data.split.train_mask()
    if not bool(trained.all()):
        index = (~trained[0]).flatten().nonzero()[:, 0]
        filled = predicted_at(AdaptiveFit().fit(data), data.evaluation_batch(), index)
        values.view(1, -1, values.shape[-1])[:, index] = filled.clamp(0, 1)
    return values


def _sparse(data: Signals) -> Field:
    """A sparse fit of one signal on the whole grid, which smooths noise."""
    return SparseRidge(DENOISING_ENCODER, SparseOptions("auto"), 0.0).fit(_read_quietly(TensorSource(_complete(data))))


def _without_noise(values: Tensor, noise: float | Tensor) -> Field:
    """A picture on the whole grid without noise of a level, or as in a sample."""
    label = "no noise"
    if isinstance(noise, Tensor):
        values, label = remove_noise(values[0], noise)[None], "patches"
    elif noise:
        clean, weight = mixed_denoising(values[0], noise)
        values, label = clean[None], f"patches {weight:.2f}, sparse fit {1 - weight:.2f}"
    field = LinearRidge(DENOISING_ENCODER, 0.0).fit(_read_quietly(TensorSource(values.clamp(0, 1))))
    field.label = label
    return field


def _deviations(model: Field, data: Signals, index: Tensor) -> Tensor:
    """Standard deviations of predictions of one signal at samples of the grid, ``(P, C)``."""
    batch = data.evaluation_batch()
    assert isinstance(batch, GridBatch)
    coords = point_coordinates(batch.axes, index)
    with torch.no_grad():
        return torch.cat([model.std(some).cpu() for some in torch.split(coords, POINTS_AT_ONCE)])


def _bayer_pattern(missing: Mask) -> str:
    """The colours of 2 x 2 pixels, such as ``RGGB``, if all pixels have one channel in such a pattern; else empty."""
    if missing.ndim != 3 or missing.shape[-1] != 3 or min(missing.shape[:2]) < 2:
        return ""
    cell = ~missing[:2, :2]
    pattern = "".join("RGB"[channel] for channel in cell.argmax(-1).flat)
    height, width = missing.shape[:2]
    repeated = np.tile(cell, (-(-height // 2), -(-width // 2), 1))[:height, :width]
    is_bayer = sorted(pattern) == ["B", "G", "G", "R"] and bool((cell.sum(-1) == 1).all())
    return pattern if is_bayer and np.array_equal(repeated, ~missing) else ""


def _scaling(values: AnyArray, missing: Mask) -> ValueRange:
    """The range that becomes [0, 1]: all integers of 8 and 16 bits, else minimum and maximum of the known values."""
    if values.dtype.kind in "iu" and values.dtype.itemsize <= 2:
        return ValueRange.of_integers(values.dtype)
    known = values[~missing]
    low, high = float(known.min()), float(known.max())
    high = high if high > low else low + max(abs(low), 1.0)
    return ValueRange(values.dtype.name, (low,), (high,))


def _upscale_scores(data: Signals, fitted: Callable[[Signals], Field], factors: tuple[int, ...]) -> dict[str, Any]:
    """Score of enlarging values at points: the picture is reduced, enlarged again, and compared with itself.

    It is reduced by Pillow's LANCZOS, whose samples are at the centres of the samples that they are made of: the model is
    fitted there. Samples at the edges are left out.
    """
    values, info = data.values[0], data.info
    if info.num_axes != 2 or not bool(values.isfinite().all()) or len(set(factors)) > 1:
        return {"protocol": "enlargements are scored for pictures without missing samples"}
    if too_small(values.shape, factors):
        return {"protocol": TOO_SMALL.format(MIN_REDUCED_SAMPLES * max(factors))}
    upscale, sizes = factors[0], [n // factors[0] for n in info.grid]
    target = values[: sizes[0] * upscale, : sizes[1] * upscale]
    small = resized_by_pillow(target, sizes, Image.Resampling.LANCZOS).clamp(0, 1)
    inner = slice(LANCZOS_MARGIN * upscale, -LANCZOS_MARGIN * upscale)
    places = [((torch.arange(n * upscale) - (upscale - 1) / 2) / (n * upscale))[inner] for n in sizes]
    with torch.no_grad():
        own = fitted(_read_quietly(TensorSource(small[None]))).grid(places)[0].cpu()
    truth = target[inner, inner]
    return {
        "protocol": f"the picture reduced to 1/{upscale} by LANCZOS and enlarged again",
        "score": _score(own, truth),
        "baselines": {
            name: _score(by_pillow(method, factors)(small)[inner, inner], truth) for name, method in PILLOW.items()
        },
    }


def _score(values: Tensor, truth: Tensor) -> FoldScore:
    return FoldScore.of_squared_errors((values.double() - truth).square().mean()[None])


def _upscaled_shape(shape: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the result with more samples per axis."""
    found = list(shape)
    start = next(place for place in range(len(shape)) if shape[place : place + len(before) - 2] == before[1:-1])
    found[start : start + len(before) - 2] = after[1:-1]
    return tuple(found)


def check_suffix(path: Path, original: EditableFile) -> None:
    """Refuses a path with a suffix of another format."""
    name = path.name.lower()
    if not any(name.endswith(suffix) if suffix else not path.suffix for suffix in original.suffixes):
        listed = ", ".join(suffix or "a folder" for suffix in original.suffixes)
        instead = path.with_suffix(original.suffixes[0])
        raise InputError(f"cannot write {str(path)!r}: the result is written as {listed}; type --out {instead}")


def write_std(path: Path, filled: Filled) -> None:
    """Writes standard deviations as float32: ``.tif``, with the coordinates of the file if it has some, or ``.npy``."""
    import tifffile

    assert filled.std is not None
    if path.suffix != ".npy" and filled.original.located:
        filled.original.write(path, filled.std.reshape(filled.stack.shape), deviations=True)
        return
    content = io.BytesIO()  # NumPy does not report a full disk
    if path.suffix == ".npy":
        np.save(content, filled.std)
    else:
        photometric = "rgb" if filled.std.ndim == 3 and filled.std.shape[-1] == 3 else "minisblack"
        tifffile.imwrite(content, filled.std, photometric=photometric)
    path.write_bytes(content.getbuffer())
