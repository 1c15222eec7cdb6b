"""Interpolation of scattered samples that is compared with fits, beside the methods of the framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from scipy.interpolate import CloughTocher2DInterpolator, RBFInterpolator
from scipy.spatial import cKDTree
from torch import Tensor

from pe_lightning.evaluation.baselines import Array, Delaunay, Interpolation
from pe_lightning.linalg.threads import one_blas_thread
from pe_lightning.signals import SignalInfo, Split


class CloughTocher(Delaunay):
    """Cubic interpolation on the Delaunay triangulation of scattered points of two axes, with continuous slopes."""

    program = "scipy.interpolate.CloughTocher2DInterpolator"
    num_axes = (2,)
    interpolator = CloughTocher2DInterpolator


class LinearRadialBasis(Interpolation):
    """Radial basis functions ``-r`` and a constant, fitted to the nearest 50 samples of every place."""

    program = "scipy.interpolate.RBFInterpolator(neighbors=50, kernel='linear')"
    on_points = True
    kernel: ClassVar[str] = "linear"
    fast_places: ClassVar[Mapping[int, int]] = dict.fromkeys((1, 2, 3), 48_000)  # one system for each

    @one_blas_thread
    def scattered(self, points: Array, known: Array, wanted: Array) -> Array:
        if not len(wanted):  # which SciPy refuses
            return known[:0]
        result: Array = RBFInterpolator(points, known, neighbors=min(50, len(points)), kernel=self.kernel)(wanted)
        return result


class ThinPlate(LinearRadialBasis):
    """Thin plate splines fitted to the nearest 50 samples of every place."""

    program = "scipy.interpolate.RBFInterpolator(neighbors=50)"
    kernel = "thin_plate_spline"


class InverseDistance(Interpolation):
    """The mean of the nearest 12 samples, weighted by the inverse of their squared distances.

    Reference: Shepard, *A two-dimensional interpolation function for irregularly-spaced data*, ACM Conference, 1968.
    """

    program = "sklearn.neighbors.KNeighborsRegressor(12)"
    on_points = True

    def scattered(self, points: Array, known: Array, wanted: Array) -> Array:
        distance, near = cKDTree(points).query(wanted, np.arange(1, min(12, len(points)) + 1))
        weights = np.maximum(distance, np.finfo(np.float64).tiny ** 0.25) ** -2
        result: Array = np.einsum("qk,qkc->qc", weights / weights.sum(1, keepdims=True), known[near])
        return result


class Biharmonic(Interpolation):
    """The biharmonic equation on the missing samples of a grid.

    Reference: Damelin and Hoang, *On Surface Completion and Image Inpainting by Biharmonic Functions*, International Journal
    of Mathematics and Mathematical Sciences, 2018.
    """

    program = "skimage.restoration.inpaint_biharmonic"
    on_points = True
    fast_places: ClassVar[Mapping[int, int]] = {
        2: 100_000,
        3: 10_000,
    }  # the factors of one sparse system fill in, more with more axes

    def applies_to(self, info: SignalInfo, split: Split) -> bool:
        return info.num_points is None and super().applies_to(info, split)

    def from_points(self, values: Tensor, coords: Tensor, axes: Sequence[Tensor] | Tensor) -> Tensor:
        from skimage.restoration import inpaint_biharmonic  # takes a while, and few fits need it

        on_grid = not isinstance(axes, Tensor) and all(
            torch.allclose(x, torch.arange(len(x), dtype=x.dtype), rtol=0, atol=1e-3) for x in axes
        )
        if not on_grid or not torch.allclose(coords, coords.round(), rtol=0, atol=1e-3):
            raise ValueError("they are not on a grid with equal distances")
        shape = tuple(len(x) for x in axes)
        filled = []
        for places, known in zip(coords.expand(len(values), -1, -1), values, strict=True):
            where = tuple(places.round().long().T.numpy())
            image, missing = np.zeros((*shape, known.shape[-1])), np.ones(shape, dtype=bool)
            image[where], missing[where] = known.double().cpu().numpy(), False
            found = inpaint_biharmonic(image, missing, channel_axis=-1)
            if not np.isfinite(found).all():  # SciPy's solver returns NaN for a singular system
                raise ValueError("the system is singular")
            filled.append(torch.from_numpy(found))
        return torch.stack(filled).to(values)
