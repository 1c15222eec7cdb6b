"""Truth and prediction beside each other."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

from pe_lightning.results.pictures import (
    DETAIL_SAMPLES,
    ERROR_FULL_SCALE,
    comparison,
    comparison_frames,
    error_map,
    plot_choice,
    row_plot,
    side_by_side,
    to_image,
)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def test_every_eight_bit_value_survives_and_others_are_clamped() -> None:
    values = (np.arange(256, dtype=np.float32) / 255).reshape(16, 16, 1)
    assert np.array_equal(np.asarray(to_image(values)), np.arange(256).reshape(16, 16))
    outside = np.array([[-3, 0.5, 7, np.inf, -np.inf, np.nan]], dtype=np.float32)[..., None]
    assert np.asarray(to_image(outside)).tolist() == [[0, 128, 255, 255, 0, 0]]


def test_the_error_map_is_black_without_error_and_pale_at_full_scale() -> None:
    truth = np.zeros((1, 6, 3), dtype=np.float32)
    prediction = truth.copy()
    prediction[0, 1] = ERROR_FULL_SCALE / 2
    prediction[0, 2] = ERROR_FULL_SCALE
    prediction[0, 3] = [0, 0, 3 * ERROR_FULL_SCALE]  # the mean over the channels counts
    prediction[0, 4] = -np.inf
    prediction[0, 5, 0] = np.nan
    colours = np.asarray(error_map(prediction, truth)).tolist()[0]
    black, middle, pale = matplotlib.colormaps["magma"]([0.0, 0.5, 1.0], bytes=True)[:, :3].tolist()
    assert colours == [black, middle, pale, pale, pale, pale]


@pytest.mark.parametrize(("shape", "size"), [((300, 400, 1), (1208, 300)), ((16, 32, 4), (3 * 256 + 8, 128))])
def test_a_comparison_shows_three_panels(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    sheet = comparison(random(*shape), random(*shape), "reconstruction, 20.00 dB")
    assert (sheet.mode, sheet.width) == ("RGB", size[0])
    assert 20 < sheet.height - size[1] < 80  # the captions


def test_a_long_caption_is_wrapped_and_nothing_of_it_is_cut() -> None:
    panel = to_image(np.zeros((192, 192, 3), np.float32))
    short, long = (side_by_side([("truth", panel), (text, panel)]) for text in ("score", "an interpolation of a long name"))
    assert short.width == long.width
    assert long.height > short.height
    captions = np.asarray(long)[: long.height - 192, 196:]
    assert (captions[:, -2:] == 255).all()  # no text at the edge
    rows = [side_by_side([("name\nscore", panel)] * count, columns=3).size for count in (2, 3, 5)]
    assert [width for width, _ in rows] == [2 * 196 - 4, 3 * 196 - 4, 3 * 196 - 4]
    assert rows[2][1] == 2 * rows[0][1] + 4


def test_the_panels_are_truth_reconstruction_and_error() -> None:
    prediction, truth = random(300, 256, 3), random(300, 256, 3)[::-1].copy()
    sheet = np.asarray(comparison(prediction, truth, ""))[-300:]
    for number, image in enumerate([to_image(truth), to_image(prediction), error_map(prediction, truth)]):
        left = number * (256 + 4)
        assert np.array_equal(sheet[:, left : left + 256], np.asarray(image))


def test_the_first_of_more_than_four_channels_is_shown() -> None:
    truth, prediction = random(64, 64, 6), random(64, 64, 6)[::-1].copy()
    sheet = np.asarray(comparison(prediction, truth, ""))
    same_values = np.asarray(comparison(prediction[..., :1], truth[..., :1], ""))
    assert np.array_equal(sheet[-256:, :520], same_values[-256:, :520])
    assert not np.array_equal(sheet[:30, :256], same_values[:30, :256])  # "channel 1 of 6"
    error = np.asarray(error_map(prediction, truth).resize((256, 256), 0))
    assert np.array_equal(sheet[-256:, 520:], error)  # of all channels


def test_frames_are_below_one_another() -> None:
    truth, prediction = random(2, 256, 200, 3), random(2, 256, 200, 3)[:, ::-1].copy()
    sheet = np.asarray(comparison_frames(prediction, truth, "reconstruction", [3, 8], 9))
    height = len(sheet) // 2 - 2
    assert sheet.shape[1:] == (3 * 200 + 8, 3)
    for number, title in enumerate(["ground truth, 4 of 9", "ground truth, 9 of 9"]):
        expected = comparison(prediction[number], truth[number], "reconstruction", title)
        assert np.array_equal(sheet[number * (height + 4) :][:height], np.asarray(expected))


def test_a_comparison_shows_what_was_trained_on_and_interpolation() -> None:
    truth, prediction, other = random(256, 300, 3), random(256, 300, 3), random(256, 300, 3)
    trained = np.zeros((256, 300), dtype=bool)
    trained[::2, ::2] = True
    sheet = np.asarray(comparison(prediction, truth, "", trained=trained, interpolation=("bicubic", other)))[-256:]
    panels = [sheet[:, start : start + 300] for start in range(0, sheet.shape[1], 304)]
    assert len(panels) == 5
    expected = [np.where(trained[..., None], truth, 0), truth, prediction, other]
    for panel, values in zip(panels, expected, strict=False):
        assert np.abs(panel - 255.0 * values).max() <= 0.51
    cube = comparison_frames(truth[None], truth[None], "", [2], 3, trained[None], ("bicubic", other[None]))
    assert (np.asarray(cube)[-256:, 3 * 304 : 3 * 304 + 300] == panels[3]).all()


def test_the_plot_of_a_choice_marks_the_chosen_ridge_and_width(tmp_path: Path) -> None:
    choice = {"curve": [(1e-3, 20.0), (1e-2, 21.0), (1e-1, 20.5)], "factors": [(0.5, 19.0), (1.0, 20.0), (2.0, 21.0)]}

    def orange(ridge: float, factor: float) -> np.ndarray:
        path = plot_choice(tmp_path / "choice.png", choice | {"ridge": ridge, "factor": factor})
        pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)[60:200]  # without the legends' place
        return np.nonzero((np.abs(pixels - ORANGE).max(-1) < 40).all(0))[0]

    narrow, wide = orange(1e-2, 0.5), orange(1e-2, 2.0)
    assert narrow[0] == wide[0], "the ridge"
    assert narrow[-1] < wide[-1], "the width"


# -- rows -------------------------------------------------------------------------------------------------------------

ORANGE, BLUE, BLACK = (255, 127, 14), (31, 119, 180), (0, 0, 0)


def amount(image: object, colour: tuple[int, int, int]) -> int:
    """How many pixels have about this colour."""
    return int((np.abs(np.asarray(image).astype(int) - colour).max(-1) < 40).sum())


def wave(count: int, channels: int = 1) -> np.ndarray:
    values = 0.5 + 0.4 * np.sin(np.arange(count * channels).reshape(channels, count).T / 9)
    return values.astype(np.float32)


def test_a_row_shows_truth_reconstruction_and_trained_samples() -> None:
    truth = wave(100)
    image = row_plot(truth * 0.7, truth, np.arange(100) < 25, "reconstruction")
    assert min(amount(image, colour) for colour in (ORANGE, BLUE, BLACK)) > 200
    columns = np.nonzero((np.abs(np.asarray(image).astype(int)[:230] - BLUE).max(-1) < 40).any(0))[0]  # above the legend
    assert 0 < columns.max() < image.width * 0.4, "trained samples are where they are"
    fewer = row_plot(truth * 0.7, truth, None, "reconstruction")
    assert amount(fewer, BLUE) == 0
    hidden = row_plot(np.full_like(truth, np.nan), truth, None, "reconstruction")
    assert amount(hidden, ORANGE) < amount(fewer, ORANGE) / 5  # the legend's


def test_a_long_row_shows_the_whole_and_its_middle() -> None:
    short, long = wave(DETAIL_SAMPLES), wave(DETAIL_SAMPLES * 50 + 7)
    ends = np.zeros(len(long), dtype=bool)
    ends[:DETAIL_SAMPLES] = True
    middle = np.roll(ends, len(long) // 2)
    image = row_plot(long, long, ends, "")
    assert image.width == 2 * row_plot(short, short, None, "").width
    legend = amount(image, BLUE)  # what is trained at an end is not in the middle
    assert amount(row_plot(long, long, middle, ""), BLUE) > 10 * max(legend, 1)


@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38])
def test_predictions_that_diverged_have_pictures(value: float) -> None:
    prediction = wave(5000 if value == 3e38 else 50)
    truth = prediction.copy()
    prediction[len(truth) // 2] = value
    assert row_plot(prediction, truth, None, "").height > 100
    assert comparison(np.full((4, 4, 3), value, dtype=np.float32), random(4, 4, 3), "reconstruction").mode == "RGB"
