"""Metrics per signal, from sums and counts, as torchmetrics and as plain functions."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.audio import signal_noise_ratio
from torchmetrics.functional.classification import binary_jaccard_index
from torchmetrics.functional.image import peak_signal_noise_ratio

from pe_lightning.errors import InputError
from pe_lightning.evaluation.metrics import SignalPSNR, create, metrics, unit_of
from pe_lightning.evaluation.scores import FORMULAS, psnr, snr, summary
from pe_lightning.evaluation.totals import totals

REFERENCES = {
    "psnr": lambda p, t: peak_signal_noise_ratio(p, t, data_range=1.0),
    "snr": lambda p, t: signal_noise_ratio(p.flatten(), t.flatten()),
    "iou": lambda p, t: binary_jaccard_index((p > 0.5).long(), (t > 0.5).long()),
}


def samples(*shape: int) -> tuple[Tensor, Tensor]:
    """Prediction and target: errors of another size for each signal; predictions leave [0, 1]."""
    generator = torch.Generator().manual_seed(len(shape))
    target = torch.rand(*shape, generator=generator)
    size = torch.linspace(0.01, 0.5, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    return target + size * torch.randn(*shape, generator=generator), target


def expected(name: str, prediction: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    masks = torch.ones(target.shape[:-1], dtype=torch.bool) if mask is None else mask.expand(target.shape[:-1])
    each = zip(prediction, target, masks, strict=True)
    return torch.stack([REFERENCES[name](p[m].double(), t[m].double()) for p, t, m in each]).double()


@pytest.mark.parametrize(("shape", "masked"), [((3, 20, 1), "no"), ((2, 4, 5, 6, 2), "shared"), ((3, 20, 1), "own")])
@pytest.mark.parametrize("name", REFERENCES)
def test_each_signal_is_scored_as_torchmetrics_does(name: str, shape: tuple[int, ...], masked: str) -> None:
    assert name in metrics
    prediction, target = samples(*shape)
    assert prediction.min() < 0  # and is not clamped
    mask = None if masked == "no" else torch.rand(1 if masked == "shared" else shape[0], *shape[1:-1]) < 0.5
    whole, parts, plain = create(name, shape[0]), create(name, shape[0]), totals(name, shape[0])
    whole.update(prediction, target, mask)
    torch.testing.assert_close(whole.compute(), expected(name, prediction, target, mask), rtol=1e-6, atol=1e-5)
    first = shape[1] // 3  # of unequal sizes: a mean of means would be wrong
    for rows in (slice(0, first), slice(first, None)):
        for score in (parts, plain):
            score.update(prediction[:, rows], target[:, rows], None if mask is None else mask[:, rows])
    torch.testing.assert_close(parts.compute(), whole.compute(), rtol=1e-12, atol=1e-10)
    assert torch.equal(plain.per_signal(), parts.per_signal())
    assert torch.equal(parts.count, whole.count)
    parts.reset()
    assert parts.count.tolist() == [0] * shape[0]


def test_names_and_units() -> None:
    assert FORMULAS.keys() == REFERENCES.keys()
    assert {name for name in metrics if not isinstance(totals(name, 1), Metric)} == FORMULAS.keys()
    assert [unit_of(name) for name in ("psnr", "snr", "iou", "mine")] == ["dB", "dB", "", ""]
    with pytest.raises(InputError, match="unknown metric 'psrn'; did you mean 'psnr'"):
        create("psrn", 1)


def test_processes_add_their_sums() -> None:
    prediction, target = samples(2, 30, 1)
    others = [create("psnr", 2) for _ in range(2)]
    others[0].update(prediction[:, :10], target[:, :10])
    others[1].update(prediction[:, 10:], target[:, 10:])
    names = iter(["squared_error", "count"] * 2)

    def gather(own: Tensor, group: object) -> list[Tensor]:
        name = next(names)
        assert torch.equal(own, getattr(others[0], name))
        return [getattr(metric, name) for metric in others]

    options = {"dist_sync_fn": gather, "distributed_available_fn": lambda: True}
    metric, alone = SignalPSNR(2, **options), SignalPSNR(2, False, **options)
    for each in (metric, alone):
        each.update(prediction[:, :10], target[:, :10])
    torch.testing.assert_close(metric.per_signal(), expected("psnr", prediction, target), rtol=1e-6, atol=1e-5)
    assert torch.equal(metric.count, alone.count)  # goes on with its own sums
    assert torch.equal(alone.per_signal(), others[0].per_signal())


def test_a_module_has_its_metrics_as_submodules_that_are_in_no_checkpoint() -> None:
    module = torch.nn.ModuleDict({"score": SignalPSNR(2), "layer": torch.nn.Linear(1, 1)})
    assert module.state_dict().keys() == {"layer.weight", "layer.bias"}
    module.load_state_dict(torch.nn.ModuleDict({"layer": torch.nn.Linear(1, 1)}).state_dict())
    metric = module["score"]
    assert isinstance(metric, SignalPSNR)
    metric.update(*samples(2, 5, 1))
    before = metric.squared_error
    for dtype in (torch.bfloat16, torch.half, torch.float32):  # as Lightning converts a module
        module.to(dtype)
        assert torch.equal(metric.squared_error, before)
        assert metric.squared_error.dtype == torch.float64
    metric.reset()
    assert metric.count.dtype == torch.float64


def test_sums_are_exact() -> None:
    error = torch.full((1, 1 << 20, 1), 1e-3)
    error[0, 0] = 100.0  # in float32 each of the others, 1e-6, would vanish beside 1e4
    metric = SignalPSNR(1)
    metric.update(error, torch.zeros_like(error))
    assert metric.squared_error.item() == pytest.approx(1e4 + ((1 << 20) - 1) * 1e-6, rel=1e-8)
    # half precision is widened, and float64 keeps its digits
    prediction, target = samples(2, 9, 3)
    metric = SignalPSNR(2)
    metric.update(prediction.half(), target)
    torch.testing.assert_close(metric.compute(), expected("psnr", prediction.half(), target), rtol=1e-6, atol=1e-5)
    exact = torch.full((1, 10, 1), 0.3, dtype=torch.float64)
    metric = SignalPSNR(1)
    metric.update(exact + 1e-10, exact)
    assert metric.per_signal().tolist() == [pytest.approx(200, abs=1e-4)]


@pytest.mark.parametrize("name", REFERENCES)
def test_samples_outside_the_mask_may_be_anything(name: str) -> None:
    prediction, target = samples(2, 30, 1)
    mask = torch.ones(1, 30, dtype=torch.bool)
    mask[:, [1, 4]] = False
    broken = prediction.clone()
    broken[:, 1], broken[:, 4] = math.nan, math.inf
    metric = create(name, 2)
    metric.update(broken, target, mask)
    torch.testing.assert_close(metric.compute(), expected(name, prediction, target, mask), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    "shapes", [((2, 5, 1), (2, 5, 3), (2, 5)), ((1, 5, 3), (1, 5, 3), (1, 5)), ((2, 5, 3), (2, 5, 3), (3, 5))]
)
def test_shapes_that_would_be_broadcast_are_refused(shapes: tuple[tuple[int, ...], ...]) -> None:
    prediction, target, mask = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match=r"a mask \(1 or 2, \*samples\); got"):
        SignalPSNR(2).update(prediction, target, mask.bool())


def test_special_values() -> None:
    nan, inf = math.nan, math.inf
    for scores in (
        psnr(torch.tensor([0.1, 0.0, inf, nan, 0.0]), torch.tensor([10.0, 10.0, 10.0, 10.0, 0.0])),
        snr(torch.tensor([0.1, 0.0, inf, nan, 0.0]), torch.full((5,), 10.0), torch.tensor([3, 3, 3, 3, 0])),
    ):
        assert scores.nan_to_num(nan=7, posinf=inf, neginf=-inf).tolist() == [pytest.approx(20), inf, -inf, -inf, 7]
    empty = create("iou", 2)
    empty.update(torch.tensor([[[0.2]], [[nan]]]), torch.zeros(2, 1, 1))
    assert empty.compute().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "mean", "deviation", "reason"),
    [
        ([20.0, 22.0, 24.0], 22.0, 2.0, None),
        ([20.0], 20.0, 0.0, None),
        ([20.0, math.inf], None, None, "infinite: a signal is reproduced exactly"),
        ([math.nan, math.nan], None, None, "nothing is held out"),
        ([-math.inf], None, None, "minus infinite: a prediction is not finite"),
    ],
)
def test_a_summary_is_plain_and_what_is_not_finite_is_null_with_a_reason(
    values: list[float], mean: float | None, deviation: float | None, reason: str | None
) -> None:
    plain = summary(torch.tensor(values, dtype=torch.float64), "test/psnr", "nothing is held out")
    listed = [value if math.isfinite(value) else None for value in values]
    found = {"test/psnr": mean, "test/psnr_std": deviation, "test/psnr_per_signal": listed}
    assert plain == found | ({"test/psnr_reason": reason} if reason else {})
    json.dumps(plain, allow_nan=False)
