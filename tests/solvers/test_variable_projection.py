"""Encoders learned through the exact solve: its gradient, what it finds, and why samples are held out for it."""

import math

import pytest
import torch
from draws import numbers
from fits import signals

from pe_lightning.encoders import Encoder, resolve
from pe_lightning.solvers import between, learn_encoders, variable_projection
from pe_lightning.solvers.between import Between
from pe_lightning.solvers.samples import MaskedGrid, ScatteredPoints
from pe_lightning.solvers.variable_projection import ValidationProblem

ENCODERS = {
    "gau": {"name": "gau", "num_features": 7, "sigma": 0.13},
    "rff": {"name": "rff", "num_features": 8, "sigma": 2.0, "per_feature": True},
}


def small_problem(kind, encoder):
    """Two axes of one encoder, few samples of which fewer are fitted than there are features."""
    elsewhere = kind == "grid that starts elsewhere on the second axis"
    sizes = (9, 9) if elsewhere else (9, 8)
    axes, values = [torch.arange(n, dtype=torch.float64) / n for n in sizes], numbers(2, 3, math.prod(sizes))
    samples = MaskedGrid([encoder] * 2, [axes[0], axes[1] + 0.05 * elsewhere])
    if kind.startswith("grid"):
        fitted = torch.zeros(sizes, dtype=torch.bool)
        fitted[::2, ::2] = True
        fitted = fitted.reshape(1, -1)
        return ValidationProblem(samples, values, fitted, (~fitted) * numbers(*fitted.shape), strides=[2, 2])
    if kind == "points":
        samples = ScatteredPoints([encoder] * 2, numbers(2, 72, 2, seed=3))
    fitted = numbers(2, 72, seed=1) < 0.9
    places = Between([encoder] * 2, axes) if kind == "masked grid and places between" else None
    return ValidationProblem(samples, values, fitted, (~fitted).double(), between=places)


def dense_loss(problem, ridge):
    """The same by the Kronecker product, formed, and autograd through one dense solve per signal."""

    def features(coords):
        first, second = (e(coords[:, a]) for a, e in enumerate(problem.samples.encoders))
        return (first[:, :, None] * second[:, None]).flatten(1)

    total, weights = 0.0, []
    for s in range(2):
        coords = problem.samples.coordinates().double()
        joint = features(coords[s % len(coords)])
        a, y = joint[problem.fitted[s]], problem.values[s]
        rho = ridge * a.square().sum(1).mean()
        w = torch.linalg.solve(a.T @ a + rho * torch.eye(joint.shape[1]), a.T @ y[:, problem.fitted[s]].T)
        total = total + ((joint @ w - y.T).square() * problem.weight[s, :, None]).sum()
        weights.append(w.T)
    if problem.between is None:
        return total / problem.total
    excess = problem.between.excess(torch.stack(weights) @ features(problem.between.samples.coords[0]).T)
    assert excess > 1e-5
    return total / problem.total + excess


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize(
    "kind",
    ["grid", "grid that starts elsewhere on the second axis", "masked grid", "masked grid and places between", "points"],
)
def test_the_gradient_is_that_of_autograd_through_a_dense_solve(kind, name, monkeypatch):
    monkeypatch.setattr(variable_projection, "MAX_ITERATIONS", {True: 3000, False: 3000})
    monkeypatch.setattr(variable_projection, "TOLERANCE", 1e-12)
    monkeypatch.setattr(variable_projection, "PRECISION", torch.float64)
    monkeypatch.setattr(between, "NYQUIST_RATIO", 0.0)  # these features are smooth
    encoder = resolve({**ENCODERS[name], "trainable": True}).double()
    problem, parameters = small_problem(kind, encoder), list(encoder.parameters())
    log_ridge = torch.tensor(math.log(0.01), dtype=torch.float64, requires_grad=True)
    expected = dense_loss(problem, log_ridge.exp())
    gradients = torch.autograd.grad(expected, [*parameters, log_ridge])
    loss, slope = problem.loss(0.01)
    assert loss == pytest.approx(float(expected.detach()), rel=1e-7)
    assert slope == pytest.approx(float(gradients[-1]), rel=1e-5)
    for parameter, gradient in zip(parameters, gradients, strict=False):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-9)
    direction = [torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(2)) for p in parameters]
    along, step, losses = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=False)), 1e-5, []
    for sign in (1, -1):
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p += sign * step * d
            losses.append(problem.loss(0.01, gradient=False)[0])
            for p, d in zip(parameters, direction, strict=True):
                p -= sign * step * d
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(along, rel=1e-4, abs=1e-9)


def known_width(n, sigma, seed=0):
    """A random draw of a Gaussian process on a grid, ``(1, n, n, 1)``: its covariance is that of features of one width.

    Shifted Gaussians with independent weights have D(delta) = exp(-delta^2 / 4 sigma^2).
    """
    x = torch.arange(n, dtype=torch.float64) / n
    covariance = torch.exp(-((x[:, None] - x) ** 2) / (4 * sigma**2)) + 1e-9 * torch.eye(n)
    root = torch.linalg.cholesky(covariance)
    noise = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (root @ noise @ root.T / 6 + 0.5)[None, ..., None].float()


@pytest.mark.parametrize(("kind", "factor"), [("grid", 0.25), ("grid", 4.0), ("points", 4.0)])
def test_the_width_of_a_signal_of_known_width_is_found(kind, factor):
    """The thinned grid sees its samples half as far apart, so that widths are in units of the spacing."""
    n, sigma = 64, 1.5 / 64
    x = torch.arange(n) / n
    encoder = {"name": "gau", "sigma": factor * sigma, "trainable": True}
    if kind == "grid":
        learned = learn_encoders(known_width(n, 2 * sigma), encoder, axes=[x, x])
    else:
        values = known_width(n, sigma).reshape(1, -1, 1)
        index = torch.randperm(n * n, generator=torch.Generator().manual_seed(1))[:1000]
        learned = learn_encoders(values[:, index], encoder, axes=[x, x], index=index)
    assert 0.8 * sigma < float(learned.encoders[0].sigma) < 1.25 * sigma
    assert learned.report()["held_out_psnr"] >= learned.report()["start_psnr"]


def test_frequencies_and_any_encoder_with_parameters_are_learned():
    class Own(Encoder):
        """Two waves of a frequency that is learned; it declares no width."""

        def __init__(self, frequency: float = 4.3) -> None:
            super().__init__(2)
            self.frequency = torch.nn.Parameter(torch.tensor(frequency))

        def forward(self, x):
            return torch.stack([torch.cos(self.frequency * x), torch.sin(self.frequency * x)], -1)

    x = torch.arange(200) / 200
    learned = learn_encoders(torch.sin(5 * x + 1)[None, :, None], Own(), axes=[x], center=False)
    assert float(learned.encoders[0].frequency) == pytest.approx(5, abs=1e-3)
    assert not any(parameter.requires_grad for parameter in learned.encoders[0].parameters())
    row = torch.sin(40 * x)[None, :, None] / 2 + 0.5
    for more in ({}, {"per_feature": True}):
        encoder = {"name": "rff", "num_features": 12, "sigma": 3, "trainable": True, **more}
        learned = learn_encoders(row, encoder, axes=[x])
        assert learned.report()["held_out_psnr"] > learned.start + 3


@pytest.mark.parametrize("frequency", [3.0, 8.0, 16.0, 24.0, 48.0])
def test_a_fit_is_penalised_between_samples_for_frequencies_that_these_cannot_tell(frequency):
    """24 samples: the Nyquist frequency is 12. Cubic interpolation follows slow waves alone."""
    x = torch.arange(24, dtype=torch.float64) / 24
    places = Between([resolve("basic")], [x])
    wave, samples = (torch.cos(2 * math.pi * frequency * c + 0.3)[None, None] for c in (places.samples.coords[0, :, 0], x))
    excess, deviation = float(places.excess(wave)), places.deviation(wave, samples)
    assert (excess > 0.01) == (frequency > 12)
    assert (deviation < 0.001) == (frequency < 4)


def test_a_step_to_features_that_overflow_is_taken_back():
    """A line search that overshoots: an exponent of 1000 octaves."""
    axes = [torch.arange(0, n, 2) / n for n in (16, 16, 12)]
    values = signals(1, 16, 16, 12)[:, ::2, ::2, ::2]
    learned = learn_encoders(values, {"name": "linf", "num_features": 24, "trainable": True}, axes=axes)
    assert all(math.isfinite(float(encoder.sigma)) for encoder in learned.encoders)
    assert learned.report()["held_out_psnr"] > learned.start
