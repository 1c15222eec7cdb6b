"""The loss through Gram matrices: the same gradient, a loss that does not cancel, and only where it is exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fits import GAU, Losses, MakeTrainer, fit, signals
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.linalg import Banded
from pe_lightning.networks import complex_ensemble
from pe_lightning.networks import quadratic as quadratic_module
from pe_lightning.networks.quadratic import QuadraticErrors
from pe_lightning.signals import Batching, GridBatch
from pe_lightning.signals.loaders import FullLoader
from pe_lightning.signals.process import Process
from pe_lightning.training import ComplexLinear, TensorDataModule


class BySamples(ComplexLinear):
    """The same model, evaluated at the samples instead of through Gram matrices."""

    loss_is_quadratic = False


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The axes of all Gram matrices that modules make."""
    calls: list[tuple[int, ...]] = []

    class Spy(QuadraticErrors):
        def __init__(self, features: Any, target: Tensor) -> None:
            super().__init__(features, target)
            if self.axes:
                calls.append(self.axes)

    monkeypatch.setattr(complex_ensemble, "QuadraticErrors", Spy)
    return calls


def problem(samples: tuple[int, ...], features: tuple[int, ...], count: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """Features, target and weights of random numbers, and the whole matrix ``(N_1 ... N_D, K_1 ... K_D)``."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, k, generator=generator, dtype=dtype) for n, k in zip(samples, features, strict=True)]
    target = torch.randn(count, 2, *samples, generator=generator, dtype=dtype)
    weight = torch.randn(count, 2, *features, generator=generator, dtype=dtype).requires_grad_()
    whole = torch.ones(1, 1, dtype=dtype)
    for part in rows:
        whole = torch.kron(whole, part)
    return rows, target, weight, whole


# -- gradient and value -------------------------------------------------------------------------------------------------

SIZES = {
    "1-more-samples": ((11,), (5,)),
    "1-more-features": ((4,), (9,)),
    "2-square": ((8, 8), (8, 8)),
    "2-more-samples": ((9, 12), (5, 4)),
    "2-mixed": ((12, 3), (5, 8)),
    "3-mixed": ((6, 2, 7), (4, 6, 5)),
    "3-more-features": ((3, 2, 4), (4, 6, 5)),
}
CHOICES = [(name, axes) for name, (n, _) in SIZES.items() for bits in range(1, 2 ** len(n))
           for axes in [tuple(a for a in range(len(n)) if bits >> a & 1)]]  # fmt: skip


@pytest.mark.parametrize(("name", "axes"), CHOICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 3e-6)])
def test_value_and_gradient(
    name: str, axes: tuple[int, ...], dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3
    rows, target, weight, whole = problem(*SIZES[name], count, dtype)
    chosen = iter(axis in axes for axis in range(len(rows)))
    monkeypatch.setattr(quadratic_module, "_gram_if_cheaper", lambda *axis: quadratic_module._gram(*axis) if next(chosen) else None)
    errors = QuadraticErrors(rows, target)
    assert errors.axes == axes
    factors = torch.arange(1, count + 1, dtype=dtype)  # each signal's gradient has its own factor
    other = (weight.detach() + 0.1).requires_grad_()
    for at in (weight, other):  # the second value is not evaluated through the samples
        at.grad = None
        residual = at.flatten(2) @ whole.T - target.flatten(2)
        expected = residual.square().flatten(1).sum(1)
        (factors * expected).sum().backward()
        wanted, at.grad = at.grad, None
        got = errors(at)
        (factors * got).sum().backward()
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=0)
        assert (at.grad - wanted).abs().max() <= tolerance * wanted.abs().max()
        assert at.grad.dtype == dtype


# -- bands ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("name", "samples", "local"),
    [("gau", 256, True), ("tri", 128, True), ("bspline", 200, True), ("rect", 300, True), ("rff", 256, False)],
)
def test_neighbouring_features_are_multiplied_in_blocks(
    name: str, samples: int, local: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    sizes = samples, samples // 2 + 1
    rows = [encoders.create(name, num_features=256)(torch.arange(n, dtype=dtype) / n) for n in sizes]
    target = torch.rand(2, 3, *sizes, dtype=dtype)
    weight = torch.rand(2, 3, *(part.shape[1] for part in rows), dtype=dtype)
    errors = QuadraticErrors(rows, target)
    if not local:
        assert not any(isinstance(gram, Banded) for gram in errors.grams.values())
        return
    assert errors.axes == (0, 1)
    # features that interpolate have a diagonal one
    assert all(gram.density < 0.5 if isinstance(gram, Banded) else gram.ndim == 1 for gram in errors.grams.values())
    monkeypatch.setattr(quadratic_module, "MIN_BANDED_FEATURES_CPU", 1000)
    monkeypatch.setattr(quadratic_module, "_gram_if_cheaper", quadratic_module._gram)
    dense = QuadraticErrors(rows, target)
    assert not any(isinstance(gram, Banded) for gram in dense.grams.values())
    tolerance = 30 * torch.finfo(dtype).eps
    got, wanted = (made.evaluate(weight, True)[1] for made in (errors, dense))
    assert (got - wanted).abs().max() <= tolerance * wanted.abs().max()
    torch.testing.assert_close(errors(weight, exact=True), dense(weight, exact=True), rtol=tolerance, atol=0)


# -- fits ---------------------------------------------------------------------------------------------------------------


SGD = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1)}
SHARP = {"name": "gau", "num_features": 8, "sigma": 0.06}
FITS: dict[str, tuple[tuple[int, ...], Any]] = {
    "1": ((24,), GAU),
    "2": ((16, 20), GAU),
    "2-more-features": ((10, 16), SHARP),
    "3": ((10, 12, 8), {"name": "gau", "num_features": 4, "sigma": 0.2}),
    "per-axis": ((16, 20), [GAU, {"name": "tri", "num_features": 5, "half_width": 0.3}]),
}


ADAM = {"optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.05, weight_decay=1e-3)}


@pytest.mark.parametrize(
    ("name", "tolerance", "settings"),
    [
        *((name, 1e-10, SGD) for name in FITS),
        *((name, 1e-10, {**SGD, "normalize": False, "center": False}) for name in ("2", "per-axis")),
        *((name, 2e-5, {**SGD, "precision": "32-true"}) for name in ("2", "3")),
        ("2", 1e-9, {**SGD, "accumulate_grad_batches": 3}),
        ("2", 1e-9, {**SGD, "gradient_clip_val": 0.01, "gradient_clip_algorithm": "norm"}),
        ("2", 1e-9, ADAM),
    ],
)
def test_a_fit_equals_that_through_the_samples(
    name: str, tolerance: float, settings: dict[str, Any], make_trainer: MakeTrainer, made: list[tuple[int, ...]]
) -> None:
    grid, encoder = FITS[name]
    settings = {"precision": "64-true", **settings}
    arguments = {key: settings.pop(key) for key in ("center", "normalize", "optimizer") if key in settings}
    modules = [cls(encoder, **arguments) for cls in (ComplexLinear, BySamples)]
    losses = [Losses(), Losses()]
    for module, kept in zip(modules, losses, strict=True):
        data = TensorDataModule(signals(2, *grid))
        fit(module, data, make_trainer, 20, callbacks=[kept], limit_val_batches=0, **settings)
    (gram, samples), (first, second) = modules, (kept.values for kept in losses)
    assert len(made) == 1
    assert first == pytest.approx(second, rel=10 * tolerance)
    assert first[-1] < first[0]
    assert (gram.weight - samples.weight).abs().max() <= tolerance * samples.weight.abs().max()


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("rows", [14, 4])  # 7 trained rows, which no two share evenly; two, fewer than three processes
def test_the_gradients_of_processes_add_up(processes: int, rows: int, made: list[tuple[int, ...]]) -> None:
    data = TensorDataModule(signals(2, rows, 20).double())
    module = ComplexLinear(GAU).double()
    module.build(data.info)
    module.double()
    batch = data.train_batch()
    assert isinstance(batch, GridBatch)
    whole = GridBatch(tuple(x.double() for x in batch.axes), batch.values)
    module.calibrate(whole)
    torch.nn.init.normal_(module.weight, generator=torch.Generator().manual_seed(0))
    parts = [FullLoader(whole, 1, Process(rank, processes)).batch for rank in range(processes)]
    gradients, totals = [], []
    for part in parts:
        squared = module.squared_errors(part)
        (gradient,) = torch.autograd.grad(squared.sum(), module.weight)
        gradients.append(gradient)
        totals.append(squared)
    assert made  # of their own rows
    expected = module.squared_errors(whole)
    (gradient,) = torch.autograd.grad(expected.sum(), module.weight)
    torch.testing.assert_close(sum(totals), expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(sum(gradients), gradient, rtol=1e-10, atol=1e-10)


# -- where it applies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoder", "more", "data"),
    [
        (GAU, {"depth": 1, "hidden_size": 4}, {}),
        (GAU, {"optimizer": lambda parameters: torch.optim.LBFGS(parameters)}, {}),
        (GAU, {}, {"sampling": "random"}),
        (GAU, {}, {"batching": Batching("blocks", size=8)}),
        ({"name": "gau", "num_features": 30}, {}, {}),  # 12 x 10 trained samples
    ],
    ids=["head", "line-search", "scattered", "blocks", "many-features"],
)
def test_fits_that_are_evaluated_at_the_samples(
    encoder: Any, more: Any, data: Any, make_trainer: MakeTrainer, made: list[tuple[int, ...]]
) -> None:
    module = ComplexLinear(encoder, **more)
    fit(module, TensorDataModule(signals(2, 24, 20), **data), make_trainer, 3, limit_val_batches=0)
    assert made == []
