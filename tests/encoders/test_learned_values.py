"""Encoders with parameters against NumPy formulas written from the papers, with parameters that are not the initial ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from learned_encoders import train
from numpy.typing import NDArray
from torch import Tensor

from pe_lightning.encoders import Encoder, Samples, create, for_data, resolve
from pe_lightning.errors import InputError

Array = NDArray[np.float64]


def trained(name: str, **arguments: Any) -> tuple[Encoder, dict[str, Array]]:
    """The encoder in float64, its parameters and buffers all moved, and they as arrays."""
    encoder = train(create(name, **arguments).double()).eval()
    state = itertools.chain(encoder.named_parameters(), encoder.named_buffers())
    return encoder, {key: value.detach().numpy() for key, value in state}


def points(num_axes: int, count: int = 40) -> tuple[Tensor, Array]:
    """Points, and the same as an array ``(count, num_axes)``."""
    array = np.random.default_rng(num_axes).uniform(size=(count, num_axes))
    return torch.from_numpy(array if num_axes > 1 else array[:, 0]), array


def same(features: Tensor, expected: Array) -> None:
    np.testing.assert_allclose(features.detach().numpy(), expected, rtol=1e-9, atol=1e-9)


# -- learnable Fourier features and sinusoids ---------------------------------------------------------------------------


def normalised(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def mlp(p: dict[str, Array], x: Array, layer_norm: bool = False) -> Array:
    w1, b1, w2, b2 = (p[f"modulator.{key}"] for key in ("weight_1", "bias_1", "weight_2", "bias_2"))
    h = (normalised(x) if layer_norm else x) @ w1.T + b1
    h = h * (1 + np.vectorize(math.erf)(h / math.sqrt(2))) / 2
    return (normalised(h) if layer_norm else h) @ w2.T + b2


@pytest.mark.parametrize(("groups", "num_axes"), [(1, 1), (1, 2), (2, 4), (4, 4)])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_learnable_fourier_features(groups: int, num_axes: int, layer_norm: bool) -> None:
    given = {"num_features": 12, "gamma": 0.2, "num_inputs": 10, "hidden": 5, "mlp": True, "layer_norm": layer_norm}
    encoder, p = trained("lff", groups=groups, num_axes=num_axes, **given)
    x, array = points(num_axes)
    angles = array.reshape(-1, groups, num_axes // groups) @ p["frequencies"].T
    features = np.concatenate([np.cos(angles), np.sin(angles)], -1) / math.sqrt(10)
    np.testing.assert_allclose((features**2).sum(-1), 0.5)
    same(encoder(x), mlp(p, features, layer_norm).reshape(len(array), 12))


def test_fourier_features_without_an_mlp_have_a_squared_norm_of_one_half() -> None:
    encoder, p = trained("lff", num_features=64, num_axes=2)
    x, _ = points(2)
    torch.testing.assert_close(encoder(x).square().sum(-1), torch.full((40,), 0.5, dtype=torch.float64))
    products = encoder(x) @ encoder(x[0])
    torch.testing.assert_close(encoder.distance(x - x[0]), products)
    same(products, np.cos((x - x[0]).numpy() @ p["frequencies"].T).mean(-1) / 2)
    with pytest.raises(NotImplementedError, match="no closed form of D"):
        create("lff", mlp=True, num_axes=2).distance(x)


@pytest.mark.parametrize(("init", "mean", "deviation"), [("normal", 0.0, 50.0), ("uniform", 25.0, 50 / math.sqrt(12))])
def test_gamma_is_one_over_the_standard_deviation(init: str, mean: float, deviation: float) -> None:
    frequencies = dict(create("lff", num_features=20000, gamma=0.02, init=init).named_parameters())["frequencies"]
    assert frequencies.mean().item() == pytest.approx(mean, abs=1.5)
    assert frequencies.std().item() == pytest.approx(deviation, rel=0.03)


def test_the_regulariser_is_a_divergence_with_a_trained_variance() -> None:
    encoder, p = trained("lff", kl=3.0, gamma=0.5)
    w, target = p["frequencies"], math.exp(p["log_variance"])
    expected = 1.5 * (np.log(target) - np.log(w.var()) + (w.var() + w.mean() ** 2) / target - 1)
    assert encoder.penalty().item() == pytest.approx(expected, rel=1e-9)
    assert 0 <= create("lff", kl=1.0, num_features=20000).penalty() < 1e-3, "zero for what W_r is drawn from"
    with pytest.raises(InputError, match="one frequency has no variance"):
        create("lff", kl=1.0, num_features=2)
    gradients = torch.autograd.grad(encoder.penalty(), [encoder.frequencies, encoder.log_variance])
    share = (w - w.mean()) / w.size
    same(gradients[0], 3 * (-share / w.var() + (share + w.mean() / w.size) / target))
    assert gradients[1].item() == pytest.approx(1.5 * (1 - (w.var() + w.mean() ** 2) / target), rel=1e-9)
    assert create("lff").penalty() == 0


def both(angles: Array) -> Array:
    return np.concatenate([np.cos(angles), np.sin(angles)], -1)


def test_invalid_groups_of_axes_and_features_are_refused() -> None:
    with pytest.raises(InputError, match=r"groups must divide num_axes and num_features, got 2; num_axes is 3"):
        create("lff", groups=2, num_axes=3)
    with pytest.raises(InputError, match="num_features must be even per group"):
        create("lff", num_features=7)
    for name in ("linf", "logf", "rff"):
        with pytest.raises(InputError, match=r"num_features must be even.*got 255; use 254 or 256$"):
            create(name, num_features=255)
    with pytest.raises(InputError, match="num_inputs must be even per group"):
        create("lff", mlp=True, num_inputs=7)


# -- tables ---------------------------------------------------------------------------------------------------------------


def corners(position: Array) -> list[tuple[tuple[int, ...], float]]:
    """The nodes around one point and their shares."""
    lower = np.floor(position).astype(int)
    share = position - lower
    return [
        (tuple(int(n) for n in lower + side), float(np.prod(np.where(side, share, 1 - share))))
        for side in itertools.product((0, 1), repeat=len(position))
    ]


PI = [1, 2654435761, 805459861, 3674653429]


@pytest.mark.parametrize("num_axes", [1, 2, 3, 4])
@pytest.mark.parametrize("table_size", [None, 50])
def test_multi_resolution_grids(num_axes: int, table_size: int | None) -> None:
    """A loop over points, levels and corners; ``None`` is the dense grid."""
    name, more = ("grid", {}) if table_size is None else ("hash", {"table_size": table_size})
    finest = [7, 5, 7, 6][:num_axes]
    arguments = {"num_levels": 3, "level_features": 2, "finest": finest, "span": 2.0, **more}
    encoder, p = trained(name, num_axes=num_axes, **arguments)
    x, array = points(num_axes)
    expected, first, hashed = np.zeros((40, 6)), 0, 0
    for level in range(3):
        cells = np.array([math.floor(n * 2 ** (level / 2 - 1) + 1e-9) for n in finest])
        nodes = int(np.prod(cells + 2))
        size = min(nodes, table_size or nodes)
        table, first = p["table"][first : first + size], first + size
        hashed += size < nodes
        for i, point in enumerate(array):
            for node, share in corners(point * cells + 0.5):
                row = int(np.ravel_multi_index(node, tuple(cells + 2)))
                if size < nodes:
                    row = 0
                    for n, prime in zip(node, PI, strict=False):
                        row ^= n * prime
                    row %= size
                expected[i, 2 * level : 2 * level + 2] += share * table[row]
    assert first == len(p["table"])
    assert hashed == (0 if table_size is None else {1: 0, 2: 1, 3: 3, 4: 3}[num_axes])
    same(encoder(x), expected)


@pytest.mark.parametrize("arguments", [{"name": "hash", "finest": [6, 4]}, {"name": "planes", "plane_cells": [6, 4]}])
def test_a_list_of_one_number_per_axis_says_how_many_axes_there_are(arguments: dict[str, Any]) -> None:
    """``--model.encoder.finest "[64, 64, 16]"`` alone is enough."""
    encoder = resolve(arguments)
    assert encoder(torch.rand(5, 2)).shape == (5, encoder.num_features)
    assert encoder.copy().num_axes == for_data(encoder, Samples((32, 32))).num_axes == 2
    with pytest.raises(InputError, match="a list of 3, one per axis"):
        resolve({**arguments, "num_axes": 3})


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_lines_and_planes(num_axes: int) -> None:
    x, array = points(num_axes)
    cells, coarse = [7, 5, 6][:num_axes], [3, 2, 4][:num_axes]
    nodes = [n + 1 for n in cells]

    def line(p: dict[str, Array], a: int) -> Array:
        table = np.split(p["table"], np.cumsum(nodes))[a]
        return np.stack([np.interp(array[:, a] * cells[a], np.arange(nodes[a]), values) for values in table.T], 1)

    encoder, p = trained("lines", rank=4, cells=cells, num_axes=num_axes)
    same(encoder(x), np.prod([line(p, a) for a in range(num_axes)], 0))
    encoder, p = trained("planes", rank=4, cells=cells, plane_cells=coarse, num_axes=num_axes)
    expected, rest = np.prod([line(p, a) for a in range(num_axes)], 0), p["table"][sum(nodes) :]
    for a, b in itertools.combinations(range(num_axes), 2):
        size = (coarse[a] + 1) * (coarse[b] + 1)
        table, rest = rest[:size].reshape(coarse[a] + 1, coarse[b] + 1, 4), rest[size:]
        position = array[:, [a, b]] * [coarse[a], coarse[b]]
        plane = np.array([sum(share * table[node] for node, share in corners(point)) for point in position])
        expected += plane * np.prod([np.ones_like(plane)] + [line(p, c) for c in range(num_axes) if c not in (a, b)], 0)
    assert len(rest) == 0
    same(encoder(x), expected)


# -- widths ---------------------------------------------------------------------------------------------------------------

SHIFTS = np.arange(8) / 8
WIDTHS: dict[str, tuple[str, float, Callable[[Array, Any], Array]]] = {
    "gau": ("sigma", 0.1, lambda x, s: np.exp(-((x - SHIFTS) ** 2) / (2 * s**2))),
    "tri": ("half_width", 0.2, lambda x, d: np.maximum(1 - np.abs(x - SHIFTS) / d, 0)),
    "laplace": ("scale", 0.1, lambda x, length: np.exp(-np.abs(x - SHIFTS) / length)),
    "linf": ("sigma", 3.0, lambda x, s: np.linspace(1, 2**s, 4)),
    "logf": ("sigma", 3.0, lambda x, s: 2 ** np.linspace(0, s, 4)),
    "rff": ("sigma", 5.0, lambda x, s: s),
}


@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("per_feature", [False, True])
def test_a_trained_width_is_in_the_formula_and_in_what_is_reported(name: str, per_feature: bool) -> None:
    argument, start, formula = WIDTHS[name]
    given, more = {argument: start, "num_features": 8}, {"per_feature": per_feature}
    if name not in ("linf", "logf", "rff"):
        if per_feature:
            with pytest.raises(InputError, match=f"'{name}' has no argument 'per_feature'"):
                create(name, per_feature=True)
            return
        assert create(name, **more).arguments == create(name).arguments, "false in files of version 0.3"
        more = {}
    fixed, untrained = create(name, **given), create(name, **given, trainable=True, **more)
    x, array = points(1)
    assert not list(fixed.parameters())
    torch.testing.assert_close(untrained(x), fixed(x), rtol=1e-4, atol=1e-5)
    assert untrained.resolved()[argument] == pytest.approx(start, rel=1e-6)
    encoder, p = trained(name, **given, trainable=True, **more)
    width = np.exp(p[f"log_{argument}"])
    assert encoder.resolved()[argument] == pytest.approx(width, rel=1e-6)
    assert encoder.resolved()[argument] != pytest.approx(start, rel=0.05)
    assert width.shape == ()
    values = formula(array, width)
    if name in ("linf", "logf", "rff"):
        values = values * (p["frequencies"][:, 0] if name == "rff" else np.exp(p.get("log_factors", 0.0)))
        values = both(2 * np.pi * array * values)
    same(encoder(x), values)
    gradients = torch.autograd.grad(encoder(x)[:, 2:].sum(), list(encoder.parameters()))
    assert all(gradient.isfinite().all() and gradient.abs().sum() > 0 for gradient in gradients)
    if more:
        with pytest.raises(InputError, match="per_feature: true needs trainable: true"):
            create(name, per_feature=True)
