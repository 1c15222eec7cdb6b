"""The loss of linear layers without autograd: the same gradient, a loss that does not cancel, only where it is exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fits import GAU, Losses, MakeTrainer, fit, signals
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.networks import complex_ensemble
from pe_lightning.networks import quadratic as quadratic_module
from pe_lightning.networks.quadratic import QuadraticErrors
from pe_lightning.signals import Batching, GridBatch
from pe_lightning.signals.distributed import Process
from pe_lightning.signals.loaders import FullLoader
from pe_lightning.signals.sampling import RandomSampling
from pe_lightning.training import ComplexLinear, TensorDataModule


class BySamples(ComplexLinear):
    """The same model, evaluated at the samples instead of through Gram matrices."""

    has_usual_errors = False


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The axes of all Gram matrices that modules make."""
    calls: list[tuple[int, ...]] = []

    class Spy(QuadraticErrors):
        def __init__(self, features: Any, target: Tensor, mask: Tensor | None = None) -> None:
            super().__init__(features, target, mask)
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
    "3-square": ((4, 4, 4), (4, 4, 4)),
}
CHOICES = [(name, axes, 0) for name, (n, _) in SIZES.items() for bits in range(1, 2 ** len(n))
           for axes in [tuple(a for a in range(len(n)) if bits >> a & 1)]]  # fmt: skip
# some samples of the grid: one mask for all signals, or one each
CHOICES += [(name, (), masks) for name in ("2-mixed", "3-mixed", "3-square") for masks in (0, 1, 3)]


@pytest.mark.parametrize(("name", "axes", "masks"), CHOICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 3e-6)])
def test_value_and_gradient(
    name: str, axes: tuple[int, ...], masks: int, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3
    rows, target, weight, whole = problem(*SIZES[name], count, dtype)
    chosen = iter(axis in axes for axis in range(len(rows)))
    monkeypatch.setattr(quadratic_module, "_gram_if_cheaper", lambda part: part.T @ part if next(chosen) else None)
    known = torch.rand(max(masks, 1), *target.shape[2:], generator=torch.Generator().manual_seed(1)) < 0.5
    errors = QuadraticErrors(rows, target, known if masks else None)
    assert errors.axes == axes
    factors = torch.arange(1, count + 1, dtype=dtype)  # each signal's gradient has its own factor
    other = (weight.detach() + 0.1).requires_grad_()
    for at in (weight, other):
        at.grad = None
        residual = at.flatten(2) @ whole.T - target.flatten(2)
        residual = residual * known.flatten(1).unsqueeze(1) if masks else residual
        expected = residual.square().flatten(1).sum(1)
        (factors * expected).sum().backward()
        wanted, at.grad = at.grad, None
        got = errors(at)
        (factors * got).sum().backward()
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=0)
        assert (at.grad - wanted).abs().max() <= tolerance * wanted.abs().max()
        assert at.grad.dtype == dtype


def test_features_that_interpolate_have_a_diagonal_matrix() -> None:
    rows = [encoders.create("tri", num_features=n)(torch.arange(n) / n) for n in (8, 16)]
    target, weight = torch.rand(2, 3, 8, 16), torch.rand(2, 3, 8, 16)
    errors = QuadraticErrors(rows, target)
    assert [gram.ndim for gram in errors.grams.values()] == [1, 1]
    torch.testing.assert_close(errors.evaluate(weight)[1], weight - target)


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


RANDOM = {"sampling": RandomSampling(0.5)}
SHARED = {"sampling": RandomSampling(0.5, shared=True)}
WAVES = {"name": "rff", "num_features": 128, "sigma": 10.0}
NARROW = {"name": "gau", "num_features": 128, "sigma": 0.01}


@pytest.mark.parametrize(
    ("grid", "encoder", "data", "settings"),
    [
        *((*case, {}, {}) for case in FITS.values()),
        ((16, 20), GAU, {}, ADAM),
        ((16, 20), GAU, {}, {"precision": "64-true"}),
        ((16, 20), GAU, {}, {"gradient_clip_val": 0.01}),
        ((16, 20), {"name": "gau", "num_features": 30}, {}, {}),  # no axis has a Gram matrix
        ((256, 24), [WAVES, GAU], {}, {}),
        ((256, 24), [NARROW, GAU], {}, {}),
        ((256, 24), [{"name": "tri", "num_features": 128}, GAU], {}, {}),
        ((16, 20), GAU, RANDOM, {}),
        ((16, 20), GAU, SHARED, ADAM),
        ((10, 12, 8), {"name": "gau", "num_features": 4, "sigma": 0.2}, RANDOM, {}),
        ((136, 12), [NARROW, GAU], RANDOM, {}),
    ],
)
def test_steps_outside_of_lightning_have_the_same_gradients(
    grid: Any, encoder: Any, data: Any, settings: Any, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, evaluations = [], []
    take, evaluate = QuadraticErrors.scaled_gradient, QuadraticErrors.evaluate
    monkeypatch.setattr(QuadraticErrors, "scaled_gradient", lambda self, *a: (steps.append(1), take(self, *a))[1])
    monkeypatch.setattr(QuadraticErrors, "evaluate", lambda self, *a: (evaluations.append(1), evaluate(self, *a))[1])
    settings, weights = dict(settings), []
    optimizer = settings.pop("optimizer", None)
    for every in (1, 5):
        module = ComplexLinear(encoder, optimizer=optimizer)
        arguments = {"log_every_n_steps": every, "limit_val_batches": 0, **settings}
        fit(module, TensorDataModule(signals(2, *grid), **data), make_trainer, 10, **arguments)
        weights.append(module.weight)
    assert (len(steps), len(evaluations)) == (8, 12)  # the error is evaluated in logged steps
    assert torch.equal(*weights)


@pytest.mark.parametrize("sampling", [RANDOM, SHARED])
def test_a_fit_of_some_samples_equals_that_through_the_points(sampling: Any, make_trainer: MakeTrainer) -> None:
    modules = [cls(GAU, **SGD) for cls in (ComplexLinear, BySamples)]
    for module in modules:
        fit(module, TensorDataModule(signals(2, 16, 20), **sampling), make_trainer, 20, precision="64-true")
    first, second = (module.weight for module in modules)
    assert (first - second).abs().max() <= 1e-10 * second.abs().max()


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
        squared = module.stack.quadratic_errors(part)(module.weight)
        (gradient,) = torch.autograd.grad(squared.sum(), module.weight)
        gradients.append(gradient)
        totals.append(squared)
    assert made  # of their own rows
    expected = module.make_step(whole).squared_errors(whole)
    (gradient,) = torch.autograd.grad(expected.sum(), module.weight)
    torch.testing.assert_close(sum(totals), expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(sum(gradients), gradient, rtol=1e-10, atol=1e-10)


# -- where it applies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoder", "more", "data"),
    [
        (GAU, {"depth": 1, "hidden_size": 4}, {}),
        (GAU, {}, {"sampling": "random"}),
        (GAU, {}, {"batching": Batching("blocks", size=8)}),
        ({"name": "gau", "num_features": 30}, {}, {}),  # 12 x 10 trained samples
    ],
    ids=["head", "scattered", "blocks", "many-features"],
)
def test_fits_that_are_evaluated_at_the_samples(
    encoder: Any, more: Any, data: Any, make_trainer: MakeTrainer, made: list[tuple[int, ...]]
) -> None:
    module = ComplexLinear(encoder, **more)
    fit(module, TensorDataModule(signals(2, 24, 20), **data), make_trainer, 3, limit_val_batches=0)
    assert made == []
