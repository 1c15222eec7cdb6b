"""Predictions as files one can look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pe_lightning.callbacks.pictures import (
    ERROR_FULL_SCALE,
    comparison,
    error_map,
    file_names,
    is_picture,
    to_image,
    write_png,
    write_signal,
)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA")])
def test_one_to_four_channels(channels: int, mode: str) -> None:
    values = random(5, 7, channels)
    image = to_image(values)
    assert (image.mode, image.size) == (mode, (7, 5))
    eight_bit = np.asarray(image).reshape(5, 7, channels)
    assert np.abs(eight_bit / 255 - values).max() <= 0.5 / 255 + 1e-6


def test_values_outside_are_clamped_and_nan_is_black() -> None:
    values = np.array([[-3, 0, 0.5, 1, 7, np.inf, -np.inf, np.nan]], dtype=np.float32)[..., None]
    assert np.asarray(to_image(values)).tolist() == [[0, 0, 128, 255, 255, 255, 0, 0]]


def test_every_eight_bit_value_survives() -> None:
    values = (np.arange(256, dtype=np.float32) / 255).reshape(16, 16, 1)
    assert np.array_equal(np.asarray(to_image(values)), np.arange(256).reshape(16, 16))


def test_the_error_map_is_black_without_error_and_pale_at_full_scale() -> None:
    truth = np.zeros((1, 6, 3), dtype=np.float32)
    prediction = truth.copy()
    prediction[0, 1] = ERROR_FULL_SCALE / 2
    prediction[0, 2] = ERROR_FULL_SCALE
    prediction[0, 3] = [0, 0, 3 * ERROR_FULL_SCALE]  # the mean over the channels counts
    prediction[0, 4] = -9
    prediction[0, 5, 0] = np.nan
    colours = np.asarray(error_map(prediction, truth)).tolist()[0]
    black, middle, pale = [0, 0, 4], [183, 55, 121], [252, 253, 191]
    assert colours == [black, middle, pale, pale, pale, pale]


def test_the_error_map_brightens_with_the_error() -> None:
    prediction = np.linspace(0, ERROR_FULL_SCALE, 50, dtype=np.float32).reshape(1, 50, 1)
    grey = np.asarray(error_map(prediction, np.zeros_like(prediction)).convert("L"), dtype=float)[0]
    assert (np.diff(grey) >= 0).all()
    assert grey[-1] - grey[0] > 200


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_predictions_that_diverged_have_pictures(value: float) -> None:
    prediction = np.full((4, 4, 3), value, dtype=np.float32)
    sheet = comparison(prediction, random(4, 4, 3), "reconstruction")
    assert sheet.mode == "RGB"
    assert np.asarray(error_map(prediction, random(4, 4, 3)))[0, 0].tolist() == [252, 253, 191]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("shape", "size"),
    [((300, 400), (1208, 322)), ((16, 32), (3 * 256 + 8, 128 + 22)), ((200, 100), (308, 222))],
)
def test_a_comparison_shows_three_panels(shape: tuple[int, int], size: tuple[int, int], channels: int) -> None:
    sheet = comparison(random(*shape, channels), random(*shape, channels), "reconstruction, 20.00 dB")
    assert (sheet.mode, sheet.size) == ("RGB", size)


def test_the_panels_are_truth_reconstruction_and_error() -> None:
    prediction, truth = random(300, 256, 3), random(300, 256, 3)[::-1].copy()
    sheet = np.asarray(comparison(prediction, truth, ""))[22:]
    for place, image in enumerate([to_image(truth), to_image(prediction), error_map(prediction, truth)]):
        left = place * (256 + 4)
        assert np.array_equal(sheet[:, left : left + 256], np.asarray(image))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_pictures_are_written_as_png(channels: int, tmp_path: Path) -> None:
    values = np.round(random(5, 7, channels) * 255).astype(np.float32) / 255
    path = write_signal(tmp_path / "new" / "photo.v2", values)
    assert path == tmp_path / "new" / "photo.v2.png"  # what looks like a suffix is a part of the name
    with Image.open(path) as image:
        read = np.asarray(image, dtype=np.float32).reshape(5, 7, channels) / 255
    assert np.array_equal(read, values)
    assert [entry.name for entry in path.parent.iterdir()] == ["photo.v2.png"]


@pytest.mark.parametrize("shape", [(9, 1), (4, 5, 5), (3, 4, 5, 3)])
def test_other_signals_are_written_as_they_are(shape: tuple[int, ...], tmp_path: Path) -> None:
    values = random(*shape) * 3 - 1
    path = write_signal(tmp_path / "cube.v2", values)
    assert path == tmp_path / "cube.v2.npy"
    read = np.load(path)
    assert read.dtype == np.float32
    assert np.array_equal(read, values)


def test_what_is_a_picture() -> None:
    assert [is_picture(np.zeros((4, 4, c))) for c in (0, 1, 4, 5)] == [False, True, True, False]
    assert not is_picture(np.zeros((4, 3)))
    assert not is_picture(np.zeros((4, 4, 4, 3)))


def test_write_png(tmp_path: Path) -> None:
    path = write_png(tmp_path / "a.png", Image.new("RGB", (3, 2), "red"))
    with Image.open(path) as image:
        assert (image.format, image.size, image.getpixel((0, 0))) == ("PNG", (3, 2), (255, 0, 0))


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a-2", "a-3"]),
        (["a", "a-2", "a"], ["a", "a-2", "a-3"]),
        (["a-2", "a", "a"], ["a-2", "a", "a-3"]),
        (["Cat", "cat"], ["Cat", "cat-2"]),  # one file on Windows and macOS
        (["a b", "a/b"], ["a-b", "a-b-2"]),
        (["a", "a_comparison"], ["a", "a_comparison-2"]),  # the sheet of the first has that name
        (["a_comparison", "a"], ["a_comparison", "a-2"]),
        (["..."], ["unnamed"]),
        ([], []),
    ],
)
def test_file_names(names: list[str], expected: list[str]) -> None:
    assert file_names(tuple(names)) == expected


def test_no_two_files_of_any_signals_meet() -> None:
    names = tuple(["a", "A", "a-2", "a_comparison", "a-2_comparison", "a", "A_COMPARISON", "x" * 300, "x" * 301])
    stems = file_names(names)
    files = [name.casefold() for stem in stems for name in (f"{stem}.png", f"{stem}_comparison.png")]
    assert len(set(files)) == 2 * len(names)
    assert max(len(name.encode()) for name in files) < 255
