r"""A coordinate network of one cell of a grid of samples: values from the samples around it and the place within the cell.

The cell at the samples ``(i, j)``, ``(i, j + 1)``, ``(i + 1, j)``, ``(i + 1, j + 1)`` has a function of the place
``(u, v)``, which is (0, 0) at the first of them and (1, 1) at the last:

.. math:: f(u, v) = b(u, v) + s\,(1 - \cos^2 \pi u \, \cos^2 \pi v)\; \psi(u)^T C(p)\, \psi(v)

``b`` is Keys' bicubic interpolation, ``psi`` the features of an encoder, ``C(p)`` the output of a perceptron for the patch
``p`` of the 6 x 6 samples around the cell, normalised by mean and deviation ``s`` of its inner 4 x 4, and negated where the
cell is darker than these. The second factor is zero at samples, which are thus reproduced. The function of a cell is used up
to half a cell beyond its borders, where it is blended with the functions of its neighbours.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from pe_fill.networks.cells import LEFT, MAX_PATCHES, MAX_PATCHES_GPU, TRANSPOSED, UP, moments, orientations, turns
from pe_lightning.encoders import EncoderLike, Shifted, resolve
from pe_lightning.encoders.kernels import KERNELS
from pe_lightning.encodings import EncoderList, Encoding
from pe_lightning.errors import InputError
from pe_lightning.networks import MLP

PATCH = 6
"""Samples of a patch along each axis: two before the cell, its two ends, and two after it."""
INNER = slice(1, 5)
"""The inner samples of a patch, whose mean and standard deviation normalise it."""
DEFAULT_ENCODER: dict[str, Any] = {"name": "gau", "num_features": 5, "sigma": 0.16}
"""Encoder of the place within a cell: Gaussians at -1/2, 0, 1/2, 1 and 3/2 cells, 0.8 of their distance wide."""
DEFAULT_NUM_FEATURES = 5
"""Features per axis of an encoder without a number of its own."""
DEVIATION_OFFSET = 0.02
"""Added to the standard deviation of a patch, so that noise of flat patches is not enlarged."""
MIN_DEVIATION = 0.01
"""Standard deviation of the inner samples below which a cell is interpolated bicubically."""
SNAP = 2.0**-12
"""Distance before a sample, in trained samples, within which a point belongs to the cell of that sample."""
MAX_NUMBERS = 1 << 23
"""Intermediate numbers that are held at once."""


def keys_kernel(offsets: Tensor) -> Tensor:
    """Keys' cubic convolution kernel, a = -1/2, at offsets in samples; differentiable."""
    return KERNELS["keys"].value(offsets, 1.0)


def blend_weight(place: Tensor) -> Tensor:
    r"""Weight of a cell at a place in [-1/2, 3/2], :math:`\cos^2(\pi (u - 1/2) / 2)`; neighbours add up to one."""
    return torch.cos((place - 0.5) * (math.pi / 2)).square()


def contrast(inner: Tensor) -> tuple[Tensor, Tensor]:
    """Scale of a patch, and whether its cell is bicubic, of its inner samples: ``(B, 4, 4)`` -> ``(B,)``, ``(B,)``."""
    deviation = moments(inner)[1]
    return deviation + DEVIATION_OFFSET, deviation <= MIN_DEVIATION


class LocalPrior(Encoding):
    """The part of the network that is trained, on other pictures: a perceptron from patches to coefficients of features.

    The perceptron sees every patch in one of its eight orientations, and negated if its middle is dark
    (:func:`~pe_fill.networks.cells.orientations`): reflected, transposed and negative pictures have such values too.

    Args:
        encoder: Encoder of the place within a cell along each axis, mapped to [0, 1]; not trained. The span of its features
            must contain their reflection at the middle of the cell.
        width: Units per hidden layer.
        depth: Number of hidden layers.
        activation: Name of the activation.
        negated: Whether dark patches are negated; False for weights that were trained without it.

    Reference: after Chen, Liu, Wang, *Learning Continuous Image Representation with Local Implicit Image Function*, CVPR
    2021; orientations after Romano, Isidoro, Milanfar, *RAISR*, IEEE Trans. Computational Imaging 3, 2017.
    """

    name: ClassVar[str] = "local"
    reflection: Tensor
    places: Tensor

    def __init__(
        self,
        encoder: EncoderLike | None = None,
        width: int = 192,
        depth: int = 2,
        activation: str = "relu",
        negated: bool = True,
    ) -> None:
        super().__init__(2)
        given = resolve(DEFAULT_ENCODER if encoder is None else encoder)
        if given.is_open:
            given = given.copy(num_features=given.multiple * -(-DEFAULT_NUM_FEATURES // given.multiple))
        if given.num_axes != 1 or not given.axiswise or any(True for _ in given.parameters()):
            raise InputError(f"LocalPrior takes an encoder of one axis without parameters, got {given.name!r}: use gau")
        self.width, self.depth = width, depth
        self.activation, self.negated = activation, negated
        self.encoders = EncoderList([given, given])
        self.num_features = given.num_features
        """Features of one axis, ``K``."""
        self.trunk = MLP(PATCH**2, self.num_features**2, depth, width, activation)
        nn.init.zeros_(self.trunk.layers[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.trunk.layers[-1].bias)  # type: ignore[arg-type]
        self.register_buffer("reflection", self._reflection(), persistent=False)
        self.register_buffer("places", turns(PATCH), persistent=False)

    def for_axes(self, num_axes: int) -> LocalPrior:
        """A copy with the same weights for signals of so many axes: such as the frames of a clip."""
        prior = copy.copy(self)  # shares parameters and buffers
        prior.num_axes = num_axes
        return prior

    def spec(self) -> dict[str, Any]:
        """The constructor's arguments as plain values."""
        shape = {"width": self.width, "depth": self.depth, "activation": self.activation, "negated": self.negated}
        return {"encoder": self.encoders[0].spec(), **shape}

    @property
    def num_params(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def features(self, place: Tensor) -> Tensor:
        """Features of places along an axis: ``(*batch,)`` in [-1/2, 3/2] -> ``(*batch, K)``."""
        encoder = self.encoders[0]
        x = (place + 0.5) / 2
        if isinstance(encoder, Shifted):  # the shifts are at i / K: the middle one at the middle of the cell
            x = x * ((encoder.resolution - 1) / encoder.resolution)
        features: Tensor = encoder(x)
        return features

    def _reflection(self) -> Tensor:
        """The matrix ``J`` ``(K, K)`` with ``features(1 - u) = features(u) @ J``."""
        place = torch.linspace(-0.5, 1.5, 129, dtype=torch.float64)
        features, reflected = self.features(place), self.features(1 - place)
        matrix: Tensor = torch.linalg.lstsq(features, reflected, driver="gelsd").solution
        # largest error of reflected features, relative to the largest feature
        if (features @ matrix - reflected).abs().max() > 1e-3 * reflected.abs().max():
            raise InputError(
                f"the features of {self.encoders[0].name!r} are not closed under reflection at the middle of a cell; use an "
                "encoder that is, such as gau, tri, bspline, linf or logf"
            )
        return matrix.float()

    def coefficients(self, patches: Tensor) -> Tensor:
        """Coefficients of the features of cells: patches ``(B, 6, 6)`` -> ``(B, K, K)``, in units of the samples."""
        mean, deviation = moments(patches[:, INNER, INNER])
        orientation, sign = orientations(patches, self.negated)
        scale = sign * (deviation + DEVIATION_OFFSET)
        x = ((patches - mean[:, None, None]) / scale[:, None, None]).flatten(1)
        found = self.trunk(x.gather(1, self.places[orientation])).unflatten(1, (self.num_features, self.num_features))
        # back from orientation 0: a patch that is transposed or reflected has such coefficients
        transposed, left, up = (((orientation & flag) > 0)[:, None, None] for flag in (TRANSPOSED, LEFT, UP))
        found = torch.where(transposed, found.mT, found)
        found = torch.where(left, found @ self.reflection.mT, found)
        found = torch.where(up, (found.mT @ self.reflection.mT).mT, found)
        result: Tensor = found * scale[:, None, None]
        return result

    @torch.no_grad()
    def coefficients_of_cells(self, patches: Tensor) -> Tensor:
        """:meth:`coefficients` of many cells, zero for flat ones: ``(B, 6, 6)`` -> ``(B, K, K)``."""
        result = patches.new_zeros(len(patches), self.num_features, self.num_features)
        index = (moments(patches[:, INNER, INNER])[1] > MIN_DEVIATION).nonzero()[:, 0]
        limit = MAX_PATCHES if patches.device.type == "cpu" else MAX_PATCHES_GPU
        for some in torch.split(index, limit) if len(index) else ():
            result[some] = self.coefficients(patches[some].to(self.reflection)).to(result)
        return result

    def forward(self, patches: Tensor, place: Tensor) -> Tensor:
        """Values of cells at the places of a grid: ``(B, 6, 6)``, ``(n,)`` in [-1/2, 3/2] -> ``(B, n, n)``."""
        taps = torch.arange(-2, PATCH - 2, dtype=place.dtype, device=place.device)
        keys, features, cosine = keys_kernel(place[:, None] - taps), self.features(place), _cosine(place)
        envelope = 1 - cosine[:, None] * cosine
        return keys @ patches @ keys.mT + envelope * (features @ self.coefficients(patches) @ features.mT)


def _cosine(place: Tensor) -> Tensor:
    """The factor of one axis of the envelope: one at samples."""
    return torch.cos(place * math.pi).square()


class _Axis(NamedTuple):
    """Positions along an axis of the samples.

    Args:
        taps: Samples of bicubic interpolation within the grid, ``(N, 4)``.
        keys: Weights of these samples, ``(N, 4)``.
        cells: The two cells that are blended, ``(N, 2)``.
        features: Features of the place in each cell, times the weight of the cell, ``(N, 2, K)``.
        cosine: Factor of the envelope, ``(N,)``.
    """

    taps: Tensor
    keys: Tensor
    cells: Tensor
    features: Tensor
    cosine: Tensor


class LocalGrid:
    """One signal ``(n_1, n_2, C)`` of two axes on a grid of trained samples, as a function of coordinates.

    Each channel is predicted by itself. Beyond the outermost samples the border is replicated. The function reproduces the
    samples and has continuous first derivatives. Coordinates are positions divided by ``grid``; samples have the positions
    ``first + i step``.
    """

    num_members = 1

    def __init__(
        self, prior: LocalPrior, values: Tensor, grid: Sequence[int], first: Sequence[float], step: Sequence[float]
    ) -> None:
        self.prior, self.values, self.grid, self.first, self.step = prior, values, grid, first, step
        self.sizes = values.shape[:-1]

    def _along(self, x: Tensor, axis: int) -> _Axis:
        """Coordinates ``(N,)`` in [0, 1) of an axis; differentiable."""
        position = (x * self.grid[axis] - self.first[axis]) / self.step[axis]
        cell = (position.detach() + SNAP).floor()
        place = position - cell
        step = torch.where(place.detach() < 0.5, -1.0, 1.0).to(place)  # the other cell is the nearer neighbour
        places = torch.stack([place, place - step], 1)
        features = self.prior.features(places.float() if places.dtype == torch.float16 else places).to(place)
        around = torch.arange(-1, 3, device=x.device)
        index = cell.long()
        return _Axis(
            (index[:, None] + around).clamp(0, self.sizes[axis] - 1),
            keys_kernel(place[:, None] - around),
            torch.stack([index, index + step.long()], 1),
            features * blend_weight(places)[..., None],
            _cosine(place),
        )

    def _windows(self) -> Tensor:
        """The patches of all cells and of cells beyond the borders, as a view: ``(n_1 + 5, n_2 + 5, C, 6, 6)``."""
        i, j = (torch.arange(-5, n + 5, device=self.values.device).clamp(0, n - 1) for n in self.sizes)
        return self.values[i][:, j].unfold(0, PATCH, 1).unfold(1, PATCH, 1)

    def _window_index(self, cells: Tensor, axis: int) -> Tensor:
        """Places of cells in :meth:`_windows`; further beyond a border all patches are equal."""
        return (cells + 3).clamp(0, self.sizes[axis] + 4)

    @torch.no_grad()
    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, N_2, C)``."""
        rows, columns = (_cast(self._along(x.double(), axis), self.values) for axis, x in enumerate(axes))
        used, which = torch.unique(columns.cells, return_inverse=True)
        channels, count = self.values.shape[-1], self.prior.num_features
        result, windows = self.values.new_empty(*map(len, axes), channels), self._windows()
        step = max(1, MAX_NUMBERS // (len(used) * channels * count**2))
        for tile in torch.split(torch.arange(len(axes[0]), device=result.device), step):
            own = _Axis(*(part[tile] for part in rows))
            cells, place = torch.unique(own.cells, return_inverse=True)
            patches = windows[self._window_index(cells, 0)[:, None], self._window_index(used, 1)]
            found = self.prior.coefficients_of_cells(patches.reshape(-1, PATCH, PATCH))
            found = found.reshape(len(cells), -1, count, count).transpose(2, 3).reshape(len(cells), -1, count)
            shape = (len(own.cosine), len(used), channels, count)
            lines = torch.zeros(shape, dtype=found.dtype, device=found.device)
            residual = torch.zeros((), dtype=found.dtype, device=found.device)
            for side in (0, 1):
                lines += torch.bmm(found[place[:, side]], own.features[:, side, :, None]).reshape(shape)
            for side in (0, 1):
                near = lines[:, which[:, side]]
                residual = residual + torch.einsum("yxcl,xl->yxc", near, columns.features[:, side])
            base = _weighted(_weighted(self.values, own.taps, own.keys, 0), columns.taps, columns.keys, 1)
            envelope = 1 - own.cosine[:, None] * columns.cosine
            result[tile] = base + envelope[..., None] * residual
        return result

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(P, 2)`` in [0, 1), differentiable: ``(P, C)``."""
        if len(points) == 0:
            return self.values.new_zeros(0, self.values.shape[-1])
        per_point = 4 * self.values.shape[-1] * (PATCH**2 + self.prior.num_features**2)
        windows = self._windows()
        return torch.cat([self._at(some, windows) for some in torch.split(points, max(1, MAX_NUMBERS // per_point))])

    def _at(self, points: Tensor, windows: Tensor) -> Tensor:
        rows, columns = (self._along(x, axis) for axis, x in enumerate(points.unbind(1)))
        channels, count = self.values.shape[-1], self.prior.num_features
        near = self.values[rows.taps[:, :, None], columns.taps[:, None]]  # (P, 4, 4, C)
        base = torch.einsum("pi,pj,pijc->pc", rows.keys.to(near), columns.keys.to(near), near)
        residual = torch.zeros((), dtype=near.dtype, device=near.device)
        for left, right in itertools.product((0, 1), repeat=2):
            cells = torch.stack([rows.cells[:, left], columns.cells[:, right]], 1)
            pair, which = torch.unique(cells, dim=0, return_inverse=True)
            i, j = (self._window_index(cells, axis) for axis, cells in enumerate(pair.unbind(1)))
            patches = windows[i, j]  # (U, C, 6, 6)
            coefficients = self.prior.coefficients_of_cells(patches.reshape(-1, PATCH, PATCH))
            coefficients = coefficients.reshape(len(pair), channels, count, count)[which]
            u, v = rows.features[:, left].to(coefficients), columns.features[:, right].to(coefficients)
            residual = residual + torch.einsum("pk,pckl,pl->pc", u, coefficients, v)
        return base + (1 - rows.cosine * columns.cosine)[:, None].to(near) * residual


def _cast(along: _Axis, like: Tensor) -> _Axis:
    return _Axis(*(part.to(like.dtype) if part.is_floating_point() else part for part in along))


def _weighted(values: Tensor, taps: Tensor, weights: Tensor, axis: int) -> Tensor:
    """Weighted sums of the entries of an axis: ``taps``, ``weights`` ``(N, 4)``."""
    shape = [-1 if a == axis else 1 for a in range(values.ndim)]
    terms = (values.index_select(axis, i) * w.reshape(shape) for i, w in zip(taps.unbind(1), weights.unbind(1), strict=True))
    return torch.stack(list(terms)).sum(0)
