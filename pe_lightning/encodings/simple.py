"""Simple encoding: the axes' features side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike, resolve
from pe_lightning.encoders.arguments import DEFAULT_NUM_FEATURES
from pe_lightning.encoders.cells import projected_cell
from pe_lightning.encoders.lookups import Lookup, SparseLookup, TableEncoder
from pe_lightning.encodings.base import EncoderList, Encoding, check_points, largest_row_norm
from pe_lightning.errors import InputError, check_known

Layout = Literal["auto", "axes", "directions", "joint"]


class Simple(Encoding):
    r"""Concatenated features of several directions: :math:`\Psi = \psi(v_1) \oplus \psi(v_2) \oplus \dots`.

    The total width is the encoder's ``num_features``, divided evenly among the directions:

    - ``axes``: the coordinates themselves, ``x_1, ..., x_D``;
    - ``directions`` (2-D only): several, evenly spaced over 180 degrees, as in the papers for shifted encoders, whose
      features of two axes do not represent diagonals; four are ``x, y, (x + y)/2, (x - y + 1)/2``;
    - ``joint``: one encoder of all axes, for encoders that support it (rff);
    - ``auto``: ``joint`` for joint encoders, ``directions`` for shifted encoders in 2-D, else ``axes``.

    Args:
        encoder: The encoder; its ``num_features`` is the total width (``auto``: 256 per axis, as in the papers), and each
            direction gets a copy of its own. A sequence gives one encoder per direction, each with its own ``num_features``.
        num_axes: Number of coordinate axes ``D``.
        layout: See above.
        normalize: Divide the features by their largest row norm over the training coordinates.
        directions: Number of directions of the layout ``directions``; each coordinate is scaled so that the unit square
            covers [0, 1].

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eq. 16;
    four directions: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Fig. 11.
    """

    name: ClassVar[str] = "simple"

    def __init__(
        self,
        encoder: EncoderLike | Sequence[EncoderLike],
        num_axes: int,
        layout: Layout = "auto",
        normalize: bool = True,
        directions: int = 4,
    ) -> None:
        super().__init__(num_axes)
        several = isinstance(encoder, Sequence) and not isinstance(encoder, str)
        given = [resolve(entry) for entry in encoder] if several else [resolve(encoder)]  # type: ignore[union-attr, arg-type]
        if not given:
            raise InputError("an empty list of encoders was given; give one encoder, or one per direction")
        self.layout = _layout(layout, given, several, num_axes, directions)
        if directions != 4 and self.layout != "directions":
            raise InputError(
                f"layout {self.layout!r} has no number of directions, got {directions}; use layout 'directions'"
            )
        self.directions: Tensor
        self.register_buffer("directions", _directions(self.layout, num_axes, directions), persistent=False)
        count = 1 if self.layout == "joint" else len(self.directions)
        encoders = given if several else _divide(given[0], count, num_axes, self.layout == "joint")
        if len(encoders) != count:
            raise InputError(f"{len(encoders)} encoders were given for {count} directions; give one, or one per direction")
        inputs = num_axes if self.layout == "joint" else 1
        for entry in encoders:
            if entry.num_axes != inputs:
                raise InputError(
                    f"layout {self.layout!r} of {num_axes} axes needs encoders with num_axes={inputs}, "
                    f"{entry.name!r} has num_axes={entry.num_axes}"
                )
        self.encoders = EncoderList(encoders)
        self.num_features: int = sum(entry.num_features for entry in encoders)
        self.normalize = normalize
        self.is_normalizable = all(encoder.normalizable for encoder in encoders)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(()))

    @torch.no_grad()
    def calibrate(self, coords: Tensor) -> None:
        """Sets the scale from the training points ``(*batch, D)`` if all encoders are normalisable."""
        check_points(coords, self.num_axes)
        if self.normalize and self.is_normalizable:
            self.scale.copy_(1 / largest_row_norm(self._raw, coords.reshape(-1, self.num_axes)))

    def _inputs(self, coords: Tensor) -> list[Tensor]:
        """What each encoder encodes."""
        if self.layout == "joint":
            return [coords if self.num_axes > 1 else coords[..., 0]]
        # a matrix product may have reduced precision on GPUs
        return [(coords * row[:-1]).sum(-1) + row[-1] for row in self.directions.to(coords.dtype)]

    def _raw(self, coords: Tensor) -> Tensor:
        projected = self._inputs(coords)
        if self.cells and self.layout == "joint":
            sizes = projected[0].new_tensor(self.cells if self.num_axes > 1 else self.cells[0])
            return self.encoders[0].cell(projected[0], sizes)
        if self.cells:
            sizes = coords.new_tensor(self.cells).expand(coords.shape)
            parts = zip(self.encoders, projected, self.directions.tolist(), strict=True)
            return torch.cat([projected_cell(encoder, v, sizes, row[:-1]) for encoder, v, row in parts], -1)
        return torch.cat([encoder(v) for encoder, v in zip(self.encoders, projected, strict=True)], -1)

    def lookups(self, coords: Tensor) -> list[list[Lookup]]:
        """The lookups of each encoder at points ``(P, D)``; none unless all encoders look their features up at points."""
        parts = zip(self.encoders, self._inputs(coords), strict=True)
        every = [list(encoder.lookup(x)) for encoder, x in parts if isinstance(encoder, TableEncoder)]
        return every if len(every) == len(self.encoders) and not self.cells else []

    def from_lookups(self, lookups: Sequence[Sequence[Lookup | SparseLookup]]) -> Tensor:
        """The features from :meth:`lookups`, ``(P, num_features)``."""
        pairs = zip(self.encoders, lookups, strict=True)
        parts = [encoder.from_lookup(some) for encoder, some in pairs if isinstance(encoder, TableEncoder)]
        return self._scaled(torch.cat(parts, -1) if len(parts) > 1 else parts[0])

    def _scaled(self, features: Tensor) -> Tensor:
        return features * self.scale if self.is_normalizable else features

    def forward(self, coords: Tensor) -> Tensor:
        check_points(coords, self.num_axes)
        return self._scaled(self._raw(coords))


def _layout(layout: Layout, encoders: Sequence[Encoder], several: bool, num_axes: int, count: int) -> Layout:
    first = encoders[0]
    check_known("unknown layout", layout, get_args(Layout), "Layouts")
    if layout == "auto":
        if len(encoders) == 1 and (first.num_axes > 1 if several else first.joint):
            return "joint"
        return "directions" if num_axes == 2 and (len(encoders) == count if several else first.directional) else "axes"
    if layout == "directions" and num_axes != 2:
        raise InputError(f"layout 'directions' is for 2 axes, the signal has {num_axes}; use layout 'axes' or 'auto'")
    if layout == "joint" and not first.joint:
        raise InputError(f"encoder {first.name!r} encodes one axis at a time; use layout 'axes' or 'auto'")
    return layout


def _directions(layout: Layout, num_axes: int, count: int) -> Tensor:
    """Rows ``(w_1, ..., w_D, offset)`` of the directions ``v = w . x + offset``; first those along the axes."""
    if layout != "directions":
        return torch.cat([torch.eye(num_axes), torch.zeros(num_axes, 1)], 1)
    rows = []
    for j in sorted(range(count), key=lambda j: 2 * j % count != 0):
        angle = math.pi * (j / count - (2 * j > count))
        w = math.cos(angle), math.sin(angle)
        length = abs(w[0]) + abs(w[1])  # of the projection of the unit square
        rows.append([round(v / length, 15) for v in (*w, max(-w[1], 0.0))])  # so that a half is exactly that
    return torch.tensor(rows)


def _divide(encoder: Encoder, count: int, num_axes: int, joint: bool) -> list[Encoder]:
    """``count`` copies of an encoder that divide its features; for all axes if ``joint``."""
    # an encoder of one axis becomes joint over all of them; any other number that was given is refused later
    if joint and num_axes > 1 and encoder.num_axes == 1:
        encoder = encoder.copy(num_axes=num_axes)
    changes: dict[str, int] = {}
    total, step = encoder.num_features, count * encoder.multiple
    if encoder.is_open:
        total = max(DEFAULT_NUM_FEATURES * num_axes // step, 1) * step
        changes["num_features"] = total
    if count > 1 and "num_features" in encoder.resolved():
        if total % step:
            usable = step * max(1, math.ceil(total / step - 0.5))  # the nearest number
            raise InputError(
                f"{encoder.name!r}: num_features={total} does not divide among {count} directions; use {usable}"
            )
        changes["num_features"] = total // count
    return [encoder.copy(**changes) for _ in range(count)]
