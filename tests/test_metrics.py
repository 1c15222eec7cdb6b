"""PSNR per signal, from sums and counts."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor
from torchmetrics.functional.image import peak_signal_noise_ratio

from pe_lightning.metrics import SignalPSNR, psnr, summary


def pair(*shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(len(shape))
    target = torch.rand(*shape, generator=generator)
    # errors of another size for each signal; predictions leave [0, 1]
    size = torch.linspace(0.01, 0.5, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    return target + size * torch.randn(*shape, generator=generator), target


def expected(prediction: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    masks = torch.ones(target.shape[:-1], dtype=torch.bool) if mask is None else mask.expand(target.shape[:-1])
    scores = [
        peak_signal_noise_ratio(p[m].double(), t[m].double(), data_range=1.0)
        for p, t, m in zip(prediction, target, masks, strict=True)
    ]
    return torch.stack(scores)


@pytest.mark.parametrize("shape", [(3, 20, 1), (3, 8, 6, 3), (2, 4, 5, 6, 2)])
@pytest.mark.parametrize("masked", ["no", "shared", "own"])
def test_each_signal_is_scored_as_torchmetrics_does(shape: tuple[int, ...], masked: str) -> None:
    prediction, target = pair(*shape)
    assert prediction.min() < 0  # and is not clamped
    mask = None if masked == "no" else torch.rand(1 if masked == "shared" else shape[0], *shape[1:-1]) < 0.5
    metric = SignalPSNR(shape[0])
    metric.update(prediction, target, mask)
    torch.testing.assert_close(metric.compute(), expected(prediction, target, mask), rtol=1e-6, atol=1e-5)


def test_batches_add_up_to_the_whole() -> None:
    prediction, target = pair(3, 30, 7, 2)
    mask = torch.rand(3, 30, 7) < 0.4
    whole, parts = SignalPSNR(3), SignalPSNR(3)
    whole.update(prediction, target, mask)
    for rows in (slice(0, 1), slice(1, 20), slice(20, 30)):  # of unequal sizes: a mean of means would be wrong
        parts.update(prediction[:, rows], target[:, rows], mask[:, rows])
    torch.testing.assert_close(parts.compute(), whole.compute(), rtol=1e-12, atol=1e-10)
    assert torch.equal(parts.count, whole.count)
    assert torch.equal(parts.count, 2.0 * mask.flatten(1).sum(1))


def test_sums_are_exact() -> None:
    # 2^24 + 1 is no float32: counts and sums of squares that lose it are one short
    metric = SignalPSNR(1)
    metric.squared_error += 2**24
    metric.count += 2**24
    metric.update(torch.ones(1, 1, 1), torch.zeros(1, 1, 1))
    assert metric.squared_error.item() == 2**24 + 1
    assert metric.count.item() == 2**24 + 1


def test_many_small_errors_are_summed_in_float64() -> None:
    error = torch.full((1, 1 << 20, 1), 1e-3)
    error[0, 0] = 100.0  # in float32 each of the others, 1e-6, would vanish beside 1e4
    metric = SignalPSNR(1)
    metric.update(error, torch.zeros_like(error))
    assert metric.squared_error.item() == pytest.approx(1e4 + ((1 << 20) - 1) * 1e-6, rel=1e-8)


def test_float64_predictions_keep_their_digits() -> None:
    target = torch.full((1, 10, 1), 0.3, dtype=torch.float64)
    metric = SignalPSNR(1)
    metric.update(target + 1e-10, target)
    assert metric.compute().item() == pytest.approx(200, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype: torch.dtype) -> None:
    prediction, target = pair(2, 9, 3)
    metric = SignalPSNR(2)
    metric.update(prediction.to(dtype), target)
    torch.testing.assert_close(metric.compute(), expected(prediction.to(dtype), target), rtol=1e-6, atol=1e-5)


def test_samples_outside_the_mask_may_be_anything() -> None:
    prediction, target = pair(2, 6, 1)
    mask = torch.tensor([[True, False, True, True, False, True]])
    broken = prediction.clone()
    broken[:, 1], broken[:, 4] = math.nan, math.inf
    metric = SignalPSNR(2)
    metric.update(broken, target, mask)
    torch.testing.assert_close(metric.compute(), expected(prediction, target, mask), rtol=1e-6, atol=1e-5)


def test_reset_forgets() -> None:
    prediction, target = pair(2, 6, 1)
    metric = SignalPSNR(2)
    metric.update(target, prediction * 3)
    metric.reset()
    assert metric.count.tolist() == [0, 0]
    metric.update(prediction, target)
    torch.testing.assert_close(metric.compute(), expected(prediction, target), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("signals", [1, 2])
def test_one_signal_has_a_dimension_too(signals: int) -> None:
    metric = SignalPSNR(signals)
    metric.update(*pair(signals, 5, 1))
    assert metric.per_signal().shape == (signals,)


def test_states_stay_float64_in_a_module_of_another_precision() -> None:
    for metric in (SignalPSNR(2).half(), SignalPSNR(2).float(), torch.nn.ModuleList([SignalPSNR(2)]).half()[0]):
        assert metric.squared_error.dtype == torch.float64


@pytest.mark.parametrize(
    ("prediction", "target", "mask", "message"),
    [
        ((2, 5, 1), (2, 5, 3), None, r"shape \(2, \*samples, C\); got \(2, 5, 1\) and \(2, 5, 3\)"),
        ((1, 5, 3), (1, 5, 3), None, r"got \(1, 5, 3\) and \(1, 5, 3\)"),
        ((2, 5, 3), (2, 5, 3), (2, 4), r"mask has the shape \(1 or 2, 5\); got \(2, 4\)"),
        ((2, 5, 3), (2, 5, 3), (3, 5), r"got \(3, 5\)"),
    ],
)
def test_nothing_is_broadcast(
    prediction: tuple[int, ...], target: tuple[int, ...], mask: tuple[int, ...] | None, message: str
) -> None:
    chosen = None if mask is None else torch.ones(mask, dtype=torch.bool)
    with pytest.raises(ValueError, match=message):
        SignalPSNR(2).update(torch.zeros(prediction), torch.zeros(target), chosen)


# -- special values ---------------------------------------------------------------------------------------------------


def test_special_values() -> None:
    nan, inf = math.nan, math.inf
    scores = psnr(torch.tensor([0.1, 0.0, inf, nan, 0.0]), torch.tensor([10.0, 10.0, 10.0, 10.0, 0.0]))
    assert scores[0].item() == pytest.approx(20)
    assert scores[1:4].tolist() == [inf, -inf, -inf]
    assert scores[4].isnan()


def test_summary_of_finite_values() -> None:
    plain = summary(torch.tensor([20.0, 30.0], dtype=torch.float64), "test/psnr", "nothing")
    assert plain == {"test/psnr": 25.0, "test/psnr_std": 5.0, "test/psnr_per_signal": [20.0, 30.0]}


def test_summary_of_one_signal() -> None:
    plain = summary(torch.tensor([20.0]), "test/psnr", "nothing")
    assert plain == {"test/psnr": 20.0, "test/psnr_std": 0.0, "test/psnr_per_signal": [20.0]}


@pytest.mark.parametrize(
    ("values", "listed", "reason"),
    [
        ([20.0, math.inf], [20.0, None], "infinite: a signal is reproduced exactly"),
        ([math.nan, math.nan], [None, None], "nothing is held out"),
        ([-math.inf, 20.0], [None, 20.0], "minus infinite: a prediction is not finite"),
        (
            [math.inf, -math.inf],
            [None, None],
            "infinite: a signal is reproduced exactly; minus infinite: a prediction is not finite",
        ),
    ],
)
def test_what_is_not_finite_is_null_with_a_reason(values: list[float], listed: list[float | None], reason: str) -> None:
    plain = summary(torch.tensor(values), "test/psnr", "nothing is held out")
    assert plain == {
        "test/psnr": None,
        "test/psnr_std": None,
        "test/psnr_per_signal": listed,
        "test/psnr_reason": reason,
    }
    json.dumps(plain, allow_nan=False)


def test_from_update_to_reason() -> None:
    target = torch.rand(3, 4, 1)
    prediction = target.clone()
    prediction[1, 2] = math.nan
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[2] = False
    metric = SignalPSNR(3)
    metric.update(prediction, target, mask)
    scores = metric.per_signal()
    assert scores[:2].tolist() == [math.inf, -math.inf]
    assert scores[2].isnan()
