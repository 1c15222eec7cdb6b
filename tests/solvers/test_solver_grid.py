"""The grid solver against dense Kronecker products and NumPy, in float64."""

import functools
import json
import math

import numpy as np
import pytest
import torch
from draws import coordinates, numbers
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_lightning import encoders
from pe_lightning.errors import InputError
from pe_lightning.linalg import Banded, full_precision
from pe_lightning.solvers import GridSolver, LowRankWarning, grid_blocks, solve_blocks, solve_grid, solve_points


def features(name, n, k, **arguments):
    return encoders.create(name, num_features=k, **arguments)(coordinates(n))


def solve(values, psi, ridge=0.0, **options):
    solver = GridSolver(psi, **options)
    solver.accumulate(values)
    return solver.solve(ridge)


def dense(values, psi, ridge, center=True):
    """Weights (S, C, *K), residual sums and means, by NumPy on the whole Kronecker product."""
    signals, channels = values.shape[0], values.shape[-1]
    joint = functools.reduce(torch.kron, psi).numpy()
    y = values.movedim(-1, 1).reshape(signals * channels, -1).numpy().T
    mean = y.mean(0) if center else 0 * y[0]
    y = y - mean
    rho = ridge * np.mean(np.sum(joint**2, 1))
    if ridge:
        weight = np.linalg.solve(joint.T @ joint + rho * np.eye(joint.shape[1]), joint.T @ y)
    else:
        weight = np.linalg.lstsq(joint, y, rcond=1e-12)[0]
    error = ((joint @ weight - y) ** 2).sum(0).reshape(signals, channels).sum(1)
    shape = (signals, channels, *(part.shape[1] for part in psi))
    return weight.T.reshape(shape), error, mean.reshape(signals, channels)


CASES = {
    "1-D": [features("gau", 9, 6)],
    "1-D, more features": [features("gau", 6, 10)],
    "square": [features("tri", 6, 6), features("gau", 6, 6)],
    "rectangular": [features("gau", 9, 5), features("rff", 4, 8, sigma=2.0)],
    "rank 2": [features("sine", 9, 5), features("gau", 4, 7)],
    "empty rows": [features("rect", 9, 5, sigma=0.05), features("gau", 4, 4)],
    "3-D": [features("tri", 4, 6), features("gau", 5, 3), features("linf", 3, 4)],
    "one sample": [features("gau", 1, 3), features("gau", 5, 4)],
}


@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.LowRankWarning")
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 1e-4, 0.3])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_dense_solution(case, ridge, center):
    psi = CASES[case]
    values = numbers(2, *(len(part) for part in psi), 3)
    solution = solve(values, psi, ridge, center=center)
    weight, error, mean = dense(values, psi, ridge, center)
    np.testing.assert_allclose(solution.weight, weight, atol=1e-8)
    np.testing.assert_allclose(solution.mean, mean, atol=1e-12)
    np.testing.assert_allclose(solution.squared_error, error, atol=1e-9)
    residual = (solution.evaluate(psi) - values).square().sum((*range(1, values.ndim),))
    np.testing.assert_allclose(solution.squared_error, residual, atol=1e-9)
    assert solution.count.tolist() == [values[0].numel()] * 2


def test_float32_is_close_and_stays_float32():
    psi = [features("logf", 40, 32), features("gau", 30, 32)]
    values = numbers(2, 40, 30, 3)
    exact, single = solve(values, psi, 1e-4), solve(values.float(), psi, 1e-4)
    assert single.weight.dtype == single.mean.dtype == torch.float32
    assert single.squared_error.dtype == torch.float64
    error = (single.evaluate(psi).double() - exact.evaluate(psi)).abs().max()
    assert error < 1e-4
    torch.testing.assert_close(single.squared_error, exact.squared_error, rtol=1e-4, atol=0)
    half = solve(values.bfloat16(), psi, 1e-4)
    assert half.weight.dtype == torch.float32


@st.composite
def tilings(draw):
    """A grid and a random tiling of it: recursive cuts, in random order."""
    grid = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    boxes = [[(0, n) for n in grid]]
    for _ in range(draw(st.integers(0, 6))):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        axis = draw(st.integers(0, len(grid) - 1))
        low, high = box[axis]
        cut = draw(st.integers(low, high))
        boxes += [[*box[:axis], (low, cut), *box[axis + 1 :]], [*box[:axis], (cut, high), *box[axis + 1 :]]]
    return grid, draw(st.permutations(boxes))


@settings(max_examples=30, deadline=None)
@given(tilings(), st.sampled_from([0.0, 1e-3]), st.booleans())
@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.LowRankWarning")
def test_tiles_equal_the_whole(tiling, ridge, banded):
    grid, boxes = tiling
    psi = [features("tri", n, min(n, 5)) for n in grid]
    values = numbers(2, *grid, 2)
    whole, solver = solve(values, psi, ridge), GridSolver([Banded.from_dense(part) for part in psi] if banded else psi)
    for box in boxes:
        part = values
        for axis, (low, high) in enumerate(box):
            part = part.narrow(1 + axis, low, high - low)
        solver.accumulate(part, [low for low, _ in box])
    tiled = solver.solve(ridge)
    assert set(tiled.methods) == ({"gram"} if banded else {"svd"})
    torch.testing.assert_close(tiled.weight, whole.weight, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(tiled.mean, whole.mean)
    torch.testing.assert_close(tiled.squared_error, whole.squared_error, atol=1e-9, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.LowRankWarning")
@settings(max_examples=5, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    half=st.integers(1, 10),
    ridge=st.sampled_from([0.0, 1e-12, 1e-3, 10.0]),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("name", encoders.names())
def test_every_encoder_at_any_size_is_finite(name, sizes, half, ridge, seed):
    takes = encoders.registry.parameters(encoders.registry.get(name))
    encoder = encoders.create(name, **({"num_features": 2 * half} if "num_features" in takes else {}))
    psi = [encoder(coordinates(n)) for n in sizes]
    values = numbers(1, *sizes, 2, dtype=torch.float32, seed=seed)
    solution = solve(values, psi, ridge)
    for result in (solution.weight, solution.mean, solution.squared_error, solution.evaluate(psi)):
        assert torch.isfinite(result).all()
    # least squares is never worse than the mean, but for what float32 weights of deficient features round away
    spread = (values - solution.mean.reshape(1, *[1] * len(sizes), 2)).square().sum().double()
    assert 0 <= solution.squared_error.item() <= spread.item() * (1 + 1e-5) + 1e-9
    assert 0 <= solution.effective_rank <= math.prod(min(part.shape) for part in psi) + 1e-6


def test_low_rank_warns_and_ordinary_use_does_not():
    values = numbers(1, 32, 32, 1, dtype=torch.float32)
    for name in ("gau", "tri", "rff", "linf", "logf", "rect", "keys", "bspline", "laplace", "impulse", "noise"):
        solve(values, [features(name, 32, 32)] * 2, 1e-3)
    with pytest.warns(LowRankWarning, match=r"ranks \[2, 2\]"):
        solution = solve(values, [features("sine", 32, 32)] * 2)
    assert (solution.ranks, solution.joint_rank) == ((2, 2), 4)
    with pytest.warns(LowRankWarning, match="0 degrees of freedom of 1024"):  # features that vanish predict the mean
        solution = solve(values, [features("gau", 32, 32) * 1e-150] * 2, 1e-3)
    assert (solution.weight == 0).all()
    assert solution.squared_error.item() == pytest.approx((values - values.mean()).square().sum().item())
    with pytest.warns(LowRankWarning, match="the ridge is 1e\\+06"):
        solve(values, [features("gau", 32, 32)] * 2, 1e6)


@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.LowRankWarning")
@pytest.mark.parametrize("ridge", [0.0, 1e-2])
@pytest.mark.parametrize("name", ["gau", "sine"])
def test_results_scale_with_the_values(name, ridge):
    """Squares of values of 1e-27 and 1e27 are no numbers of float32."""
    psi, values = [features(name, 12, 10), features("gau", 14, 14)], numbers(2, 12, 14, 2, dtype=torch.float32)
    expected = solve(values, psi, ridge)
    for scale in (2.0**-90, 2.0**90):
        solution = solve(values * scale, psi, ridge)
        torch.testing.assert_close(solution.weight, expected.weight * scale)
        torch.testing.assert_close(solution.squared_error, expected.squared_error * scale**2, rtol=1e-9, atol=0)


def test_predictions_need_no_weights():
    """Coefficients in the bases of the features are enough; weights are computed when they are read."""
    psi = [features("gau", 12, 10), features("rff", 14, 8)]
    solution = solve(numbers(2, 12, 14, 2, dtype=torch.float32), psi, 1e-2)
    dense = [features("gau", 23, 10), features("rff", 21, 8)]
    predicted = solution.evaluate(dense)
    assert "weight" not in vars(solution)
    given = solution.with_weight(solution.weight)
    torch.testing.assert_close(given.evaluate(dense), predicted)
    torch.testing.assert_close(solution.evaluate([Banded.from_dense(part) for part in dense]), predicted)
    assert given.weight is solution.weight


def test_autocast_and_reduced_precision_do_not_reach_the_solver():
    psi = [features("gau", 30, 24), features("gau", 28, 24)]
    values = numbers(1, 30, 28, 1, dtype=torch.float32)
    expected = solve(values, psi, 1e-3)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            solution = solve(values, psi, 1e-3)
        assert torch.get_float32_matmul_precision() == "medium"
        with full_precision(torch.device("cpu")):
            assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(solution.weight, expected.weight)


def test_refuses_blocks_that_do_not_make_up_the_grid():
    solver = GridSolver([features("gau", 4, 3), features("gau", 5, 3)])
    with pytest.raises(InputError, match="outside the grid"):
        solver.accumulate(numbers(1, 4, 5, 1), [1, 0])
    with pytest.raises(InputError, match="NaN, infinite"):
        solver.accumulate(torch.full((1, 4, 5, 1), torch.nan))
    solver.accumulate(numbers(1, 2, 5, 1))
    with pytest.raises(InputError, match="cover 10 of the grid's 20"):
        solver.solve()
    solver.accumulate(numbers(1, 2, 5, 1), [2, 0])
    with pytest.raises(InputError, match="ridge must be"):
        solver.solve(-1.0)
    solver.solve()
    with pytest.raises(InputError, match="final"):
        solver.accumulate(numbers(1, 0, 5, 1))


# -- the documented functions -----------------------------------------------------------------------------------------


def test_solve_grid_returns_everything():
    values = numbers(2, 16, 12, 3, dtype=torch.float32)
    solution = solve_grid(values, ["gau", {"name": "tri", "num_features": 10}], ridge=1e-2)
    assert solution.weight.shape == (2, 3, 16, 10)
    assert [encoder.name for encoder in solution.encoders] == ["gau", "tri"]
    axes = [coordinates(16), coordinates(12)]
    predicted = solution.predict(axes)
    assert predicted.shape == values.shape
    residual = (predicted - values).square().sum((1, 2, 3)).double()
    torch.testing.assert_close(solution.squared_error, residual, rtol=1e-3, atol=1e-5)
    points = torch.tensor([[0.25, 0.5], [0.75, 0.25]])
    torch.testing.assert_close(solution.at(points), predicted[:, [4, 12], [6, 3]])
    torch.testing.assert_close(solution.at(points.expand(2, -1, -1))[1], solution.at(points)[1])
    report = solution.report().to_dict()
    assert report["choice"]["rule"] == "given"
    assert report["ridge"] == 1e-2
    assert {"solver", "absolute_ridge", "ranks", "joint_rank", "effective_rank", "methods", "solve_seconds"} <= set(report)
    assert json.loads(json.dumps(report)) == report


def test_solve_blocks_from_a_generator():
    values = numbers(1, 17, 10, 2)
    axes = [coordinates(17), coordinates(10)]
    boxes = grid_blocks((17, 10), (5, 10))
    blocks = (([part.start for part in box], values[(slice(None), *box)]) for box in boxes)
    encoder = {"name": "gau", "num_features": 12}
    streamed = solve_blocks(blocks, encoder, axes, ridge=1e-3)
    torch.testing.assert_close(streamed.weight, solve_grid(values, encoder, axes, ridge=1e-3).weight)
    torch.testing.assert_close(streamed.predict(axes), solve_grid(values, encoder, ridge=1e-3).predict(axes))
    with pytest.raises(InputError, match="there is no block"):
        solve_blocks([], encoder, axes)


@pytest.mark.parametrize(
    ("values", "axes", "message"),
    [
        (torch.zeros(4, 4), None, "values have the shape"),
        (torch.zeros(1, 4, 1, dtype=torch.uint8), None, "values have the shape"),
        (torch.zeros(1, 4, 1), [torch.zeros(5)], "axes are one coordinate vector"),
        (torch.zeros(1, 4, 1), [torch.zeros(4)] * 2, "axes are one coordinate vector"),
    ],
)
def test_solve_grid_refuses(values, axes, message):
    with pytest.raises(InputError, match=message):
        solve_grid(values, "gau", axes)


@pytest.mark.filterwarnings("ignore:weights in float32:pe_lightning.solvers.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["rff", "linf"])
def test_a_ridge_below_rounding_is_none(name, dtype):
    grid, x = numbers(1, 24, 20, 2, dtype=dtype), numbers(1, 60, 2)
    for ridge in (1e-40, 1e-300):
        assert torch.equal(solve_grid(grid, name, ridge=ridge).weight, solve_grid(grid, name, ridge=0).weight)
        found, expected = (
            solve_points(grid[:, :, 0].repeat(1, 3, 1)[:, :60], name, coords=x[0, :, :1], ridge=r) for r in (ridge, 0)
        )
        assert (found.solver, found.ridge) == ("dense", 0)
        assert torch.equal(found.weight, expected.weight)
    # a width is chosen by the solutions of least norm too
    smooth = torch.sin(9 * coordinates(48))[None, :, None].to(dtype)
    chosen = solve_grid(smooth, name, ridge=1e-40, sigma="auto")
    assert dict(chosen.choice.factors) == dict(solve_grid(smooth, name, ridge=0, sigma="auto").choice.factors)
    assert max(dict(chosen.choice.factors).values()) > 50


@pytest.mark.parametrize("seed", range(3))
def test_weights_that_rounding_changes_are_not_called_exact(seed):
    """Singular values of 8 to 4e-15 in float64: weights of 1e12, whose rounding changes the squared error by percents."""
    values = numbers(1, 32, 1, seed=seed)
    solution = solve_grid(values, {"name": "logf", "num_features": 32, "sigma": 3.5}, ridge=0)
    error = (solution.predict([coordinates(32)]) - values).square().sum().item()
    assert not solution.exact
    assert error <= solution.squared_error.item() * (1 + 3 * solution.excess_error.item())
    assert solve_grid(values, {"name": "gau", "num_features": 32}, ridge=0).exact


def test_features_that_are_zero_at_all_samples_have_zero_weights():
    """Of a banded matrix, whose Gram matrix has equal eigenvalues: zero."""
    encoder = encoders.create("tri", num_features=1024, half_width=1e-5, padding=0)
    x = (torch.arange(1024, dtype=torch.float64) + 0.5) / 1024
    other = encoders.create("gau", num_features=4)
    with pytest.warns(LowRankWarning):
        found = solve_grid(torch.rand(1, 1024, 4, 1), [encoder, other], [x, torch.arange(4) / 4], ridge=1e-3)
    assert torch.equal(found.weight, torch.zeros_like(found.weight))
