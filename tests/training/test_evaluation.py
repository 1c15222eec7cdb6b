"""What a module says at coordinates, on grids and of a batch: the same values by every route."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pe_lightning.encoders import create
from pe_lightning.errors import InputError
from pe_lightning.networks import complex_ensemble
from pe_lightning.signals import GridBatch, PointBatch, SignalInfo
from pe_lightning.training import ComplexLinear, CoordinateModule, SimpleMLP

GAU = {"name": "gau", "num_features": 8, "sigma": 0.15}

MODULES: dict[str, Callable[[], CoordinateModule]] = {
    "complex": lambda: ComplexLinear(GAU),
    "complex-head": lambda: ComplexLinear(GAU, depth=2, hidden_size=6, activation="tanh"),
    "simple": lambda: SimpleMLP(GAU | {"num_features": 12}, depth=2, hidden_size=6, activation="tanh", layout="axes"),
    "simple-linear": lambda: SimpleMLP(GAU | {"num_features": 12}, depth=0, layout="axes"),
}
every_module = pytest.mark.parametrize("kind", MODULES)


def built(kind: str, num_axes: int = 2, signals: int = 3, channels: int = 2) -> CoordinateModule:
    """A module in float64 with random parameters and buffers."""
    torch.manual_seed(0)
    module = MODULES[kind]()
    info = SignalInfo(tuple(f"s{i}" for i in range(signals)), (4,) * num_axes, channels)
    module.build(info)
    module.double()
    for parameter in module.parameters():
        parameter.data.normal_()
    for name, buffer in module.named_buffers():
        if name.endswith(("mean", "scale", "scales")):
            buffer.uniform_(0.5, 1)
    return module


def axes_of(*sizes: int) -> tuple[Tensor, ...]:
    return tuple((torch.arange(n, dtype=torch.float64) + 0.3) / n for n in sizes)


def grid_points(axes: tuple[Tensor, ...]) -> Tensor:
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)


# -- at coordinates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("points_per_chunk", [1, 10])
def test_a_grid_is_predicted_in_chunks_of_points(points_per_chunk: int) -> None:
    module, axes = built("simple"), axes_of(5, 6)
    assert isinstance(module, SimpleMLP)
    whole = module.predict_grid(axes)
    module.points_per_chunk = points_per_chunk
    torch.testing.assert_close(module.predict_grid(axes), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("limit", [1, 6 * 3 * 6 * 2, 10**9])
def test_a_grid_below_a_head_is_predicted_in_chunks(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, axes = built("complex-head"), axes_of(5, 6)
    whole = module.predict_grid(axes)
    monkeypatch.setattr(complex_ensemble, "MAX_VALUES_AT_ONCE", limit)
    torch.testing.assert_close(module.predict_grid(axes), whole, rtol=1e-11, atol=1e-11)


@every_module
@pytest.mark.parametrize("batch", [(), (1,), (2, 3), (0,)])
def test_coordinates_of_any_batch_shape(kind: str, batch: tuple[int, ...]) -> None:
    values = built(kind)(torch.rand(*batch, 2, dtype=torch.float64))
    assert values.shape == (3, *batch, 2)
    assert values.dtype == torch.float64


@every_module
def test_coordinates_of_another_shape_or_kind(kind: str) -> None:
    module = built(kind)
    with pytest.raises(InputError, match=r"shape \(\*batch, 2\).*got \(4, 3\)"):
        module(torch.rand(4, 3))  # 12 numbers would make 6 points
    with pytest.raises(InputError, match=r"floating-point.*got \(1, 2\), torch\.int64"):
        module(torch.tensor([[3, 5]]))
    with pytest.raises(InputError, match="2 axes, got 3 coordinate vectors"):
        module.predict_grid(axes_of(2, 2, 2))


@every_module
@pytest.mark.parametrize("mine", [torch.float32, torch.float64])
def test_coordinates_of_another_precision_are_taken(kind: str, mine: torch.dtype) -> None:
    module, axes = built(kind).to(mine), axes_of(3, 4)
    for dtype in (torch.float32, torch.float64):
        given = tuple(x.to(dtype) for x in axes)
        for values in (module(grid_points(given)), module.predict_grid(given)):
            assert values.dtype == mine
            expected = module.predict_grid(tuple(x.to(mine) for x in axes))
            torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-4)


# -- of a batch -------------------------------------------------------------------------------------------------------


def dense(module: CoordinateModule, coords: Tensor, values: Tensor) -> Tensor:
    """Prediction minus truth through ``forward``, each signal alone: ``(S, P, C)``."""
    shared = coords.expand(len(values), -1, -1)
    return torch.stack([module(x)[signal] for signal, x in enumerate(shared)]) - values


def sorted_errors(errors: Tensor) -> Tensor:
    """Modules may order samples and channels as they like."""
    return errors.detach().flatten(1).sort(1).values


@every_module
@pytest.mark.parametrize("sizes", [(7,), (5, 4), (4, 3, 2)])
def test_errors_on_a_grid(kind: str, sizes: tuple[int, ...]) -> None:
    module, axes = built(kind, len(sizes)), axes_of(*sizes)
    values = torch.rand(3, *sizes, 2, dtype=torch.float64)
    expected = module(grid_points(axes)) - values
    errors = module.errors(GridBatch(axes, values))
    torch.testing.assert_close(sorted_errors(errors), sorted_errors(expected), rtol=1e-10, atol=1e-10)


@every_module
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("count", "on_grid"), [(20, True), (4, True), (11, False)])
def test_errors_at_points(kind: str, shared: bool, count: int, on_grid: bool) -> None:
    """Many points of a grid, for which a linear layer evaluates all of it; a few; and points that lie on no grid."""
    module, axes = built(kind), axes_of(5, 6)
    index = torch.stack([torch.randperm(30)[:count] for _ in range(1 if shared else 3)])
    coords = grid_points(axes).reshape(-1, 2)[index]
    values = torch.rand(3, count, 2, dtype=torch.float64)
    batch = PointBatch(coords, values, axes, index) if on_grid else PointBatch(coords, values)
    errors = module.errors(batch)
    assert errors.shape == (3, 2 * count)
    expected = dense(module, coords, values)
    torch.testing.assert_close(sorted_errors(errors), sorted_errors(expected), rtol=1e-10, atol=1e-10)
    # and its gradient, which adds over samples in any order
    weight = next(module.parameters())
    (gradient,) = torch.autograd.grad(errors.square().sum(), weight)
    (reference,) = torch.autograd.grad(expected.square().sum(), weight)
    torch.testing.assert_close(gradient, reference, rtol=1e-9, atol=1e-9)


# -- parameters -------------------------------------------------------------------------------------------------------


def test_a_head_adds_its_parameters() -> None:
    module = ComplexLinear({"name": "gau", "num_features": 8}, depth=2, hidden_size=5)
    module.build(SignalInfo(("a", "b"), (4, 4), 3))
    assert module.num_params == 5 * 64 + (5 * 5 + 5) + (5 * 3 + 3)
    assert sum(parameter.numel() for parameter in module.parameters()) == 2 * module.num_params


def test_building_twice() -> None:
    module = built("complex")
    weight = module.weight
    module.build(SignalInfo(("x", "y", "z"), (99, 7), 2))  # another size, which the parameters do not depend on
    assert module.weight is weight
    for names, grid, channels in [(("a", "b"), (4, 4), 2), (("a", "b", "c"), (4,), 2), (("a", "b", "c"), (4, 4), 1)]:
        with pytest.raises(InputError, match=r"holds 3 signal\(s\) of 2 axes and 2 channel\(s\); the data has "):
            module.build(SignalInfo(names, grid, channels))


def test_models_given_one_encoder_do_not_share_it() -> None:
    encoder = create("rff", num_features=4)
    first, second = ComplexLinear(encoder), ComplexLinear(encoder)
    for module in (first, second):
        module.build(SignalInfo(("a",), (4, 4), 1))
    first.double()
    assert second.encoding.encoders[0].frequencies.dtype == torch.float32
    assert first.encoding.encoders[0] is first.encoding.encoders[1]
    assert all(submodule is not encoder for submodule in first.modules())
