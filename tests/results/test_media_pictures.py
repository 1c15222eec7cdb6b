"""Truth and prediction beside each other."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes

from pe_lightning.results.pictures import ERROR_FULL_SCALE, comparison, comparison_frames, error_map, row_plot, to_image
from pe_lightning.signals.axes import Axis
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.raw import ValueRange


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


def test_the_panels_are_truth_reconstruction_and_error() -> None:
    prediction, truth = random(300, 256, 3), random(300, 256, 3)[::-1].copy()
    sheet = np.asarray(comparison(prediction, truth, ""))[-300:]
    for number, image in enumerate([to_image(truth), to_image(prediction), error_map(prediction, truth)]):
        left = number * (256 + 4)
        assert np.array_equal(sheet[:, left : left + 256], np.asarray(image))


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


def test_the_ranges_of_a_long_row_are_where_the_truth_is_in_units_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A perfect fit is drawn on its truth, at the middles of the bins."""
    drawn: dict[str, list[Any]] = {"plot": [], "fill_between": []}
    for name, calls in drawn.items():
        original = getattr(Axes, name)
        monkeypatch.setattr(
            Axes, name, lambda self, *given, c=calls, o=original, **more: c.append((given, more)) or o(self, *given, **more)
        )
    truth, days = wave(5000), np.datetime64("2020-01-01") + np.arange(5000)
    axis = Axis("time", *(days[[0, -1]].astype("datetime64[s]").astype(float)), size=5000, time=True)
    info = SignalInfo(("row",), (5000,), 1, ValueRange("float32", (270.0,), (310.0,)), axes=(axis,))
    row_plot(truth, truth, None, "", info)
    ((x, low, high), options) = drawn["fill_between"][0]
    of_truth = drawn["plot"][0][0]
    assert np.array_equal(x, of_truth[0])
    assert np.array_equal(np.stack([low, high], 1), of_truth[1])
    assert "step" not in options
    assert x[:2].astype("datetime64[D]").tolist() == days[[10, 31]].tolist()
    assert (low.min(), high.max()) == pytest.approx((274, 306), abs=0.1)


@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38])
def test_predictions_that_diverged_have_pictures(value: float) -> None:
    prediction = wave(5000 if value == 3e38 else 50)
    truth = prediction.copy()
    prediction[len(truth) // 2] = value
    assert row_plot(prediction, truth, None, "").height > 100
    assert comparison(np.full((4, 4, 3), value, dtype=np.float32), random(4, 4, 3), "reconstruction").mode == "RGB"
