"""Filling: what is written equals an independent fit, known samples are unchanged, scores are of held-out folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import pe_fill
import pe_lightning
from pe_fill import memory
from pe_fill.filling import fill
from pe_fill.mixture.mixture import GapMixture
from pe_fill.plans import signal
from pe_fill.results.filled import Filled
from pe_lightning.encoders import Encoder, create
from pe_lightning.errors import InputError
from pe_lightning.estimators import LinearRidge
from pe_lightning.estimators.folds import interpolated_folds, score_folds
from pe_lightning.signals import FoldSampling
from pe_lightning.training import ComplexLinear, TensorDataModule
from pe_lightning.training.quiet_fits import fit_quietly

from drawing import draw_words

K = 4
RNG = np.random.default_rng(0)


def damaged(height: int = 14, width: int = 12, channels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A smooth picture of 8 bits, and where it is damaged."""
    y, x = np.mgrid[:height, :width] / height
    levels = np.stack([128 + 90 * np.sin(3 * x * y + x + c) for c in range(channels)], -1)
    mask = np.zeros((height, width), bool)
    mask[3:5, 2:9] = mask[8:12, 6] = True
    return levels.astype(np.uint8), mask


SOLVED: dict[str, Any] = {"solver": "exact", "ridge": 0.0, "center": False}


def hat() -> Encoder:
    return create("tri", num_features=K, half_width=1 / K)


def exact() -> ComplexLinear:
    return ComplexLinear(hat(), **SOLVED)


def hats(n: int) -> np.ndarray:
    """Triangles of half width 1/K at i/K, at the samples j/n of an axis."""
    return np.maximum(1 - abs(np.arange(n)[:, None] / n - np.arange(K) / K) * K, 0)


def test_what_is_filled_is_the_least_squares_fit_of_the_known_samples() -> None:
    levels, mask = damaged()
    found = fill(levels, mask, model=exact, folds="none")
    features = np.kron(hats(14), hats(12))
    values, known = levels.reshape(-1, 3) / 255.0, ~mask.flatten()
    weights = np.linalg.lstsq(features[known], values[known], rcond=None)[0]
    expected = np.where(known[:, None], levels.reshape(-1, 3), np.rint((features @ weights).clip(0, 1) * 255))
    assert found.values.dtype == np.uint8
    np.testing.assert_array_equal(found.values.reshape(-1, 3), expected)
    np.testing.assert_array_equal(found.missing.any(-1), mask)


RFF = {"name": "rff", "num_features": 8, "sigma": 3.0}


@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.choice.ChoiceWarning")  # a small picture
@pytest.mark.slow
def test_the_seed_reaches_an_encoder_that_has_none() -> None:
    levels, mask = damaged()
    values = np.where(mask[..., None], 0.0, levels / 255.0)
    places, known = np.argwhere(~mask) / (14, 12), values[~mask]

    def filled(seed: int, encoder: Any = RFF) -> tuple[np.ndarray, np.ndarray]:
        of_grid = fill(values, mask, encoder=encoder, folds="none", seed=seed).values[mask]
        return of_grid, pe_fill.fit_points(places, known, encoder=encoder, seed=seed).predict([[0.3, 0.5]])

    first, second, given = filled(0), filled(1), filled(0, RFF | {"seed": 1})
    for one, other, same in zip(first, second, given, strict=True):
        assert not np.allclose(one, other)
        np.testing.assert_allclose(other, same, atol=1e-9)


def test_the_score_is_that_of_all_folds() -> None:
    values = torch.rand(1, 9, 10, 2, generator=torch.Generator().manual_seed(0))
    values[0, 2:4, 3] = torch.nan
    data, folds = TensorDataModule(values, sampling={"name": "grid", "stride": 1}, eval_mask="none"), FoldSampling(number=3)
    found = score_folds(data.signals, lambda part: fit_quietly(exact(), data.with_signals(part)), folds)
    features, flat = np.kron(hats(9), hats(10)), values[0].flatten(0, 1).double().numpy()
    known, squared, count = np.isfinite(flat).all(1), 0.0, 0
    for fold in range(3):
        out = (~folds.hold_out(fold).split((9, 10), 1).train_mask()).flatten().numpy()
        weights = np.linalg.lstsq(features[known & ~out], flat[known & ~out], rcond=None)[0]
        squared += np.square(features @ weights - flat)[known & out].sum()
        count += 2 * (known & out).sum()
    assert count == 2 * known.sum()
    np.testing.assert_allclose(found.values, -10 * np.log10(squared / count), rtol=1e-4)
    np.testing.assert_allclose(found.errors, np.sqrt(squared / count), rtol=1e-4)
    scores, _ = interpolated_folds(data.signals, folds)
    assert {"nearest", "delaunay"} <= scores.keys()
    module = pe_lightning.fit(TensorDataModule(values, folds={"number": 3}), model=exact())
    np.testing.assert_allclose(module.psnr, float(found.values))
    assert module.scores["train/psnr"].isfinite().all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32", "float64"])
def test_known_values_are_unchanged_in_every_dtype(dtype: str) -> None:
    levels, mask = damaged(channels=1)
    array = (levels[..., 0].astype(dtype) * (1 if dtype == "uint8" else 3)).astype(dtype)
    array[mask] = 7
    found = fill(array, mask, model=exact, folds="none").values
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    np.testing.assert_array_equal(found[~mask], array[~mask])
    near = np.abs(found[mask] / (1 if dtype == "uint8" else 3) - levels[mask][:, 0])
    assert near.mean() < 30
    assert (found[mask] != 7).all()


def test_a_channel_that_is_known_stays_where_another_is_missing() -> None:
    levels, _ = damaged()
    values = levels.astype(float)
    values[4, 4, 1] = np.nan
    values[6, 7] = np.inf
    found = fill(values, model=exact, folds="none")
    known = np.isfinite(values)
    np.testing.assert_array_equal(found.values[known], values[known])
    assert np.isfinite(found.values).all()
    assert int(found.missing.sum()) == 4


@pytest.mark.parametrize("shape", [(40,), (40, 3), (12, 14), (9, 12, 3), (5, 6, 7, 3)])
def test_rows_pictures_and_cubes(shape: tuple[int, ...]) -> None:
    values = np.sin(np.linspace(0, 6, int(np.prod(shape)))).reshape(shape)
    values[2, ...] = np.nan if len(shape) > 2 else values[2, ...]
    values.flat[[20, 21]] = np.nan
    axes = {(40, 3): 1, (5, 6, 7, 3): 3}.get(shape)
    found = fill(values, folds="none" if len(shape) == 4 else "random", axes=axes)
    assert isinstance(found, Filled)
    assert found.values.shape == shape
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.score) == (len(shape) < 4)
    assert bool(found.signals[0].baselines) == (len(shape) < 4)


def test_members_are_named_and_their_weights_reported() -> None:
    levels, mask = damaged(24, 24)
    found = fill(levels, mask, members=["fourier", "cubic"], std=True)
    mixture = found.signals[0].model
    assert isinstance(mixture, GapMixture)
    assert list(mixture.weights) == ["fourier", "cubic"]
    np.testing.assert_allclose(sum(mixture.weights.values()), 1)
    np.testing.assert_array_equal(found.values[~mask], levels[~mask])
    assert found.std is not None
    assert (found.std[mask] > 0).all()
    assert (found.std[~mask] == 0).all()
    assert "thin_plate" in found.signals[0].baselines
    assert "moved copies of the gaps" in found.signals[0].protocol


def test_few_samples_get_the_exact_fit_and_many_the_mixture() -> None:
    few = np.array([0.1, 0.2, np.nan, 0.4, 0.5, 0.6])
    assert fill(few, axes=1, folds="none").signals[0].model.label == "ComplexLinear"
    levels, mask = damaged(20, 20, 1)
    assert isinstance(fill(levels, mask, folds="none").signals[0].model, GapMixture)
    assert fill(levels, mask, folds="none", model="adaptive").signals[0].model.label == "Adaptive"
    assert fill(levels, mask, folds="none", model="exact").signals[0].model.label == "ComplexLinear"


@pytest.mark.slow
def test_wide_gaps_are_scored_by_blocks() -> None:
    levels, mask = damaged(20, 20, 1)
    mask[6:16, 6:16] = True
    assert fill(levels, mask, model=exact).signals[0].protocol == "5 folds of blocks of 4x4 samples"
    scattered = np.random.default_rng(0).random((20, 20)) < 0.6
    assert fill(levels, scattered, model=exact).signals[0].protocol == "5 random folds"
    assert fill(levels, mask, model=exact, block=2).signals[0].protocol == "5 folds of blocks of 2x2 samples"


def test_large_signals_are_scored_by_fewer_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    levels, mask = damaged(20, 20, 1)
    monkeypatch.setattr(signal, "MAX_FOLD_SAMPLES", 2 * int((~mask).sum()))
    found = fill(levels, mask, model=exact).signals[0]
    assert found.protocol.startswith("2 of 5 ")
    assert found.score is not None
    assert found.score.values.isfinite().all()


@pytest.mark.parametrize(
    ("side", "lost", "least"),
    [(12, 0.0, 0.9), pytest.param(24, 0.1, 0.2, marks=pytest.mark.slow), (24, 0.0, 0.2), (24, 0.6, 0.9)],
)
def test_smoothing_changes_known_samples_too(side: int, lost: float, least: float) -> None:
    """The whole grid where it is large enough and known, by patches and a sparse fit; held-out samples are scored too."""
    y, x = np.mgrid[:side, :side] / side
    clean = np.sin(3 * x + 2 * y)
    random = np.random.default_rng(1)
    noisy = clean + random.normal(0, 0.2, clean.shape)
    noisy[random.random(clean.shape) < lost] = np.nan
    filled = fill(noisy, smooth=True, folds="random" if lost == 0.1 else "none")
    known = np.isfinite(noisy)
    assert np.square(filled.values - clean)[known].mean() < least * np.square(noisy - clean)[known].mean()
    assert np.isfinite(filled.values).all()
    found = filled.signals[0].noise
    assert filled.signals[0].model.label.startswith("Adaptive" if found is None else "patches ")
    assert found == (None if side == 12 or lost == 0.6 else pytest.approx(0.2, rel=0.15))
    if filled.signals[0].score is not None:
        error = float(filled.signals[0].score.errors) * filled.signals[0].unit
        assert 0.19 < error < 0.32  # that of the noise and of the fit


def test_more_samples_than_the_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    levels, mask = damaged()
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    with pytest.raises(InputError, match=r"of 150 known samples takes about .* fill a part of the file"):
        fill(levels, mask, folds="none")


class WithStd(ComplexLinear):
    """Standard deviations that are the coordinate along the first axis."""

    has_std = True

    def std(self, coords: torch.Tensor) -> torch.Tensor:
        return coords[:, :1].expand(-1, self.require_info().channels)


def test_standard_deviations_are_of_missing_samples_in_units_of_the_source() -> None:
    levels, mask = damaged()
    values = np.where(mask[..., None], np.nan, levels.astype(float))
    found = fill(values, model=lambda: WithStd(hat(), **SOLVED), folds="none", std=True)
    assert found.std is not None
    assert (found.std.dtype, found.std.shape) == (np.float32, values.shape)
    extent = np.nanmax(values) - np.nanmin(values)
    expected = np.where(mask[..., None], np.arange(14)[:, None, None] / 14 * extent, 0)
    np.testing.assert_allclose(found.std, np.broadcast_to(expected, values.shape), rtol=1e-5)
    assert fill(values, model=exact, folds="none").std is None


@pytest.mark.parametrize(
    "model",
    ["adaptive", lambda: LinearRidge("bspline"), lambda: ComplexLinear({"name": "gau", "padding": 2}, solver="exact")],
)
@pytest.mark.parametrize("factor", [2, 3])
def test_cells_are_enlarged_to_cells_with_their_means(model: Any, factor: Any) -> None:
    side = 48
    x = (np.arange(side * 4 * factor) + 0.5) / (side * 4 * factor)
    picture = np.sin(16 * x)[:, None] * np.cos(12 * x) + 0.5 * np.sin(10 * x + 8 * x[:, None])
    finer = picture.reshape(side * factor, 4, side * factor, 4).mean((1, 3))
    known = finer.reshape(side, factor, side, factor).mean((1, 3))
    found = fill(known, upscale=factor, samples="cells", model=model)
    means = found.values.reshape(side, factor, side, factor).mean((1, 3))
    np.testing.assert_allclose(means, known, atol=1e-5)
    inner = slice(3 * factor, -3 * factor)
    error = np.abs(found.values - finer)[inner, inner].mean()
    lanczos = Image.fromarray(known.astype(np.float32)).resize(finer.shape, Image.Resampling.LANCZOS)
    assert error < 0.9 * np.abs(np.asarray(lanczos) - finer)[inner, inner].mean()
    assert "reduced to means over cells" in found.signals[0].protocol
    assert found.score > max(float(each.values) for each in found.signals[0].baselines.values())


def test_cells_are_the_default_of_enlarging_and_missing_ones_are_predicted() -> None:
    levels, mask = damaged(40, 36)
    holed = np.where(mask[..., None], np.nan, levels)
    found = fill(holed, upscale=2, folds="none", model="adaptive").values.reshape(40, 2, 36, 2, 3).mean((1, 3))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[~mask], levels[~mask], atol=1e-3)


def test_the_network_for_cells_is_mixed_in_where_it_predicts_the_reduced_picture() -> None:
    words = draw_words(np.random.default_rng(4), 256)[40:200, 60:204]
    means = words.reshape(80, 2, 72, 2, 3).mean((1, 3)).round().astype(np.uint8)
    alone, both = (fill(means, upscale=2, pretrained=prior) for prior in ("none", "pictures"))
    errors = [np.square(each.values.astype(float) - words).mean() for each in (alone, both)]
    assert errors[1] < 0.8 * errors[0]
    assert "trained on other pictures" in both.signals[0].model.label
    assert "trained on other pictures" not in alone.signals[0].model.label
    assert both.score > alone.score
    np.testing.assert_allclose(both.values.reshape(80, 2, 72, 2, 3).mean((1, 3)), means, atol=1)
    noise = np.random.default_rng(0).random((80, 72))
    weights = fill(noise, upscale=2).signals[0].model.weights  # type: ignore[union-attr]
    assert weights["Adaptive"] > 0.3


def test_factors_of_single_axes_and_compositions() -> None:
    clip = np.random.default_rng(0).random((5, 12, 10))
    found = fill(clip, upscale=(1, 4, 4), folds="none")
    assert found.values.shape == (5, 48, 40)
    np.testing.assert_allclose(found.values.reshape(5, 12, 4, 10, 4).mean((2, 4)), clip, atol=1e-5)
    one = fill(clip[1], upscale=4, folds="none", model="exact").values
    assert one.shape == (48, 40)


def test_enlargements_that_do_not_fit_in_memory_are_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 10_000)
    with pytest.raises(InputError, match=r"enlarged to 80x72 takes about .* enlarge by less"):
        fill(np.zeros((40, 36)), upscale=2)


def test_enlarging_keeps_the_samples_and_their_places() -> None:
    levels, mask = damaged(40, 36)
    found = fill(levels, upscale=2, samples="points")
    assert found.values.shape == (80, 72, 3)
    np.testing.assert_array_equal(found.values[::2, ::2], levels)
    between = (levels[:-1, 3].astype(float) + levels[1:, 3]) / 2
    assert np.abs(found.values[1:-1:2, 6] - between).mean() < 4
    assert found.signals[0].protocol == "enlargements of values at points are not scored"
    holed = levels.copy()
    holed[mask] = 0
    np.testing.assert_array_equal(
        fill(holed, mask, upscale=3, samples="points", folds="none").values[::3, ::3][~mask], levels[~mask]
    )


def test_a_prior_takes_part_in_enlarging() -> None:
    words = draw_words(np.random.default_rng(4), 256)[20:180, 30:174]
    alone, both = (fill(words[::2, ::2], upscale=2, samples="points", pretrained=prior) for prior in ("none", "pictures"))
    np.testing.assert_array_equal(both.values[::2, ::2], words[::2, ::2])
    errors = [np.square(enlarged.values - words.astype(float)).mean() for enlarged in (alone, both)]
    assert errors[1] < 0.95 * errors[0]


def bayer(shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Known values of a colour filter array: green and red, blue and green."""
    y, x = np.indices(shape) % 2
    return np.stack([(y == 0) & (x == 1), y == x, (y == 1) & (x == 0)], -1)


@pytest.mark.parametrize(
    ("values", "arguments", "words"),
    [
        (np.zeros((9, 9)), {}, "no sample is missing, so there is nothing to fill"),
        (np.full((9, 9), np.nan), {}, "all 81 samples of 'signal0' are missing"),
        (np.zeros((9, 9)), {"missing": np.zeros((9, 8), bool)}, r"of the shape of the values, \(9, 9\)"),
        (np.zeros((9, 9)), {"missing": "mask.png"}, "the mask of an array is an array of booleans"),
        (np.zeros((9, 9)), {"missing": "alpha"}, "is for pictures, not for arrays"),
        (np.zeros((9, 9), complex), {}, "an array of complex128"),
        (np.zeros((9, 200)), {}, "say how many axes a signal has, such as axes: 2"),
        (np.zeros((9, 9)), {"upscale": 5}, "upscale must be one of 1, 2, 3, 4, 6, 8"),
        (np.zeros((9, 9)), {"upscale": 2, "smooth": True}, "two steps"),
        (np.zeros((9, 9)), {"encoder": "gau", "model": "adaptive"}, "set model to exact"),
        (np.zeros((9, 9)), {"pretrained": "photos", "upscale": 2}, "unknown prior 'photos'"),
        ("nothing.png", {}, "no such file or folder"),
        (np.eye(9), {"missing": np.eye(9, dtype=bool), "members": ["wavelet"]}, "members must be one of autoregressive"),
        (np.eye(9), {"missing": 0, "members": ["fourier"], "model": "exact"}, "without model, smooth and upscale"),
        (np.array([0.1, 0.2, np.nan, 0.4, 0.5, 0.6]), {"axes": 1, "model": "adaptive"}, "needs more samples than 5"),
        (np.eye(9), {"missing": 0, "std": True, "smooth": True}, "leave out smooth and upscale"),
        (np.eye(9), {"missing": 0, "samples": "cells"}, "samples: cells is for enlarging: add upscale"),
        (np.eye(9), {"upscale": (1, 2, 2)}, "one for each of 2 axes"),
        (np.eye(9), {"missing": np.full((9, 9), np.nan)}, r"values, \(9, 9\); got float64 \(9, 9\) with NaN"),
        (np.ones((9, 9, 3)) * [1, np.nan, 1], {}, "channel 1 is missing entirely, of 3"),
        (np.where(bayer((9, 8)), 0.5, np.nan), {}, r"Menon2007\(np.where\(missing, 0, values\).sum\(-1\), 'GRBG'\)"),
        (
            np.where(np.roll(bayer((9, 8)), 1, -1), 0.5, np.nan),
            {},
            "one channel or another of every sample is missing entirely",
        ),
    ],
)
def test_what_is_refused(values: object, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fill(values, **arguments)  # type: ignore[arg-type]


def test_a_file_is_the_array_in_it(tmp_path: Path) -> None:
    levels, mask = damaged()
    levels[mask] = 255
    Image.fromarray(levels).save(tmp_path / "a.png")
    Image.fromarray(mask).save(tmp_path / "mask.png")
    found = fill(tmp_path / "a.png", str(tmp_path / "mask.png"), model=exact, folds="none")
    np.testing.assert_array_equal(found.values, fill(levels, mask, model=exact, folds="none").values)
    np.testing.assert_array_equal(np.asarray(Image.open(found.write(tmp_path / "b.png"))), found.values)
    with pytest.raises(InputError, match=r"the result is written as \.png"):
        found.write(tmp_path / "b.npy")
    before = (tmp_path / "a.png").read_bytes()
    (tmp_path / "link.png").symlink_to(tmp_path / "a.png")
    for name in ("a.png", "link.png"):
        with pytest.raises(InputError, match="is the file that was filled"):
            found.write(tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == before
    with pytest.raises(InputError, match=r"numpy\.save"):
        fill(levels, mask, model=exact, folds="none").write(tmp_path / "c.png")


EXACT: dict[str, Any] = {"model": exact, "folds": "none"}


def surface(shape: tuple[int, ...] = (20, 24)) -> np.ndarray:
    y, x = np.mgrid[: shape[0], : shape[1]] / 20
    return np.sin(4 * x * y) + 0.3 * np.cos(9 * x) + 1.5


def test_deviations_of_values_of_any_size() -> None:
    """Those of the values divided by their scale, times it; float32 could not hold them."""
    values = np.where(np.random.default_rng(0).random((20, 24)) < 0.1, np.nan, surface())
    expected = pe_fill.fill(values, std=True, folds="none").std
    assert expected is not None
    assert expected.dtype == np.float32
    for scale in (1e300, 1e-300):
        found = pe_fill.fill(values * scale, std=True, folds="none").std
        assert found is not None
        assert found.dtype == np.float64
        np.testing.assert_allclose(found / scale, expected, rtol=1e-6)


def test_masks_as_users_have_them() -> None:
    """Booleans, 0 and 255, 0.0 and 1.0, an axis of one channel, and NumPy masked arrays mark the same samples."""
    values, mask = surface(), np.random.default_rng(0).random((20, 24)) < 0.1
    expected = pe_fill.fill(values, mask, **EXACT).values
    assert (expected[mask] != values[mask]).all()
    levels = mask.astype(np.uint8) * 255
    for other in (levels, mask.astype(int)[..., None], mask.astype(float), torch.from_numpy(mask), Image.fromarray(levels)):
        np.testing.assert_array_equal(pe_fill.fill(values, other, **EXACT).values, expected)
    hidden = np.ma.masked_array(np.where(mask, -9999.0, values), mask)
    np.testing.assert_array_equal(pe_fill.fill(hidden, **EXACT).values, expected)


def test_pictures_with_their_channels_first() -> None:
    colours = np.stack([surface(), 2 - surface() / 2, surface() ** 2])
    mask = np.random.default_rng(0).random((20, 24)) < 0.1
    expected = pe_fill.fill(np.moveaxis(colours, 0, -1), mask, **EXACT).values
    found = pe_fill.fill(colours, mask, **EXACT)
    assert found.missing.shape == found.values.shape == colours.shape
    np.testing.assert_array_equal(np.moveaxis(found.values, 0, -1), expected)
    batch = pe_fill.fill(np.where(mask, np.nan, colours)[None], **EXACT).values
    np.testing.assert_allclose(batch[0], found.values, rtol=1e-6)


def test_large_integers_are_compared_exactly() -> None:
    values = 2**53 + np.arange(480).reshape(20, 24)
    values[3, 4] = 2**53
    assert pe_fill.fill(values, 2**53, **EXACT).missing.sum() == 2  # not 2^53 + 1, which float64 does not tell
    assert pe_fill.fill(values, "9007199254740993,9007199254740999", **EXACT).missing.sum() == 2


@pytest.mark.filterwarnings("ignore:ridge. auto uses the relative ridge")
@pytest.mark.parametrize(
    ("shape", "known", "protocol"),
    [
        ((24, 32), np.s_[:, 20], "of 5 folds of blocks of 4x6 samples"),
        ((24, 32), np.s_[:2, :2], "of 5 random folds"),
        ((24, 32), np.s_[3, 4:6], "too few known samples"),
        ((300,), np.s_[:3], "too few known samples"),
        ((4,), np.s_[[0, 2, 3]], "3 of 4 random folds"),
    ],
)
def test_folds_follow_from_the_known_samples(shape: tuple[int, ...], known: Any, protocol: str) -> None:
    """One without a known sample is left out, and all may be; deviations of too few samples are NaN."""
    truth = 5 + np.sin(3 * sum(np.meshgrid(*(np.arange(n) / n for n in shape), indexing="ij")))
    values = np.full(shape, np.nan)
    values[known] = truth[known]
    filled = fill(values, std=True)
    about, count = filled.signals[0], int(np.isfinite(values).sum())
    assert np.array_equal(filled.values[known], truth[known])
    assert np.isnan(filled.std).sum() == (0 if count > 4 else about.num_missing)
    assert protocol in about.protocol
    assert (about.score is None) == protocol.startswith("too few")
    assert abs(fill(values, smooth=True, folds="none").values - 5).max() < 3


@pytest.mark.parametrize("options", [{"folds": "random"}, {"folds": "blocks"}, {"block": 30}])
def test_given_folds_that_hold_out_most_known_samples_are_refused(options: dict[str, Any]) -> None:
    values = np.where(np.arange(30) < 2, 1.0, np.nan)
    with pytest.raises(InputError, match="half of the 2 known samples: leave out folds and block, or set folds none"):
        fill(values, **options)


LINES = {
    "every eighth column": lambda known: known[:, ::8].fill_(True),
    "one row": lambda known: known[5].fill_(True),
    "diagonal": lambda known: known.diagonal()[:].fill_(True),
    "two": lambda known: known[5, :2].fill_(True),
}


@pytest.mark.filterwarnings("ignore:ridge. auto uses the relative ridge")  # of two samples none can be held out
@pytest.mark.parametrize("name", LINES)
def test_known_samples_on_few_lines(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A member that cannot be computed is left out and named; nobody is told to set the folds that nobody set."""
    known = torch.zeros(96, 96, dtype=torch.bool)
    LINES[name](known)
    truth = torch.linspace(0.2, 0.8, 96).expand(96, 96)[..., None].clone()
    with caplog.at_level("INFO"):
        filled = fill(truth.numpy(), ~known.numpy())
    found = torch.from_numpy(filled.values).reshape(96, 96)
    assert torch.equal(found[known], truth[..., 0][known])
    assert found.isfinite().all()
    if name == "every eighth column":
        assert (found - truth[..., 0]).abs().mean() < 0.02
    on_a_line = name in ("one row", "diagonal")
    assert ("'delaunay' is left out, as it cannot be computed" in caplog.text) == on_a_line
