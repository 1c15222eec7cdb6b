"""Missing values that files declare: attributes of NetCDF, Zarr and HDF5, and the tag of GDAL in TIFF.

Libraries put a value of their own in place of a declaration that they cannot read; so the attributes and the text of the tag
are read here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, Mask, float_for, is_one_of, with_nan

GDAL_NODATA = 42113
"""TIFF tag with the text of a number that stands for missing values."""
FILL_ATTRIBUTES = ("_FillValue", "missing_value")
"""Attributes with the values that stand for missing ones (CF conventions, Sec. 2.5.1)."""

# tifffile takes 0 for a tag that it cannot convert to the dtype, and logs it; the text is read here
logging.getLogger("tifffile").addFilter(lambda record: "GDAL_NODATA" not in record.getMessage())


def exact_number(text: str) -> float | None:
    """The finite number in a text, an integer as ``int`` of any size; ``None`` without one.

    >>> exact_number("9007199254740993"), exact_number("-9999.0"), exact_number("a.png")
    (9007199254740993, -9999.0, None)
    """
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if abs(number) < np.inf else None
    return None


@dataclass(frozen=True)
class Declared:
    """Stored values of missing samples, besides NaN and infinite ones.

    Args:
        values: The values; a value that the dtype cannot represent marks nothing.
        low: Least valid value, or -inf.
        high: Largest valid value, or inf.
        unsigned: Whether stored signed integers, ``values`` and limits are unsigned ones (attribute ``_Unsigned``).

    >>> Declared((-1,), high=5).marks(np.array([-1, 0, 5, 6])).tolist()
    [True, False, False, True]
    """

    values: tuple[float, ...] = ()
    low: float = -np.inf
    high: float = np.inf
    unsigned: bool = False

    @classmethod
    def by_attributes(cls, attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> Declared:
        """By ``_FillValue``, ``missing_value``, ``valid_range``, ``valid_min`` and ``valid_max``.

        All are in stored numbers (CF conventions, Sec. 2.5.1); floating-point limits of packed integers are in units of the
        unpacked values (NetCDF Users Guide, appendix A).
        """
        unsigned = dtype.kind == "i" and str(attributes.get("_Unsigned", "")).lower() == "true"

        def given(*keys: str) -> list[float]:
            found = [np.ravel(attributes[key]) for key in keys if key in attributes]
            return [number.item() for each in found if each.dtype.kind in "iuf" for number in each if np.isfinite(number)]

        scale, offset = [*given("scale_factor"), 1.0][0], [*given("add_offset"), 0.0][0]

        def numbers(*keys: str) -> list[float]:
            return [each % 256**dtype.itemsize if unsigned and each < 0 else each for each in given(*keys)]

        both = numbers("valid_range")
        both = both if len(both) == 2 else []
        low, high = numbers("valid_min") or both[:1], numbers("valid_max") or both[1:]
        is_packed = dtype.kind in "iu" and (scale, offset) != (1, 0)
        if is_packed and any(isinstance(limit, float) for limit in (*low, *high)):
            low, high = ([round((limit - offset) / scale, 6) for limit in limits] for limits in (low, high))
            low, high = (low, high) if scale > 0 else (high, low)
        values = tuple(dict.fromkeys(numbers(*FILL_ATTRIBUTES)))
        return cls(values, low[0] if low else -np.inf, high[0] if high else np.inf, unsigned).representable(dtype)

    @classmethod
    def by_tag(cls, text: object, dtype: np.dtype[Any], label: str) -> Declared:
        """By the text of the TIFF tag ``GDAL_NODATA``; ``None`` without the tag."""
        written = "nan" if text is None else str(text).strip("\0 ").replace(",", ".")
        number = exact_number(written)
        if number is None and written.lower().lstrip("+-") not in ("", "nan", "inf"):
            rank_zero_info(f"{label} declares the missing value {written!r}, which is no number: nothing is missing by it")
        return cls(() if number is None else (number,)).representable(dtype)

    def representable(self, dtype: np.dtype[Any]) -> Declared:
        """Without values that a dtype cannot represent."""
        some = np.zeros(1, self.real(dtype))
        if some.dtype.kind == "f":
            with np.errstate(over="ignore"):
                return replace(self, values=tuple(value for value in self.values if np.isfinite(some.dtype.type(value))))
        info = np.iinfo(some.dtype) if some.dtype.kind in "iu" else None
        held = [value for value in self.values if info is None or (info.min <= value <= info.max and value == int(value))]
        return replace(self, values=tuple(held))

    def real(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of the stored numbers."""
        return np.dtype(f"u{dtype.itemsize}") if self.unsigned else dtype

    def plus(self, numbers: Sequence[float], dtype: np.dtype[Any]) -> Declared:
        """With further values of missing samples."""
        return replace(self, values=tuple(dict.fromkeys([*self.values, *numbers]))).representable(dtype)

    @property
    def is_empty(self) -> bool:
        return self == Declared(unsigned=self.unsigned)

    def marks(self, stored: AnyArray) -> Mask:
        """Which stored values are missing, besides values that are not finite."""
        real = stored.view(self.real(stored.dtype))
        found: Mask = is_one_of(real, self.values)
        if self.low > -np.inf:
            found |= real < self.low
        if self.high < np.inf:
            found |= real > self.high
        return found

    def read_as(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype if self.is_empty else float_for(dtype)

    def with_nan(self, stored: AnyArray) -> AnyArray:
        """Values with NaN where they are missing; integers become floating point."""
        return stored if self.is_empty else with_nan(stored, self.marks(stored))


NOTHING = Declared()
