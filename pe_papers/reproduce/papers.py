"""Methods of the papers' own programs, for comparison: plain least squares, and blending; scores that others published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, registry, resolve
from pe_lightning.encoders.arguments import SeedLike
from pe_lightning.errors import InputError
from pe_lightning.evaluation.metrics import create
from pe_lightning.evaluation.scores import summary
from pe_lightning.linalg import mode_products
from pe_lightning.signals import GridBatch
from pe_lightning.training import SignalDataModule


def blending_weights(encoder: Encoder, nodes: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""The left node of points on one axis, and the weights of this node and of the next.

    :math:`\psi(x) \approx \alpha_0 \psi(x_0) + \alpha_1 \psi(x_1)` for :math:`x = x_0 + \beta d` between two nodes. With the
    encoder's similarity ``D``, least squares gives

    .. math::
        \alpha_0 = \frac{D(0) D(\beta d) - D(d) D((1 - \beta) d)}{D(0)^2 - D(d)^2}, \quad
        \alpha_1 = \frac{D(0) D((1 - \beta) d) - D(d) D(\beta d)}{D(0)^2 - D(d)^2},

    and the pair is divided by its sum, as in the papers' experiments.

    Args:
        encoder: Its ``distance`` is the similarity ``D``.
        nodes: Number of nodes on ``linspace(0, 1, nodes)``.
        x: Coordinates ``(*batch,)``, clamped to [0, 0.999].

    Returns:
        Indices, int64, and weights that sum to one, float64, each ``(*batch,)``.
    """
    cells = nodes - 1
    # coordinates are clamped to this, as in the papers' experiments, so that every point has a node to its right
    position = x.double().clamp(0, 0.999) * cells
    left = position.floor().clamp_(0, cells - 1)
    beta, spacing = position - left, 1 / cells
    here, there = encoder.distance(torch.tensor([0.0, spacing], dtype=torch.float64, device=x.device)).unbind()
    near, far = encoder.distance(beta * spacing), encoder.distance((1 - beta) * spacing)
    # the common factor 1 / (D(0)^2 - D(d)^2) drops out of the rescaled pair
    first, second = here * near - there * far, here * far - there * near
    return left.long(), first / (first + second), second / (first + second)


class BlendedAxis(Encoder):
    r"""The papers' blending on one axis: :math:`\alpha_0 \psi(i/K) + \alpha_1 \psi((i+1)/K)`.

    Its complex encoding blends :math:`2^D` nodes. As in the authors' program, the nodes around x are
    ``i = floor(x (K - 1))`` and ``i + 1``, while the features of node ``i`` are those at the shift ``i/K``.

    Args:
        inner: Name and arguments of the encoder.
        num_features: Number of features and of nodes, ``K``.
        seed: Seed of an encoder with random parameters, ``None`` for the seed of the run; ignored for other encoders.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 13-15
    and 43-49.
    """

    formula = "α₀ ψ(i/K) + α₁ ψ((i + 1)/K) between two nodes"

    def __init__(self, inner: Mapping[str, Any] | None = None, num_features: int = 256, seed: SeedLike = None) -> None:
        super().__init__(num_features)
        arguments = {"name": "gau", **(inner or {}), "num_features": num_features}
        drawn = "seed" in registry.parameters(registry.get(arguments["name"]))
        self.seed = seed if drawn else None
        if drawn:
            arguments["seed"] = seed
        self.encoder = resolve(arguments)

    def forward(self, x: Tensor) -> Tensor:
        """``(*batch,)`` in [0, 1] -> ``(*batch, num_features)``."""
        left, first, second = blending_weights(self.encoder, self.num_features, x)
        if not (first.isfinite() & second.isfinite()).all():
            raise InputError(f"{self.encoder.name!r} cannot be blended: the weights at a coordinate are 0/0; make it wider")
        nodes = self.encoder(torch.arange(self.num_features, dtype=x.dtype, device=x.device) / self.num_features)
        features: Tensor = first.to(x.dtype)[..., None] * nodes[left] + second.to(x.dtype)[..., None] * nodes[left + 1]
        return features


def plain_least_squares(data: SignalDataModule, encoder: Mapping[str, Any]) -> dict[str, Any]:
    r"""Least squares along one axis after the other in float32: :math:`W = \Psi_1^+ S (\Psi_2^+)^T`.

    Without centring and regularisation. For rank-deficient features the result depends on the routine and its rank
    threshold; this is the default of PyTorch on a CPU, a QR decomposition with pivoting.

    Args:
        data: The signals; the trained samples form a grid.
        encoder: Name and arguments of the encoder of every axis.

    Returns:
        Scores and sizes by name.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 12, 42.
    """
    train, whole, name = data.train_batch(), data.evaluation_batch(), data.info.metric
    if not isinstance(train, GridBatch) or not isinstance(whole, GridBatch):
        raise InputError("the papers' closed form needs trained samples that form a grid")
    psi = resolve(dict(encoder))
    weight = train.values.movedim(-1, 1)
    for axis, x in enumerate(train.axes, 2):
        columns = weight.movedim(axis, 0)
        solved = torch.linalg.lstsq(psi(x), columns.flatten(1), driver="gelsy").solution
        weight = solved.unflatten(1, columns.shape[1:]).movedim(0, axis)
    prediction = mode_products(weight, [psi(x) for x in whole.axes]).movedim(1, -1)
    score = create(name, data.info.num_signals)
    score.update(prediction, whole.values, whole.mask)
    return {
        **summary(score.per_signal(), name, "nothing is held out"),
        "parameters": weight[0].numel(),
        "signals": list(data.info.names),
        "grid": list(data.info.grid),
        "protocol": data.signals.eval_mask,
    }


def published_scores(parameters: Sequence[int], psnr: Sequence[float]) -> dict[str, Any]:
    """Published scores as results of a cell that is not fitted, so that a figure shows them beside ours.

    Args:
        parameters: Numbers of parameters.
        psnr: The published PSNR at each of them, in dB.

    Returns:
        Both lists, as ``parameters`` and ``published``.
    """
    return {"parameters": list(parameters), "published": list(psnr)}
