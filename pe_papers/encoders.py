"""The encoders that *Learnable Fourier Features* compares with ``lff``: sinusoids, an MLP and a table of positions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pe_lightning.encoders import Grouped, GroupedWaves
from pe_lightning.encoders.arguments import CountLike, PositiveInt, Samples, SeedLike, sample_value, seeded
from pe_lightning.encoders.coordinates import clamped, points
from pe_lightning.encoders.lookups import Lookup, SparseLookup, TableEncoder
from pe_lightning.encoders.shifted import cell
from pe_lightning.encoders.tables import corners
from pe_lightning.errors import InputError

DropoutShare: TypeAlias = Annotated[float, "[0, 0.99]"]


def positions_for(samples: Samples) -> int:
    """The number of positions of an axis."""
    return max(2, round(samples.mean))


class _Sines(GroupedWaves):
    """Fixed sinusoids of positions ``p = num_positions * x``; a subclass defines their :meth:`angular` frequencies.

    Args:
        num_positions: Number ``P`` of positions per unit length, the highest frequency in radians; ``auto``: of the trained
            samples.
        hidden: Hidden units ``|H|`` of the MLP.
        layer_norm: Whether a LayerNorm comes before each dense layer of the MLP.
        dropout: Share of the hidden units that are left out in training.
        seed: Seed of all initial weights; ``None``: of the run.
    """

    axiswise = False
    from_samples: ClassVar = {"num_positions": positions_for}

    def __init__(
        self,
        num_features: CountLike = "auto",
        num_positions: CountLike = "auto",
        mlp: bool = False,
        num_inputs: PositiveInt = 256,
        hidden: PositiveInt = 32,
        groups: PositiveInt = 1,
        layer_norm: bool = False,
        dropout: DropoutShare = 0.0,
        seed: SeedLike = None,
        num_axes: PositiveInt = 1,
    ) -> None:
        super().__init__(num_features, num_axes, groups, mlp, num_inputs)
        self.num_positions: int = sample_value(self, "num_positions", num_positions)
        generator = seeded(seed)
        self.check_waves()
        self.add_modulator(hidden, layer_norm, dropout, generator)
        self.angular(self.num_axes // self.groups)  # for its checks

    @abstractmethod
    def angular(self, num_axes: int) -> Tensor:
        """The frequencies in radians per position, ``(num_inputs / 2, num_axes)``, float64."""

    def group_frequencies(self, coords: Tensor) -> Tensor:
        return (self.angular(coords.shape[-1]) * self.num_positions).to(device=coords.device, dtype=coords.dtype)


class FlatSines(_Sines):
    r"""Sinusoids of the number of a position in a flattened picture: ``p = P (x_1 P^(M-1) + ... + x_M)``.

    When to use:
        A baseline that shows the loss when axes are flattened: a row's end is next to the next row's start, and between
        rows the number means nothing. On one axis it is the Transformer's own encoding.

    Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021,
    Sine-1D in Table 7; Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, Sec. 3.5.
    """

    formula = "cos, sin(p / 10000^(2d/D)), p the number of the position, row by row"

    def angular(self, num_axes: int) -> Tensor:
        if self.num_positions**num_axes > 2**20:
            raise InputError(
                f"{type(self).__name__}: num_positions must be at most {int(2 ** (20 / num_axes))} for {num_axes} axes, as "
                f"float32 holds no phases of more than 2^20 radians; got {self.num_positions!r}"
            )
        exponents = torch.arange(num_axes - 1, -1, -1, dtype=torch.float64, device="cpu")
        return decay(self.num_inputs // 2)[:, None] * self.num_positions**exponents


class AxisSines(_Sines):
    r"""Transformer sinusoids of each axis, side by side: :math:`\cos, \sin(p_a / 10000^{2d/D_a})`, :math:`p = P x`.

    Sine-2D and Sine-4D of the paper. Similar are positions that agree in a coordinate: the similarity is a cross, not a
    disc. With ``mlp: true`` it is Sine-4D + MLP, in groups 1/4, 2/2 or 4/1 for ``groups`` 1, 2 or 4.

    When to use:
        Works as fixed position encoding of attention models. As features of signals it fails on detail off the axes, and
        most of its frequencies are far below one period: the stable rank is near 2.

    Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021,
    Sine-2D and Sine-4D in Tables 5 and 7; Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, Sec. 3.5.
    """

    formula = "cos, sin(p / 10000^(2d/D)) of each axis, p = P x"

    def angular(self, num_axes: int) -> Tensor:
        """The first axes have one more frequency where they do not divide."""
        count = self.check_waves(least=num_axes)
        counts = [count // num_axes + (axis < count % num_axes) for axis in range(num_axes)]
        blocks: Tensor = torch.block_diag(*(decay(each)[:, None] for each in counts))  # type: ignore[no-untyped-call]
        return blocks


class JointSines(_Sines):
    r"""Sinusoids of all axes at once: :math:`\cos, \sin(\sum_a p_a / b_a^{2d/D})`, :math:`p = P x`.

    The base of axis ``a`` is 10000/a: 10000 and 5000 in 2-D as in the paper, which has no more axes.

    When to use:
        A baseline of learnable Fourier features. In 2-D all its waves run between the directions (1, 1) and (1, 2), so that
        positions across these look alike.

    Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021,
    App. C; Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, Sec. 3.5.
    """

    formula = "cos, sin(p_1 / 10000^(2d/D) + p_2 / 5000^(2d/D) + ...), p = P x"

    def angular(self, num_axes: int) -> Tensor:
        count = self.num_inputs // 2
        return torch.stack([decay(count, 10000 / (axis + 1)) for axis in range(num_axes)], 1)


class PositionMLP(Grouped):
    r"""An MLP of the coordinates themselves: :math:`Y = \mathrm{GeLU}(X W_1 + B_1) W_2 + B_2`.

    When to use:
        The baseline for what Fourier features add to the MLP of ``lff``: alone it learns smooth signals only.

    Args:
        hidden: Hidden units ``|H|`` of the MLP.
        dropout: Share of the hidden units that are left out in training.
        seed: Seed of all initial weights; ``None``: of the run.

    Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021,
    MLP in Tables 7-9.
    """

    formula = "MLP of x"

    def __init__(
        self,
        num_features: CountLike = "auto",
        hidden: PositiveInt = 32,
        groups: PositiveInt = 1,
        dropout: DropoutShare = 0.0,
        seed: SeedLike = None,
        num_axes: PositiveInt = 1,
    ) -> None:
        super().__init__(num_features, num_axes, groups, mlp=True, num_inputs=1)
        self.num_inputs = self.num_axes // self.groups
        generator = seeded(seed)
        self.add_modulator(hidden, False, dropout, generator)

    def group_features(self, coords: Tensor) -> Tensor:
        return coords


class Embedding(Grouped, TableEncoder):
    """A trained vector per position :math:`i/P`, as Transformers have them; between positions interpolated.

    With ``flat`` one vector per position of all axes together (Embed-1D of the paper), else one per position of each axis,
    side by side (Embed-2D, Embed-4D).

    When to use:
        Works where positions are few and all of them are trained, as tokens of Transformers. Fails between and beyond
        trained positions: vectors without samples keep their initial values.

    Args:
        num_features: Number of features of the output; ``auto``: as many as trained samples.
        num_positions: Number ``P`` of positions per axis; ``auto``: of the trained samples. Positions between which there is
            no sample are not trained.
        flat: Whether all axes of a group have one table together, of ``P ** num_axes`` rows.
        interpolation: Between positions: ``linear``, or ``nearest``, which has no gradient with respect to ``x``.
        num_inputs: Length of the vector of a group below the MLP; without it there are ``num_features / groups``.
        hidden: Hidden units ``|H|`` of the MLP.
        layer_norm: Whether a LayerNorm comes before each dense layer of the MLP.
        dropout: Share of the hidden units that are left out in training.
        seed: Seed of all initial weights, ``None`` for the seed of the run; the vectors are normal, of mean squared length
            one.

    Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021,
    Embed-1D, -2D and -4D in Tables 7-9.
    """

    formula = "row x P of a trained table, or between two"
    cell_nodes = 4
    from_samples: ClassVar = {"num_positions": positions_for}
    normalizable = False
    factors: Tensor
    first: Tensor

    def __init__(
        self,
        num_features: CountLike = "auto",
        num_positions: Annotated[int, 2] | Literal["auto"] = "auto",
        flat: bool = False,
        interpolation: Literal["linear", "nearest"] = "linear",
        mlp: bool = False,
        num_inputs: PositiveInt = 256,
        hidden: PositiveInt = 32,
        groups: PositiveInt = 1,
        layer_norm: bool = False,
        dropout: DropoutShare = 0.0,
        seed: SeedLike = None,
        num_axes: PositiveInt = 1,
    ) -> None:
        super().__init__(num_features, num_axes, groups, mlp, num_inputs)
        self.num_positions: int = sample_value(self, "num_positions", num_positions)
        self.flat = flat
        self.interpolation = interpolation
        axes_per_group = self.num_axes // self.groups
        if not flat and self.num_inputs < axes_per_group:
            raise InputError(
                f"Embedding: {axes_per_group} axes of a group need at least {axes_per_group} features, got {self.num_inputs}"
            )
        generator = seeded(seed)
        start = torch.empty(
            self.num_positions ** (axes_per_group if flat else 1), self.num_inputs, dtype=torch.float32, device="cpu"
        )
        self.table = nn.Parameter(start.normal_(0, self.num_inputs**-0.5, generator=generator))
        self.add_modulator(hidden, layer_norm, dropout, generator)
        # one lookup of all axes, or one per axis, in a block of the columns
        blocks = 1 if flat else axes_per_group
        nodes = [self.num_positions**axis for axis in reversed(range(axes_per_group))] if flat else [1] * axes_per_group
        factors = torch.tensor(nodes, device="cpu").reshape(-1, blocks)
        self.register_constants(factors=factors, first=len(start) * torch.arange(blocks, device="cpu"))

    def _lookup(self, coords: Tensor) -> list[Lookup]:
        last = self.num_positions - 1
        nearest = self.interpolation == "nearest"
        position = clamped(cell(coords, self.num_positions, 0.5) if nearest else coords * self.num_positions, 0, last)
        positions = position.movedim(-1, 0)[..., None] if self.flat else position[None]
        cells = torch.full_like(self.factors, last - 1)
        rows, shares = corners(positions, cells, self.factors)
        return [Lookup(rows + self.first, shares, (len(self.table),) * len(self.first))]

    def _vectors(self, lookups: Sequence[Lookup | SparseLookup]) -> Tensor:
        blocks = torch.tensor_split(self.table, len(self.first), 1)
        width = blocks[0].shape[1]  # the last ones may have a column less
        table = torch.cat([F.pad(block, (0, width - block.shape[1])) for block in blocks])
        if width * len(blocks) == self.num_inputs:
            return lookups[0].sums(table).flatten(-2)
        parts = zip(lookups[0].each(table), blocks, strict=True)
        return torch.cat([vectors[..., : block.shape[1]] for vectors, block in parts], -1)

    def lookup(self, x: Tensor) -> list[Lookup]:
        return self._lookup(self.grouped(points(self, x)))

    def from_lookup(self, lookups: Sequence[Lookup | SparseLookup]) -> Tensor:
        return self.joined(self._vectors(lookups))

    def group_features(self, coords: Tensor) -> Tensor:
        return self._vectors(self._lookup(coords))


def decay(count: int, base: float = 10000.0) -> Tensor:
    """The frequencies of a Transformer, :math:`b^{-2d/D}` for ``d`` from 0 to ``count - 1`` and ``D = 2 * count``."""
    return base ** (-torch.arange(count, dtype=torch.float64, device="cpu") / count)
