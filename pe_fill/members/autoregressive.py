r"""Gaps of rows filled by autoregression: the missing samples that leave the least prediction error.

With the coefficients :math:`a` of an autoregression of order p and the banded matrix :math:`A` of its prediction errors in
both directions, :math:`x_t - \sum_j a_j x_{t-j}` and :math:`x_t - \sum_j a_j x_{t+j}`, the missing samples are the
least-squares solution of :math:`A x = 0`: one direction alone leaves the first, or the last, p samples of a row nearly free.
Coefficients, of both directions too, and missing samples are computed in turn. The order has the least corrected Akaike
information criterion.

Reference: Janssen, Veldhuis and Vries, *Adaptive interpolation of discrete-time signals that can be modeled as
autoregressive processes*, IEEE Trans. ASSP 34, 1986. Both directions: Ulrych and Clayton, *Time series modelling and maximum
entropy*, Physics of the Earth and Planetary Interiors 12, 1976.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pe_fill.members.member import Gaps
from pe_fill.members.neighbours import between_neighbours

ORDERS = (2, 4, 8, 16, 32, 64, 128)
"""Candidate orders; those with fewer than :data:`WINDOWS_PER_COEFFICIENT` whole windows per coefficient are left out."""
WINDOWS_PER_COEFFICIENT = 2
SEGMENT, CONTEXT = 512, 256
"""Samples that are filled together, and samples on both sides of them that take part."""
RIDGE = 1e-9
"""Ridge of the coefficients, relative to the sum of squares of the signal."""
GAP_RIDGE = 1e-5
"""Weight of the equations that set missing samples to the mean, which those at the ends of a row need."""


def autoregressive(values: Tensor, known: Tensor) -> Tensor:
    """Fills the missing samples of rows ``(N, C)`` with known samples ``(N,)``.

    Stretches with too few samples for any order keep the linear interpolation.
    """
    filled = between_neighbours(Gaps(values, known, ~known))
    for start in range(0, len(known), SEGMENT):
        inner = slice(start, start + SEGMENT)
        if bool(known[inner].all()):
            continue
        outer = slice(max(0, start - CONTEXT), start + SEGMENT + CONTEXT)
        for channel in range(values.shape[1]):
            row = interpolate_segment(filled[outer, channel], known[outer])
            filled[inner, channel] = row[start - outer.start :][:SEGMENT]
    return torch.where(known[:, None], values, filled)


def interpolate_segment(row: Tensor, known: Tensor, orders: tuple[int, ...] = ORDERS) -> Tensor:
    """Fills one segment ``(n,)`` with first guesses of the missing samples, by the order of the least criterion."""
    mean = row[known].mean() if bool(known.any()) else row.mean()
    filled, missing = (row - mean).double(), (~known).nonzero()[:, 0]
    orders = tuple(order for order in orders if len(row) - order - len(missing) >= WINDOWS_PER_COEFFICIENT * order)
    if not orders:
        return row
    whole = {order: known.unfold(0, order + 1, 1).all(1) for order in orders}
    # the first estimates are from equations without missing samples, if there are enough
    enough = [order for order in orders if int(whole[order].sum()) >= WINDOWS_PER_COEFFICIENT * order]
    order = _best_order(filled, enough or orders, whole[enough[-1]] if enough else None)
    ends = GAP_RIDGE * torch.eye(len(missing), dtype=filled.dtype, device=filled.device)
    for iteration in range(3):  # estimates of the coefficients and of the missing samples
        coefficients = _coefficients(filled, order, whole[order] if enough and iteration == 0 else None)
        matrix = _columns(coefficients, len(row), missing)
        factor, triangle = torch.linalg.qr(torch.cat([matrix, ends]))
        windows = filled.masked_fill(~known, 0).unfold(0, order + 1, 1)
        errors = torch.cat([windows @ coefficients.flip(0), windows @ coefficients])  # of the known samples
        right = factor[: len(matrix)].T @ -errors
        filled[missing] = torch.linalg.solve_triangular(triangle, right[:, None], upper=True)[:, 0]
    return torch.where(known, row, (filled + mean).to(row))


def _best_order(row: Tensor, orders: Sequence[int], use: Tensor | None) -> int:
    """The order of the least criterion: one QR of the lagged samples has the prediction errors of all."""
    lagged = _lagged(row, orders[-1], use)
    last = torch.linalg.qr(lagged.roll(-1, 1), mode="r").R[:, -1].square()
    squared = last.flip(0).cumsum(0).flip(0)  # the rest after the first p lags
    count = len(lagged) // 2  # the errors of the two directions depend on each other
    penalty = [(count + order) / max(count - order - 2, 1) for order in orders]  # Hurvich and Tsai, Biometrika 76, 1989
    criterion = [math.log(max(float(squared[p]) / count, 1e-300)) + more for p, more in zip(orders, penalty, strict=True)]
    return orders[criterion.index(min(criterion))]


def _coefficients(row: Tensor, order: int, use: Tensor | None) -> Tensor:
    """Least-squares coefficients ``(1, -a_1, ..., -a_p)`` of the prediction errors, with a small ridge."""
    lagged = _lagged(row, order, use)
    ridge = (RIDGE * row.square().sum()).sqrt().clamp_min(1e-12)
    eye = torch.eye(order, dtype=row.dtype, device=row.device) * ridge
    stacked = torch.cat([lagged[:, 1:], eye])
    right = torch.cat([lagged[:, 0], row.new_zeros(order)])[:, None]
    return torch.cat([row.new_ones(1), -torch.linalg.lstsq(stacked, right, driver="gels").solution[:, 0]])


def _lagged(row: Tensor, order: int, use: Tensor | None) -> Tensor:
    """Samples and those before them, then samples and those after them, ``(2 (n - p), 1 + p)``; of some windows."""
    windows = row.unfold(0, order + 1, 1)
    windows = windows if use is None else windows[use]
    return torch.cat([windows.flip(1), windows])


def _columns(coefficients: Tensor, length: int, missing: Tensor) -> Tensor:
    """Columns of the matrix of the prediction errors at missing samples, ``(2 (n - p), M)``: forward, then backward."""
    order = len(coefficients) - 1
    lag = torch.arange(order, length, device=missing.device)[:, None] - missing
    inside = (lag >= 0) & (lag <= order)
    lag = lag.clamp(0, order)
    both = torch.cat([coefficients[lag], coefficients[order - lag]])
    return both.where(inside.repeat(2, 1), 0.0)
