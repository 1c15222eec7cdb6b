"""Noise of pictures: how strong it is, and what removes it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

from pe_fill import fill
from pe_fill.sparse.denoise import denoise
from pe_fill.sparse.patch_noise import mixed_denoising, remove_noise
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.signals.raw import AnyArray


def picture(name: str, side: int = 64) -> AnyArray:
    whole = np.asarray(getattr(skimage.data, name)())
    top, left = ((size - side) // 2 for size in whole.shape[:2])
    return whole[top : top + side, left : left + side]


def noisy(clean: AnyArray, level: float, correlation: float = 0.0) -> AnyArray:
    """With noise of a level, at the same scale and in the dtype of the picture, clipped; correlated over some pixels."""
    drawn = gaussian_filter(np.random.default_rng(0).standard_normal(clean.shape), (correlation,) * 2, axes=(0, 1))
    found: AnyArray = (clean + level / drawn.std() * drawn).clip(0, 255).round().astype(np.uint8)
    return found


def psnr(found: object, clean: AnyArray) -> float:
    return 10 * math.log10(255**2 / max(1e-9, np.square(np.float64(np.asarray(found)) - clean).mean()))


@pytest.mark.parametrize(
    ("name", "level"), [("astronaut", 0), ("brick", 0), ("grass", 5), ("gravel", 5), ("astronaut", 25), ("brick", 25)]
)
@pytest.mark.slow
def test_noise_is_found_and_no_result_is_worse_than_the_picture(name: str, level: int) -> None:
    clean = picture(name)
    given = noisy(clean, level)
    filled = fill(given, smooth=True, folds="none")
    found = filled.signals[0].noise
    assert found is not None
    assert found < 1.2 * level + 1.5
    if level == 25:
        assert found > 0.75 * level
    assert psnr(filled.values, clean) >= min(45.0, psnr(given, clean) + (2 if level == 25 else 0))
    if not found:
        np.testing.assert_array_equal(filled.values, given)


@pytest.mark.slow
def test_patches_and_a_sparse_fit_are_mixed_as_the_picture_needs() -> None:
    """Patches are ahead on photographs, the sparse fit on smooth surfaces; mixed, none is lost."""
    random, (y, x) = torch.Generator().manual_seed(1), np.mgrid[:96, :96] / 96
    wave = torch.from_numpy(0.5 + 0.4 * np.sin(3 * x + 2 * y)).float()[..., None]
    errors = {}
    for name, clean in {"wave": wave, "chelsea": torch.from_numpy(picture("chelsea", 96)) / 255}.items():
        given = clean + 0.08 * torch.randn(clean.shape, generator=random)
        sparse = denoise(given.movedim(-1, 0).contiguous(), level=0.08).values.movedim(0, -1)
        mixed, weight = mixed_denoising(given, 0.08)
        found = [sparse, remove_noise(given, 0.08), mixed]
        errors[name] = [weight, *(float((each - clean).square().mean()) for each in found)]
    weight, sparse_error, patch_error, mixed_error = errors["wave"]
    assert (weight < 0.3, mixed_error < 0.5 * patch_error, mixed_error < 1.1 * sparse_error) == (True,) * 3
    weight, sparse_error, patch_error, mixed_error = errors["chelsea"]
    assert (weight > 0.4, mixed_error < 0.95 * sparse_error, mixed_error < 1.02 * patch_error) == (True,) * 3


@pytest.mark.slow
def test_correlated_noise_is_removed_as_in_a_sample_of_it() -> None:
    clean = picture("astronaut", 96)
    clean = np.concatenate([np.full((32, 96, 3), 120, np.uint8), clean])
    given = noisy(clean, 15, correlation=0.8)
    results = {sample: fill(given, smooth=True, folds="none", noise_sample=sample) for sample in (None, "0:32,0:96")}
    scores = [psnr(result.values[32:], clean[32:]) for result in results.values()]
    assert scores[1] > max(scores[0], psnr(given[32:], clean[32:])) + 1.5
    assert results["0:32,0:96"].signals[0].noise == pytest.approx(15, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uint16", "missing", "alpha"])
def test_dtypes_channels_and_missing_pixels(kind: str) -> None:
    clean = picture("chelsea", 48)
    given = noisy(clean, 20)
    values, scale = {"uint16": (given * np.uint16(257), 257.0), "missing": (given / 1000, 1e-3)}.get(kind, (given, 1.0))
    missing = np.zeros(given.shape[:2], bool)
    if kind == "missing":
        missing[20:24, 10:40] = True
        missing[np.random.default_rng(1).random(missing.shape) < 0.03] = True
    if kind == "alpha":
        values = np.concatenate([given, np.full_like(given[..., :1], 255)], -1)
    filled = fill(values, missing, smooth=True, folds="none")
    assert filled.values.dtype == values.dtype
    assert filled.signals[0].noise == pytest.approx(20 * scale, rel=0.25)
    assert psnr((filled.values / scale)[..., :3], clean) > psnr(given, clean) + 5


@pytest.mark.slow  # four pictures
def test_the_command_takes_what_python_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(noisy(picture("chelsea", 40), 10)).save("a.png")
    both: tuple[tuple[list[str], dict[str, Any]], ...] = (
        (["--noise", "12"], {"noise": 12.0}),
        (["--noise_sample", "0:16,8:40"], {"noise_sample": "0:16,8:40"}),
    )
    for options, arguments in both:
        assert main(["fill", "a.png", "--smooth", *options, "--folds", "none", "--out", "b.png", "--force"]) == 0
        filled = fill("a.png", smooth=True, folds="none", **arguments)
        np.testing.assert_array_equal(np.asarray(Image.open("b.png")), filled.values)
        assert f"noise of a standard deviation of {filled.signals[0].noise:.3g} was removed by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shape", "arguments", "words"),
    [
        ((20, 20), {"noise": 10, "smooth": False, "missing": 0}, "noise and noise_sample are for smooth"),
        ((20, 20), {"noise": -1}, "a standard deviation above 0; got -1"),
        ((20, 20), {"noise": 10, "noise_sample": "0:16,0:16"}, "leave one out"),
        ((20, 20), {"noise": 10, "model": "adaptive"}, "without model and encoder"),
        ((20, 20), {"noise_sample": "0-16,0-16"}, "such as 0:32,100:160; got '0-16,0-16'"),
        ((20, 20), {"noise_sample": "0:16,8:24"}, "outside the picture of 20 rows and 20 columns"),
        ((20, 20), {"noise_sample": "0:16,0:16"}, "has no noise, or missing pixels"),
        ((400,), {"noise": 10}, r"are of pictures of at least 16 x 16 pixels .* has 400 samples"),
        ((9, 9), {"noise": 10}, r"has 9 x 9 samples, 81 of them known: leave them out"),
    ],
)
def test_what_is_refused(shape: tuple[int, ...], arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fill(np.ones(shape), **{"smooth": True, **arguments})  # type: ignore[arg-type]
