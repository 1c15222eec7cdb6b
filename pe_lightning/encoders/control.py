"""Controls of the papers' experiments: no encoding, and an encoding without structure."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lightning.encoders.base import Encoder, check_count, exact_dtype, registry
from pe_lightning.encoders.cells import cell
from pe_lightning.encoders.fourier import RETHINKING

__all__ = ["Identity", "Noise"]


@registry.register("identity")
class Identity(Encoder):
    r"""No encoding: :math:`\psi(x) = x`.

    The baseline that encodings exist to beat: an MLP above it learns low frequencies and hardly any detail, and a
    linear model of it is a plane.

    Shape:
        ``(*batch,)`` -> ``(*batch, 1)``.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Sec. 5.3.
    """

    formula = "x"
    reference = f"{RETHINKING}, Sec. 5.3"

    def __init__(self) -> None:
        super().__init__(num_features=1)

    def forward(self, x: Tensor) -> Tensor:
        """The coordinate itself, a copy."""
        exact_dtype(x)  # for its check
        return x[..., None].clone()


@registry.register("noise")
class Noise(Encoder):
    r"""A fixed random vector per position: row :math:`\lfloor x P \rfloor` of a table of standard normal numbers.

    Full rank and no similarity between neighbours: memorises every training point and knows nothing between them, like
    ``impulse``. Piecewise constant: no gradient with respect to ``x``. The table is part of the ``state_dict``.

    Args:
        num_features: Number of features ``K``.
        seed: Seed of the table.
        num_positions: Number ``P`` of positions that [0, 1] is divided into.

    Shape:
        ``(*batch,)`` in [0, 1] -> ``(*batch, num_features)``; coordinates outside take the nearest end's vector.

    Raises:
        InputError: If ``seed`` is negative or ``num_positions`` is not positive.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Sec. 5.2.
    """

    formula = "row floor(x P) of a fixed random table"
    reference = f"{RETHINKING}, Sec. 5.2"
    table: Tensor

    def __init__(self, num_features: int = 256, seed: int = 0, num_positions: int = 4096) -> None:
        super().__init__(num_features)
        self.seed = check_count(self, "seed", seed, minimum=0)
        self.num_positions = check_count(self, "num_positions", num_positions)
        generator = torch.Generator("cpu").manual_seed(self.seed)
        table = torch.randn(self.num_positions, self.num_features, generator=generator, dtype=torch.float32, device="cpu")
        self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        """The table's rows."""
        row = cell(x, self.num_positions).clamp_(0, self.num_positions - 1).long()
        return self.table[row].to(x.dtype)
