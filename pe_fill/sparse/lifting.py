r"""Multi-resolution transforms of one axis by lifting, of any length: linear, invertible, O(N).

A transform :math:`T` takes the ``n`` numbers of an axis into a biorthogonal multi-resolution basis. Each level splits them
into even and odd entries, predicts the odd ones from their even neighbours, updates the even ones from the odd ones, and
goes on with the even ones until at most :data:`COARSEST` are left. The columns of :math:`T^{-1}` are the synthesis vectors.

Reference: Sweldens, *The lifting scheme: A construction of second generation wavelets*, SIAM J. Math. Anal. 29, 1998. Cohen,
Daubechies, Feauveau, *Biorthogonal bases of compactly supported wavelets*, Comm. Pure Appl. Math. 45, 1992, for the filters.
Daubechies, Sweldens, *Factoring wavelet transforms into lifting steps*, J. Fourier Anal. Appl. 4, 1998, for the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from pe_lightning.errors import check_known
from pe_lightning.linalg import eigh

COARSEST = 4
"""Numbers of an axis that are not split further."""
ROW = 64
"""Contiguous numbers from which on a step along an axis before the last is fast without moving the axis."""
BLOCK = 1 << 18
"""Numbers that are transformed at once."""
LONG = 1 << 13
"""Entries up to which the norms of an axis are computed one by one."""
REACH = 8
"""Distance in entries beyond which a vector of one level is zero; vectors of 9/7 reach 4 entries."""

LiftingName = Literal["9/7", "5/3", "haar"]


@dataclass(frozen=True)
class Lifting:
    """A multi-resolution transform of one axis.

    The transformed axis holds the coarsest numbers first, then the details of each level from the coarsest to the finest
    (:meth:`levels`). Ends are mirrored about the first and the last entry.

    Args:
        name: Its name.
        steps: Coefficients ``c`` of the steps ``entry += c * (left neighbour + right neighbour)``, on the odd and on the
            even entries in turn. With ``paired``, ``entry += c * (other entry of the pair)``; the last of an odd number of
            entries has none.
        scale: Factor of the even entries at the end of a level; the odd ones are divided by it.
        paired: Whether steps stay within pairs of neighbours.
    """

    name: str
    steps: tuple[float, ...]
    scale: float
    paired: bool = False

    def forward_all(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Multiplies :math:`T` into each of some axes: the Kronecker product of their transforms; without gradients."""
        return self._along_all(x, axes, self._analyse)

    def inverse_all(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        r"""Multiplies :math:`T^{-1}` into each of some axes."""
        return self._along_all(x, axes, self._synthesise)

    @staticmethod
    def sizes(n: int) -> list[int]:
        """Numbers of entries that each level splits, descending."""
        sizes = []
        while n > COARSEST:
            sizes.append(n)
            n = (n + 1) // 2
        return sizes

    @classmethod
    def levels(cls, n: int) -> list[slice]:
        """The parts of a transformed axis: the coarsest numbers, then the details of each level, coarse to fine."""
        sizes = cls.sizes(n)
        ends = [(size + 1) // 2 for size in reversed(sizes)]
        return [slice(a, b) for a, b in zip([0, *ends], [*ends, n], strict=True)]

    def synthesis_norms(self, n: int, gram: scipy.sparse.spmatrix | None = None) -> Tensor:
        r"""Norms of the synthesis vectors, the columns of :math:`\Psi T^{-1}`, ``(n,)`` float64, in O(n).

        Args:
            n: Length of the axis.
            gram: :math:`\Psi^T \Psi`, ``(n, n)``, of the features that the axis has weights of; ``None`` for the identity.
                On axes longer than :data:`LONG` a level then has one norm, the norm at its middle: only the ends differ.
        """
        return self._norms(n, gram, analysis=False)

    def analysis_norms(self, n: int) -> Tensor:
        """Norms of the rows of :math:`T`, ``(n,)`` float64: factors of the standard deviation of white noise."""
        return self._norms(n, None, analysis=True)

    def _norms(self, n: int, gram: scipy.sparse.spmatrix | None, analysis: bool) -> Tensor:
        levels, squares = self.levels(n), np.empty(n)
        if gram is None and n > LONG:
            norms = self._norms(LONG, None, analysis)
            # vectors of levels with fewer entries reach both ends: they get the norm of the coarsest level with more
            interior = [part for part in self.levels(LONG) if part.stop - part.start >= 16]
            middles = [norms[(part.start + part.stop) // 2] for part in interior]
            result = torch.empty(n, dtype=torch.float64)
            for depth, part in enumerate(reversed(levels)):  # fine to coarse; norms hardly change from level to level
                result[part] = middles[max(-1 - depth, -len(middles))]
            return result
        known = scipy.sparse.identity(n, format="csr") if gram is None else scipy.sparse.csr_matrix(gram)
        for size, details in zip(self.sizes(n), reversed(levels[1:]), strict=True):
            matrix = self._level_matrix(size, analysis)
            low, high = matrix[:, : details.start], matrix[:, details.start :]
            squares[details] = np.asarray((known @ high).multiply(high).sum(0)).ravel()
            known = low.T @ known @ low
        squares[levels[0]] = known.diagonal()
        return torch.from_numpy(np.sqrt(np.maximum(squares, 0)))

    def _level_matrix(self, n: int, analysis: bool) -> scipy.sparse.csr_matrix:
        """One level of synthesis, or the transpose of one of analysis, ``(n, n)``; columns of even entries come first."""
        columns = torch.zeros(1, n, 2 * REACH, dtype=torch.float64)
        places = torch.arange(n)
        columns[0, places, places % (2 * REACH)] = 1  # columns that share no row are transformed together
        even, odd = self._split(columns) if analysis else (columns[:, 0::2], columns[:, 1::2])
        values = _interleaved(even, odd)[0] if analysis else self._join(even, odd)[0]
        near = places[:, None] + torch.arange(-REACH, REACH)  # the rows of each column
        inside = (near >= 0) & (near < n)
        rows, cols = near[inside], places[:, None].expand_as(near)[inside]
        matrix = scipy.sparse.csr_matrix((values[rows, cols % (2 * REACH)].numpy(), (rows, cols)), shape=(n, n))
        matrix.eliminate_zeros()
        order = torch.cat([places[0::2], places[1::2]]).numpy()
        return (matrix.T.tocsr() if analysis else matrix)[:, order]

    @staticmethod
    @torch.no_grad()
    def _along_all(x: Tensor, axes: Sequence[int], transform: Callable[[Tensor], Tensor]) -> Tensor:
        """A transform of some axes, a block of numbers at a time, which then stays in the cache."""
        x = x.clone(memory_format=torch.contiguous_format)
        for axis in axes:
            lead, n, trail = x.shape[:axis].numel(), x.shape[axis], x.shape[axis + 1 :].numel()
            if n <= COARSEST or not x.numel():
                continue
            flat = x.view(lead, n, trail)
            if trail >= ROW:  # every step adds contiguous rows
                for block in flat:
                    for some in torch.split(block, max(ROW, BLOCK // n), 1):
                        some.copy_(transform(some[None])[0])
            else:
                for some in torch.split(flat, max(ROW, BLOCK // (n * trail))):
                    moved = some.movedim(1, 0)
                    some.copy_(transform(moved.reshape(1, n, -1)).view(moved.shape).movedim(0, 1))
        return x

    def _analyse(self, x: Tensor) -> Tensor:
        parts = []
        for _ in self.sizes(x.shape[1]):
            x, odd = self._split(x)
            parts.append(odd)
        return torch.cat([x, *reversed(parts)], 1)

    def _synthesise(self, x: Tensor) -> Tensor:
        first, *details = self.levels(x.shape[1])
        known = x[:, first]
        for part in details:
            known = self._join(known, x[:, part])
        return known

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        even, odd = x[:, 0::2].clone(), x[:, 1::2].clone()
        for number, c in enumerate(self.steps):
            self._add(even, odd, c, number % 2 == 0)
        return even.mul_(self.scale), odd.div_(self.scale)

    def _join(self, even: Tensor, odd: Tensor) -> Tensor:
        even, odd = even / self.scale, odd * self.scale
        for number, c in reversed(list(enumerate(self.steps))):
            self._add(even, odd, -c, number % 2 == 0)
        return _interleaved(even, odd)

    def _add(self, even: Tensor, odd: Tensor, c: float, to_odd: bool) -> None:
        """Adds ``c`` times the sum of the two neighbours to the odd or the even entries, in place."""
        count, last = odd.shape[1], even.shape[1] - 1
        if self.paired:
            target, source = (odd, even) if to_odd else (even, odd)
            target[:, :count].add_(source[:, :count], alpha=c)
        elif to_odd:
            odd.add_(even[:, :count], alpha=c)
            odd[:, :last].add_(even[:, 1:], alpha=c)
            if count > last:  # an even number of entries: the last odd one has its left neighbour on both sides
                odd[:, last:].add_(even[:, last:], alpha=c)
        else:
            even[:, :count].add_(odd, alpha=c)
            even[:, 1:].add_(odd[:, :last], alpha=c)
            even[:, :1].add_(odd[:, :1], alpha=c)
            if last == count:  # an odd number of entries: so has the last even one
                even[:, last:].add_(odd[:, last - 1 :], alpha=c)


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    x = even.new_empty(even.shape[0], even.shape[1] + odd.shape[1], even.shape[2])
    x[:, 0::2] = even
    x[:, 1::2] = odd
    return x


LIFTINGS = {
    transform.name: transform
    for transform in (
        Lifting("9/7", (-1.586134342059924, -0.052980118572961, 0.882911075530934, 0.443506852043971), 1.149604398860241),
        Lifting("5/3", (-0.5, 0.25), 2**0.5),
        Lifting("haar", (-1.0, 0.5), 2**0.5, paired=True),
    )
}
"""The transforms by name."""


def lifting(name: str) -> Lifting:
    """The transform of a name."""
    check_known("unknown transform", name, LIFTINGS, "Transforms")
    return LIFTINGS[name]


def channel_rotation(weight: Tensor) -> Tensor:
    """The eigenvectors of the second moments of the channels, the largest first, ``(C, C)`` float32."""
    flat = weight.flatten(1)
    moments = (flat @ flat.T).double()
    return eigh(moments)[1].flip(1).float()


def rotated(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiplies a matrix ``(C, C)`` into the first axis."""
    if len(x) == 1:
        return x
    product: Tensor = matrix.to(x) @ x.flatten(1)
    return product.reshape(x.shape)
