r"""A weight tensor as its largest coefficients in a multi-resolution basis.

The features of a complex encoding are Kronecker products of the axes' features, and so are the vectors of the basis: their
span is unchanged, and :math:`W = R\,(c \times_1 T^{-1} \dots \times_D T^{-1})` with coefficients ``c`` that are mostly near
zero, ``T`` the transform of an axis and ``R`` an orthonormal rotation of the channels.

Reference: Mallat, *A Wavelet Tour of Signal Processing*, 3rd ed., 2009, ch. 9, on approximation by the largest coefficients.
:mod:`pe_fill.sparse.lifting` has the references of the bases.
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from pe_fill.sparse.lifting import LIFTINGS, LiftingName, channel_rotation, lifting, rotated
from pe_lightning.encoders import Encoder, bandwidth
from pe_lightning.errors import InputError
from pe_lightning.linalg import Identity, Operator

ValueType = Literal["float32", "float16"]
"""Type of the stored numbers."""
POSITION_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0}]
"""Of LZMA, for bits: 3 to 13 % fewer bytes than zlib, 3 to 9 % fewer than coded distances from 1e5 numbers on."""


@dataclass(frozen=True)
class SparseWeight:
    """The kept coefficients of one signal's weight tensor.

    Args:
        shape: ``(C, K_1, ..., K_D)``.
        transform: The transform of every axis.
        rotation: Channels from coefficients, orthonormal, ``(C, C)`` float32.
        bitmap: A bit per coefficient in row-major order, 1 if it is kept: ``(ceil(C K_1 ... K_D / 8),)`` uint8.
        values: The kept coefficients in this order, ``(n,)``, rounded to the type in which they are stored.
        storage_dtype: This type.
    """

    shape: tuple[int, ...]
    transform: LiftingName
    rotation: Tensor
    bitmap: Tensor
    values: Tensor
    storage_dtype: ValueType = "float32"

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def num_params(self) -> int:
        """Kept coefficients and, of several channels, the numbers of the rotation."""
        return self.count + (self.rotation.numel() if len(self.rotation) > 1 else 0)

    def coefficients(self) -> Tensor:
        """All coefficients, zero where none is kept, ``(C, K_1, ..., K_D)``."""
        bits = np.unpackbits(self.bitmap.numpy(), count=math.prod(self.shape))
        result = self.values.new_zeros(len(bits))
        result[torch.from_numpy(bits.view(bool)).to(result.device)] = self.values
        return result.reshape(self.shape)

    def weight(self) -> Tensor:
        """The weight tensor, ``(C, K_1, ..., K_D)``."""
        unrotated = lifting(self.transform).inverse_all(self.coefficients(), range(1, len(self.shape)))
        return rotated(unrotated, self.rotation)

    def pack(self) -> dict[str, Any]:
        """Plain values and tensors for a checkpoint: the bitmap compressed, values as they are stored."""
        coded = lzma.compress(self.bitmap.numpy().tobytes(), format=lzma.FORMAT_RAW, filters=POSITION_FILTERS)
        scale, values = 1.0, self.values.cpu()
        if self.storage_dtype == "float16":
            scale = half_scale(values)
            values = (values * scale).half()
        return {
            "shape": list(self.shape),
            "transform": self.transform,
            "rotation": self.rotation.cpu().clone(),
            "positions": torch.frombuffer(bytearray(coded), dtype=torch.uint8),
            "values": values.clone(),
            "scale": scale,
            "dtype": str(self.values.dtype).removeprefix("torch."),
        }

    @classmethod
    def unpack(cls, packed: Mapping[str, Any]) -> SparseWeight:
        """The inverse of :meth:`pack`."""
        try:
            shape, transform = tuple(int(size) for size in packed["shape"]), packed["transform"]
            rotation, values = packed["rotation"], packed["values"]
            size, scale, dtype = math.prod(shape), float(packed["scale"]), getattr(torch, packed["dtype"])
            room = (size + 7) // 8
            decoder = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=POSITION_FILTERS)
            bitmap = decoder.decompress(packed["positions"].numpy().tobytes(), room + 1)
            bits = np.unpackbits(np.frombuffer(bitmap, np.uint8))
            if not (
                transform in LIFTINGS
                and scale > 0
                and len(bitmap) == room
                and not bits[size:].any()
                and values.shape == (int(bits.sum()),)
                and rotation.shape == (shape[0], shape[0])
                and bool(values.isfinite().all() and rotation.isfinite().all())
            ):
                raise ValueError("numbers and positions do not belong together")
        except (KeyError, TypeError, ValueError, AttributeError, lzma.LZMAError) as error:
            raise InputError(
                "the checkpoint is damaged: its sparse weights do not fit together. Fit again without --ckpt_path"
            ) from error
        storage_dtype: ValueType = "float16" if values.dtype == torch.float16 else "float32"
        kept = values.to(dtype) / scale
        positions = torch.from_numpy(np.frombuffer(bitmap, np.uint8).copy())
        return cls(shape, transform, rotation.float(), positions, kept, storage_dtype)


class Coefficients:
    """All coefficients of one signal's weight tensor, from which the largest are kept.

    Channels are rotated into the eigenvectors of their second moments. Coefficients are ranked by magnitude times the
    product over the axes of the norms of the synthesis vectors.

    Args:
        weight: ``(C, K_1, ..., K_D)``, float32 or float64.
        transform: The transform of every axis.
        norms: The norms of the axes, ``(K_a,)``; ``None``: of the synthesis vectors alone
            (:meth:`~pe_fill.sparse.lifting.Lifting.synthesis_norms`).
    """

    def __init__(self, weight: Tensor, transform: LiftingName, norms: Sequence[Tensor] | None = None) -> None:
        self.shape, self.transform = tuple(weight.shape), transform
        self.rotation = channel_rotation(weight) if len(weight) > 1 else torch.eye(1, device=weight.device)
        self.values = lifting(transform).forward_all(rotated(weight, self.rotation.T), range(1, weight.ndim))
        self._norms = norms or [lifting(transform).synthesis_norms(size) for size in weight.shape[1:]]

    @property
    def size(self) -> int:
        return self.values.numel()

    def importance(self) -> Tensor:
        """Approximate norm of the contribution of each coefficient, ``(C, K_1, ..., K_D)``."""
        result = self.values.abs()
        for axis, norms in enumerate(self._norms):
            result *= norms.to(result).reshape(-1, *[1] * (len(self._norms) - 1 - axis))
        return result

    def keep(self, count: int, storage_dtype: ValueType = "float32") -> SparseWeight:
        """The ``count`` largest coefficients; fewer where all others are zero."""
        check_keep(count, self.size)
        least = 0.0
        if count < self.size:
            ordered = self.importance().flatten().cpu().numpy()
            ordered.partition(self.size - count)
            least = float(ordered[self.size - count])
            del ordered
        importance = self.importance().flatten()
        mask = importance > least
        if least > 0 and (missing := count - int(torch.count_nonzero(mask))):
            mask[torch.nonzero(importance == least)[:missing, 0]] = True
        values = self.values.flatten()[mask]
        if storage_dtype == "float16":
            scale = half_scale(values)
            values = (values * scale).half().to(values.dtype) / scale
        bitmap = torch.from_numpy(np.packbits(mask.cpu().numpy()))
        return SparseWeight(self.shape, self.transform, self.rotation, bitmap, values, storage_dtype)

    def fewest(self, psnr: float, measure: Callable[[Tensor], float], storage_dtype: ValueType = "float32") -> SparseWeight:
        """The fewest coefficients that reach a PSNR in dB, the ``measure`` of a weight tensor, by bisection."""
        squares = self.importance().flatten().square().double().sort(descending=True).values.cpu().numpy()
        left = np.maximum(squares.sum() - np.cumsum(squares), 1e-30)  # the squared error of every count, about
        whole = self.keep(self.size, storage_dtype)
        reached = measure(whole.weight())
        if reached < psnr:
            raise InputError(
                f"num_coefficients: {{psnr: {psnr:g}}} is above the {reached:.2f} dB of the exact fit; ask for less"
            )
        low, high, best, offset = 0, whole.count, whole, math.nan
        for _ in range(40):  # about eight are needed
            if high - low <= 1:
                break
            count = (low + high) // 2
            if not math.isnan(offset):  # PSNR is nearly -10 log10 of the squared error plus a constant
                count = int(np.searchsorted(-left, -(10 ** ((offset - psnr) / 10)))) + 1
            elif math.isfinite(reached):
                count = max(1, self.size // 10)
            count = min(max(count, low + 1), high - 1)
            kept = self.keep(count, storage_dtype)
            score = measure(kept.weight())
            offset = score + 10 * math.log10(left[count - 1])
            if score >= psnr:
                high, best = count, kept
            else:
                low = count
        return best


def check_keep(count: int, size: int) -> None:
    """Refuses a number of kept coefficients."""
    if not 1 <= count <= size:
        raise InputError(
            f"num_coefficients must be from 1 to {size:,}, the numbers of all channels of a signal's layer; got {count:,}"
        )


def half_scale(values: Tensor) -> float:
    """The power of two by which values are multiplied before they are stored as float16: to at most 2**14."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    return 2.0 ** math.floor(math.log2(2.0**14 / largest)) if largest > 0 else 1.0


def axis_norms(transform: LiftingName, encoder: Encoder, features: Operator) -> Tensor:
    """Norms over the samples of the synthesis vectors of an axis, ``(K,)``."""
    size = features.shape[1]
    if isinstance(features, Identity):
        return lifting(transform).synthesis_norms(size)
    reach = size if encoder.support is None else bandwidth(encoder)
    return lifting(transform).synthesis_norms(size, gram_matrix(features, reach))


def gram_matrix(features: Operator, reach: int) -> scipy.sparse.csr_matrix:
    """The Gram matrix ``(K, K)`` of features that overlap with ``reach`` neighbours on each side at most."""
    size, period = features.shape[1], 2 * reach + 1
    if period >= size:
        dense = features.to(torch.float64).rmatvec(features.dense().double(), 0).cpu().numpy()
        dense[np.abs(dense) < 1e-9 * np.abs(dense).max()] = 0
        return scipy.sparse.csr_matrix(dense)
    diagonals = np.zeros((period, size))  # of offset d: entry (j - d, j) in column j
    for first in range(period):  # columns so far apart share no row
        probe = torch.zeros(size, dtype=torch.float64, device=features.device)
        probe[first::period] = 1
        product = features.rmatvec(features.matvec(probe, 0), 0).cpu().numpy()
        columns = np.arange(first, size, period)
        for offset in range(-reach, reach + 1):
            rows = columns - offset
            inside = (rows >= 0) & (rows < size)
            diagonals[offset + reach, columns[inside]] = product[rows[inside]]
    return scipy.sparse.dia_matrix((diagonals, np.arange(-reach, reach + 1)), shape=(size, size)).tocsr()
