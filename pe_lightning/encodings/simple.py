"""Simple encoding: the axes' features side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from pe_lightning.encoders.base import Encoder, EncoderLike, resolve
from pe_lightning.encodings.base import Encoding, largest_row_norm
from pe_lightning.errors import InputError

__all__ = ["Simple"]

Layout = Literal["auto", "axes", "directions", "joint"]


class Simple(Encoding):
    r"""Concatenated features of several directions: :math:`\Psi = \psi(v_1) \oplus \psi(v_2) \oplus \dots`.

    The total width is the encoder's ``num_features``, divided evenly among the directions:

    - ``axes``: the coordinates themselves, ``x_1, ..., x_D``;
    - ``directions`` (2-D only): ``x, y, (x + y)/2, (x - y + 1)/2``, what the papers give the shifted encoders, since
      two axes of bumps see no diagonal;
    - ``joint``: one encoder of all axes at once, for encoders that can (rff);
    - ``auto``: ``joint`` for joint encoders, ``directions`` for shifted encoders in 2-D, else ``axes``.

    Args:
        encoder: The encoder; its ``num_features`` is the total width. A sequence gives one encoder per direction, each
            with its own ``num_features``.
        num_axes: Number of coordinate axes ``D``.
        layout: See above.
        normalize: Divide the features by their largest row norm over the training coordinates (see :meth:`calibrate`).

    Shape:
        ``(*batch, D)`` -> ``(*batch, num_features)``.

    Raises:
        InputError: If the width does not divide among the directions, or the layout does not exist for the encoder.

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
    ) -> None:
        super().__init__(num_axes)
        parts: list[Encoder] | None = None
        if isinstance(encoder, Sequence) and not isinstance(encoder, str):
            parts = [resolve(entry) for entry in encoder]
            self.layout = _layout_of_several(layout, parts, num_axes)
        else:
            whole = resolve(encoder)
            self.layout = _layout(layout, whole, num_axes)
        self.directions: Tensor
        self.register_buffer("directions", _directions(self.layout, num_axes), persistent=False)
        count = 1 if self.layout == "joint" else len(self.directions)
        if parts is None:
            parts = _divide(whole, count, num_axes if self.layout == "joint" else 1)
        if len(parts) != count:
            raise InputError(f"{len(parts)} encoders were given for {count} directions; give one, or one per direction")
        _check_inputs(parts, self.layout, num_axes)
        self.encoders = nn.ModuleList(parts)
        self.num_features: int = sum(part.num_features for part in parts)
        self.normalize = normalize
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(()))

    @torch.no_grad()
    def calibrate(self, coords: Tensor, chunk: int = 1 << 16) -> None:
        """Sets the scale from the training points; without ``normalize`` it stays 1.

        Args:
            coords: ``(*batch, D)``.
            chunk: How many points are encoded at once.
        """
        self.check_points(coords)
        if self.normalize:
            self.scale.copy_(1 / largest_row_norm(self._raw, coords.reshape(-1, self.num_axes), chunk))

    def _raw(self, coords: Tensor) -> Tensor:
        if self.layout == "joint":
            return self.encoders[0](coords if self.num_axes > 1 else coords[..., 0])  # type: ignore[no-any-return]
        # the sum of products is written out: a matrix product may be computed in reduced precision on GPUs
        weights = self.directions.to(coords.dtype)
        projected = [(coords * row[:-1]).sum(-1) + row[-1] for row in weights]
        return torch.cat([encoder(v) for encoder, v in zip(self.encoders, projected, strict=True)], -1)

    def forward(self, coords: Tensor) -> Tensor:
        """The concatenated, scaled features of points."""
        self.check_points(coords)
        return self._raw(coords) * self.scale

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        """The features of a separable grid.

        Args:
            axes: One coordinate vector per axis, ``(N_a,)``.

        Returns:
            ``(N_1, ..., N_D, num_features)``.
        """
        self.check_axes(axes)
        return self.forward(torch.stack(torch.meshgrid(*axes, indexing="ij"), -1))


def _layout(layout: Layout, encoder: Encoder, num_axes: int) -> Layout:
    if layout == "auto":
        if encoder.joint:
            return "joint"
        return "directions" if encoder.directional and num_axes == 2 else "axes"
    if layout == "directions" and num_axes != 2:
        raise InputError(f"layout 'directions' is for 2 axes, the signal has {num_axes}; use layout 'axes' or 'auto'")
    if layout == "joint" and not encoder.joint:
        raise InputError(f"encoder {encoder.name!r} encodes one axis at a time; use layout 'axes' or 'auto'")
    if layout not in ("axes", "directions", "joint"):
        raise InputError(f"unknown layout {layout!r}; allowed: auto, axes, directions, joint")
    return layout


def _layout_of_several(layout: Layout, encoders: Sequence[Encoder], num_axes: int) -> Layout:
    """As :func:`_layout`; ``auto`` follows the number of encoders that were given."""
    if not encoders:
        raise InputError("an empty list of encoders was given; give one encoder, or one per direction")
    if layout != "auto":
        return _layout(layout, encoders[0], num_axes)
    if len(encoders) == 1 and encoders[0].num_axes > 1:
        return "joint"
    return "directions" if len(encoders) == 4 and num_axes == 2 else "axes"


def _check_inputs(parts: Sequence[Encoder], layout: Layout, num_axes: int) -> None:
    wanted = num_axes if layout == "joint" else 1
    for part in parts:
        if part.num_axes != wanted:
            raise InputError(
                f"layout {layout!r} of {num_axes} axes needs encoders with num_axes={wanted}, "
                f"{part.name!r} has num_axes={part.num_axes}"
            )


def _directions(layout: Layout, num_axes: int) -> Tensor:
    """Rows ``(w_1, ..., w_D, offset)`` of the directions ``v = w . x + offset``."""
    if layout == "directions":
        return torch.tensor([[1, 0, 0], [0, 1, 0], [0.5, 0.5, 0], [0.5, -0.5, 0.5]])
    return torch.cat([torch.eye(num_axes), torch.zeros(num_axes, 1)], 1)


def _divide(encoder: Encoder, count: int, num_axes: int) -> list[Encoder]:
    """``count`` encoders that share the width of ``encoder``."""
    changes: dict[str, int] = {}
    takes = encoder.resolved()
    # an encoder of one axis becomes joint over all of them; any other number that was asked for is kept, to be refused
    if num_axes > 1 and encoder.num_axes == 1:
        changes["num_axes"] = num_axes
    if count > 1 and "num_features" in takes:
        total = encoder.num_features
        if not _divides(encoder, total, count):
            # some encoders take even numbers only, so the nearest multiple of the count is not always one to offer
            near = range(total - 1, max(total - 4 * count, 0), -1), range(total + 1, total + 4 * count + 1)
            found = [next((n for n in numbers if _divides(encoder, n, count)), None) for numbers in near]
            usable = " or ".join(str(n) for n in found if n is not None)
            raise InputError(
                f"{encoder.name!r}: num_features={total} does not divide among {count} directions"
                + (f"; use {usable}" if usable else "")
            )
        changes["num_features"] = total // count
    # one module per direction, not one shared: learnable encoders must be free to differ
    return [encoder.replace(**changes) for _ in range(count)]


def _divides(encoder: Encoder, total: int, count: int) -> bool:
    """Whether ``total`` features are ``count`` times a number that the encoder takes."""
    if total % count:
        return False
    try:
        encoder.replace(num_features=total // count)
    except InputError:
        return False
    return True
