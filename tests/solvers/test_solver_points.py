"""The scattered solver against dense least squares on an explicit Kronecker product, in float64."""

from __future__ import annotations

import json
import warnings
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch
from draws import numbers
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.signals import grid_axes, point_coordinates
from pe_lightning.solvers import ConvergenceWarning, solve_points
from pe_lightning.solvers.samples import MaskedGrid, ScatteredPoints

ENCODERS: list[dict[str, Any]] = [
    {"name": "gau", "num_features": 6, "sigma": 0.12},
    {"name": "laplace", "num_features": 5, "scale": 0.2},
    {"name": "tri", "num_features": 3, "half_width": 0.4},
]
GRID = (9, 7, 4)
TIGHT: dict[str, Any] = {"iterations": 2000, "tolerance": 1e-12}


dimensions = pytest.mark.parametrize("num_axes", [1, 2, 3])


def row_kron(features: list[Tensor]) -> Tensor:
    """Rows of the Kronecker product of per-point features, by NumPy's own kron."""
    rows = [reduce(np.kron, [f[p].numpy() for f in features]) for p in range(len(features[0]))]
    return torch.from_numpy(np.stack(rows))


def dense(features: list[Tensor], values: Tensor, ridge: float, center: bool = True) -> tuple[Tensor, Tensor, float]:
    """Weights ``(C, K...)``, mean and absolute ridge of one signal from its points' features, by dense lstsq."""
    matrix = row_kron(features)
    absolute = ridge * float(matrix.square().sum(1).mean())
    mean = values.mean(0) if center else torch.zeros(values.shape[1], dtype=values.dtype)
    stacked = np.concatenate([matrix.numpy(), np.sqrt(absolute) * np.eye(matrix.shape[1])])
    target = np.concatenate([(values - mean).numpy(), np.zeros((matrix.shape[1], values.shape[1]))])
    weight = np.linalg.lstsq(stacked, target, rcond=1e-13)[0]
    return torch.from_numpy(weight.T.copy()).reshape(-1, *[f.shape[1] for f in features]), mean, absolute


def at(made: list[Encoder], coords: Tensor) -> list[Tensor]:
    return [encoder(x) for encoder, x in zip(made, coords.unbind(-1), strict=True)]


def make(num_axes: int) -> list[Encoder]:
    return [encoders.resolve(entry) for entry in ENCODERS[:num_axes]]


# -- against dense least squares --------------------------------------------------------------------------------------


@dimensions
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("masked", "center"), [(True, True), (True, False), (False, True)])
def test_weights_are_those_of_dense_least_squares(num_axes: int, shared: bool, masked: bool, center: bool) -> None:
    grid, made, rows = GRID[:num_axes], make(num_axes), 1 if shared else 3
    axes = grid_axes(grid, torch.float64)
    if masked:
        values, mask = numbers(3, *grid, 2), numbers(rows, *grid, seed=1) < 0.6
        where: dict[str, Any] = {"axes": axes, "mask": mask}
        coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)[None].expand(rows, *grid, num_axes)
    else:
        values, coords = numbers(3, 40, 2), numbers(rows, 40, num_axes, seed=2)
        where, mask = {"coords": coords}, torch.ones(rows, 40, dtype=torch.bool)
    solution = solve_points(values, made, ridge=1e-2, center=center, **where, **TIGHT)
    for s in range(3):
        some = mask[s % rows]
        features, target = at(made, coords[s % rows][some]), values[s][some]
        weight, mean, absolute = dense(features, target, 1e-2, center)
        torch.testing.assert_close(solution.weight[s], weight, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(solution.mean[s], mean)
        assert solution.absolute_ridge[s].item() == pytest.approx(absolute)
        error = (row_kron(features) @ weight.flatten(1).T + mean - target).square().sum()
        assert solution.squared_error[s].item() == pytest.approx(error.item())
        assert solution.count[s] == 2 * int(some.sum())
    assert solution.converged.all()


@dimensions
@pytest.mark.parametrize("shared", [True, False])
def test_positions_in_a_grid_masks_and_coordinates_agree(num_axes: int, shared: bool) -> None:
    grid, made = GRID[:num_axes], make(num_axes)
    size = int(np.prod(grid))
    values = numbers(2, *grid, 3)
    index = torch.stack([numbers(size, seed=s).argsort()[: size // 2].sort().values for s in range(1 if shared else 2)])
    mask = torch.zeros(len(index), size, dtype=torch.bool).scatter_(1, index, True).reshape(-1, *grid)
    at_points = values.flatten(1, -2).gather(1, index.expand(2, -1)[..., None].expand(-1, -1, 3))
    axes = grid_axes(grid, torch.float64)
    coords = point_coordinates(axes, index)
    given = {"encoder": made, "ridge": 1e-3, **TIGHT}
    by_mask = solve_points(values, axes=axes, mask=mask, **given)
    by_index = solve_points(at_points, axes=axes, index=index, coords=coords, **given)
    by_coords = solve_points(at_points, coords=coords, **given)
    torch.testing.assert_close(by_index.weight, by_mask.weight, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(by_coords.weight, by_mask.weight, rtol=1e-7, atol=1e-8)
    few, twice = slice(2), torch.arange(size // 2).repeat(2)  # so few that points go one by one; and each point twice
    for some in (few, twice):
        found = solve_points(at_points[:, some], axes=axes, index=index[:, some], **given)
        expected = solve_points(at_points[:, some], coords=coords[:, some], **given)
        torch.testing.assert_close(found.weight, expected.weight, rtol=1e-8, atol=1e-9)
    whole = by_coords.predict(axes).flatten(1, -2)
    predicted = whole.gather(1, index.expand(2, -1)[..., None].expand(-1, -1, 3))
    torch.testing.assert_close(by_coords.at(coords), predicted)
    report = by_coords.report().to_dict()
    assert json.loads(json.dumps(report)) == report
    assert (report["solver"], report["converged"], report["choice"]["rule"]) == ("points", True, "given")
    assert report["iterations"] == by_coords.iterations.tolist()


class Scaled(Encoder):
    """Gaussians times a number."""

    name = "scaled"

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(6)
        self.scale, self.inner = scale, encoders.create("gau", num_features=6, sigma=0.12)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.inner(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("values_scale", "ridge"), [(1e-38, 1e-3), (1e-25, 1e-3), (1e-25, 0.0), (1e25, 0.0), (1e37, 1e-3)])
def test_the_size_of_values_and_of_features_does_not_matter(values_scale: float, ridge: float, dtype: torch.dtype) -> None:
    """Squares of tiny values are zero in float32, of huge ones infinite."""
    made, coords, shape = make(2), numbers(60, 2), numbers(2, 60, 1, seed=3) - 0.5
    given: dict[str, Any] = {"coords": coords, "ridge": ridge, "iterations": 500, "tolerance": 1e-9}
    values = (shape * values_scale).to(dtype)
    solution = solve_points(values, made, **given)
    for signal in range(2):
        weight, _, _ = dense(at(made, coords), values[signal].double() / values_scale, ridge)
        found = solution.weight[signal].double() / values_scale
        tolerance = 1e-3 if dtype == torch.float32 else 1e-6
        torch.testing.assert_close(found, weight, rtol=tolerance, atol=tolerance * float(weight.abs().max()))
    same = solve_points(shape.to(dtype), made, **given)
    torch.testing.assert_close(solution.squared_error / values_scale**2, same.squared_error, rtol=1e-4, atol=1e-12)
    given |= {"ridge": 1e-3, "tolerance": 1e-5}
    same, *others = (solve_points(shape.float(), Scaled(scale), **given) for scale in (1.0, 1e-12, 1e15))
    for solution in others:
        assert solution.converged.all()
        assert (solution.iterations - same.iterations).abs().max() <= 2
        torch.testing.assert_close(solution.at(coords), same.at(coords), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("sigma", [0.2, 0.4], ids=["condition 1e14", "condition 1e18"])
@pytest.mark.parametrize("masked", [False, True])
def test_an_ill_conditioned_fit_without_a_ridge_is_at_its_minimum(sigma: float, masked: bool) -> None:
    """A hundred iterations end 40 to 90 % above it."""
    made = [encoders.create("gau", num_features=14, sigma=sigma)] * 2
    if masked:
        axes = [x.double() for x in grid_axes((20, 18))]
        mask, values = numbers(20, 18, seed=1) < 0.7, numbers(1, 20, 18, 1, seed=3)
        solution = solve_points(values, made, axes=axes, mask=mask, ridge=0.0)
        coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)[mask]
        values = values[:, mask]
    else:
        coords, values = numbers(300, 2), numbers(2, 300, 1, seed=3)
        solution = solve_points(values, made, coords=coords, ridge=0.0)
        # weights of 1e10 would enlarge the rounding errors of features in float32
        rounded = solve_points(values, made, coords=coords.float(), ridge=0.0)
        error = float((rounded.at(coords.float()) - values).square().sum())
        assert error == pytest.approx(float(rounded.squared_error.sum()), rel=1e-2)
    assert solution.solver == "dense"
    matrix = row_kron(at(made, coords))
    for signal, weight in enumerate(solution.weight.flatten(2)):
        target = values[signal] - values[signal].mean(0)
        best = matrix @ torch.from_numpy(np.linalg.lstsq(matrix.numpy(), target.numpy(), rcond=None)[0]) - target
        error = float((matrix @ weight.T - target).square().sum())
        assert error <= 1.01 * float(best.square().sum())
        assert float(solution.squared_error[signal]) == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize(("num_features", "sigma"), [(14, 0.05), (8, 0.2), (14, 0.2), (14, 0.4)])
@pytest.mark.parametrize("points", [300, 40], ids=["overdetermined", "repeated points, fewer than weights"])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_float32_weights_without_a_ridge_are_those_of_float64_rounded(
    num_features: int, sigma: float, points: int, noise: float
) -> None:
    """Where float32 cannot hold them (condition numbers 1e3, 1e7, 1e16, 1e17) the solution says how far off it is."""
    made = [encoders.create("gau", num_features=num_features, sigma=sigma)] * 2
    coords = numbers(points, 2) if points == 300 else numbers(10, 2).repeat(4, 1)
    values = (torch.sin(7 * coords[:, :1]) + noise * numbers(points, 1, seed=3))[None].float()
    target = values[0].double() - values[0].double().mean(0)
    matrix = row_kron(at(made, coords))
    expected = torch.from_numpy(np.linalg.lstsq(matrix.numpy(), target.numpy(), rcond=None)[0])[:, 0]
    least, norm = float((matrix @ expected - target[:, 0]).square().sum()), float(target.square().sum())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = solve_points(values, made, coords=coords, ridge=0.0)
    error = float((solution.at(coords).double() - values.double()).square().sum())
    excess = float(solution.excess_error)
    assert solution.weight.dtype == torch.float32
    assert solution.exact == bool(solution.converged.all()) == (solution.report().excess_error <= 1e-4)
    assert any("times the least squared error" in str(w.message) for w in caught) == (excess > 0.05)
    assert error <= 1.5 * float(solution.squared_error) + 1e-9 * norm
    assert error <= max(least, 1e-6 * norm) * (1.001 + 1.5 * excess) + 1e-9 * norm
    if sigma == 0.05:  # condition 1e3: float32 holds the optimum
        assert solution.exact
        torch.testing.assert_close(
            solution.weight.double().flatten(), expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max())
        )


def test_iterations_that_rounding_ends_have_not_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pe_lightning.solvers.dense.MAX_NUMBERS", 0)
    made = [encoders.create("gau", num_features=14, sigma=0.4)] * 2
    coords, values = numbers(300, 2), numbers(1, 300, 1, seed=3)
    solution = solve_points(values, made, coords=coords, ridge=0.0, iterations=600, tolerance=1e-9)
    assert solution.report().relative_residual == float(solution.relative_residual)
    assert solution.report().converged is bool(solution.relative_residual <= 1e-9) is False
    assert solution.report().exact is False
    matrix = row_kron(at(made, coords))
    left = matrix @ solution.weight.flatten() - (values[0, :, 0] - values.mean())
    assert float((matrix.T @ left).norm() / matrix.norm() / left.norm()) == pytest.approx(
        float(solution.optimality), rel=1e-2
    )


def test_the_stopping_rule() -> None:
    values, mask = numbers(3, 9, 8, 2), numbers(3, 9, 8, seed=1) < 0.5
    given: dict[str, Any] = {"axes": grid_axes((9, 8)), "mask": mask, "ridge": 1e-3}
    before = torch.zeros(3, dtype=torch.int64)
    for tolerance in (1e-1, 1e-3, 1e-6, 1e-9):
        solution = solve_points(values, make(2), tolerance=tolerance, iterations=300, **given)
        assert solution.converged.all()
        assert (solution.relative_residual <= tolerance).all()
        if tolerance > 1e-6:  # it is not overdone; near the end conjugate gradients finish at once
            assert (solution.relative_residual > 1e-3 * tolerance).all()
        assert (solution.iterations >= before).all()
        assert (solution.iterations > before).any()
        before = solution.iterations
    capped = solve_points(values, make(2), tolerance=1e-9, iterations=int(before.min()) - 1, **given)
    assert (capped.iterations == before.min() - 1).all()
    assert not capped.converged.any()
    whole = solve_points(values, make(2), tolerance=1e-10, **{**given, "mask": torch.ones_like(mask[:1])})
    assert whole.iterations.tolist() == [1, 1, 1], "the preconditioner is exact on a whole grid"
    with pytest.warns(ConvergenceWarning, match="after 1 iterations"):
        solve_points(values, "linf", iterations=1, **{**given, "ridge": 1e-4})


@pytest.mark.parametrize(
    ("signals", "location", "limits"),
    [
        (5, {"axes": grid_axes((9, 8)), "mask": numbers(5, 9, 8, seed=1) < 0.5}, {"iterative.GROUP_NUMBERS": 2 * 2 * 72}),
        (2, {"coords": numbers(2, 50, 2, seed=2)}, {"samples.CHUNK_NUMBERS": 100}),
        (2, {"coords": numbers(2, 50, 2, seed=2)}, {"samples.CHUNK_NUMBERS": 100, "samples.CACHE_BYTES": 0}),
    ],
    ids=["groups of signals", "chunks of points", "chunks that are not stored"],
)
def test_parts_are_solved_as_the_whole(
    monkeypatch: pytest.MonkeyPatch, signals: int, location: dict[str, Any], limits: dict[str, Any]
) -> None:
    values = numbers(signals, *((9, 8) if "mask" in location else (50,)), 2)
    given: dict[str, Any] = {"encoder": make(2), "ridge": 0.01, **location, **TIGHT}
    whole = solve_points(values, **given)
    for name, limit in limits.items():
        monkeypatch.setattr(f"pe_lightning.solvers.{name}", limit)
    torch.testing.assert_close(solve_points(values, **given).weight, whole.weight)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", [MaskedGrid, ScatteredPoints])
def test_samples_multiply_as_their_dense_matrices(kind: type, shared: bool) -> None:
    made, axes = make(2), grid_axes((9, 7), torch.float64)
    mask = numbers(1 if shared else 2, 63, seed=1) < 0.6
    coords = numbers(1 if shared else 2, 63, 2, seed=2)
    samples = MaskedGrid(made, axes, mask) if kind is MaskedGrid else ScatteredPoints(made, coords, mask)
    matrix = samples.dense()
    rows = samples.coordinates()
    expected = torch.stack([row_kron(at(made, rows[min(s, len(rows) - 1)])) * m[:, None] for s, m in enumerate(mask)])
    torch.testing.assert_close(matrix, expected)
    assert matrix.shape[1:] == (63, 30)
    x, y = numbers(2, 3, 30), numbers(2, 3, 63)
    torch.testing.assert_close(samples.matvec(x), x @ matrix.transpose(1, 2))
    torch.testing.assert_close(samples.rmatvec(y), y @ matrix)
    bases = [numbers(6, 4), numbers(5, 3)]
    turned = samples.to(torch.float32, bases)
    torch.testing.assert_close(turned.dense().double(), matrix @ torch.kron(*bases), rtol=1e-5, atol=1e-5)


# -- nothing blows up -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize(
    "case", ["zero", "constant", "one point", "same point", "one value differs", "no overlap", "huge", "tiny"]
)
def test_breakdowns_are_finite(case: str, ridge: float) -> None:
    values, coords = numbers(2, 20, 1).float(), numbers(1, 20, 2, seed=5).float()
    encoder: dict[str, Any] = {"name": "gau", "num_features": 6, "sigma": 0.1}
    if case == "zero":
        values = torch.zeros_like(values)
    elif case == "constant":
        values = torch.full_like(values, 0.7)
    elif case == "one point":
        values, coords = values[:, :1], coords[:, :1]
    elif case == "same point":
        coords = coords[:, :1].expand(-1, 20, -1)
    elif case == "one value differs":
        values = torch.zeros_like(values)
        values[1, 3] = 1
    elif case == "no overlap":  # no feature differs from zero at any point
        encoder, coords = {"name": "tri", "num_features": 2, "half_width": 0.1}, coords * 0.2 + 0.2
    else:
        values = values * (1e15 if case == "huge" else 1e-25)
    solution = solve_points(values, encoder, coords=coords, ridge=ridge, iterations=300)
    assert solution.weight.isfinite().all()
    assert solution.relative_residual.isfinite().all()
    assert solution.squared_error.isfinite().all()
    if case in ("zero", "constant", "one point", "same point", "no overlap"):
        assert solution.weight.abs().max() < 1e-6
        assert solution.converged.all()


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coords": None}, "the location of the points is missing"),
        ({"coords": torch.rand(0, 2), "values": torch.rand(2, 0, 1)}, r"signals \[0, 1\] have no training point"),
        ({"coords": torch.rand(3, 10, 2)}, "coords hold 10 points of 2 signals"),
        ({"axes": grid_axes((4, 4)), "index": torch.arange(10) + 10}, "below 16"),
        ({"axes": grid_axes((4, 4)), "index": torch.arange(9)}, "index hold 10 points"),
        ({"axes": grid_axes((4, 4)), "mask": torch.ones(4, 4, dtype=torch.bool)}, "the mask is boolean"),
        ({"values": torch.rand(10, 2)}, r"\(S, P, C\)"),
        ({"values": torch.full((2, 10, 1), torch.nan)}, "not finite"),
        ({"values": torch.ones(2, 10, 1, dtype=torch.int64)}, "floating-point"),
        ({"ridge": "best"}, "a number >= 0"),
        ({"iterations": -1}, "iterations must be an integer >= 0"),
        ({"tolerance": 1.0}, r"tolerance must be a number in \[0, 1\)"),
        ({"distributed": True}, "initialised"),
        ({"encoder": [{"name": "rff", "num_axes": 2, "num_features": 8}] * 2}, "leave num_axes out"),
    ],
)
def test_wrong_input_is_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "values": torch.rand(2, 10, 1),
        "encoder": {"name": "gau", "num_features": 8},
        "coords": torch.rand(10, 2),
        "ridge": 0.1,
    }
    with pytest.raises(InputError, match=message):
        solve_points(**{**arguments, **changes})
