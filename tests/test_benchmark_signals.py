"""The synthetic signals of a published benchmark, which ``datasets/make_benchmark.py`` writes."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

spec = importlib.util.spec_from_file_location("make_benchmark", Path(__file__).parents[1] / "datasets/make_benchmark.py")
assert spec
assert spec.loader
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)


def test_noise_has_the_frequencies_of_its_level_alone():
    spectrum = np.abs(np.fft.fft2(made.noise((65, 65), 0.9, 0)))
    radius = np.hypot(*np.meshgrid(np.fft.fftfreq(65), np.fft.fftfreq(65), indexing="ij"))
    assert spectrum[radius > 0.7 / math.sqrt(2)].max() < 1e-3 < spectrum[radius < 0.48].min()
    assert np.ptp(made.noise((65, 65), 0.1, 0)) < 1e-6, "no wave is as long as the lowest band's"


@pytest.mark.parametrize("axes", [2, 3])
def test_balls_are_around_their_centres(axes):
    shape, level = (24,) * axes, 0.1
    volume = math.pi * 2.4**2 if axes == 2 else 4 / 3 * math.pi * 2.4**3
    centres = np.random.default_rng(3).random((int(0.1 * 24**axes / volume), axes)) * 24
    distance = np.linalg.norm(np.indices(shape)[..., None] - centres.T.reshape(axes, *[1] * axes, -1), axis=0)
    assert np.array_equal(made.balls(shape, level, 3), (distance <= 2.4).any(-1))


def test_triangles_and_star_have_their_areas():
    for level in (0.1, 0.3, 0.6):
        assert made.sierpinski(1000, level).mean() == pytest.approx(0.5 * 0.75 ** (10 * level - 1), rel=0.03)
    star = made.star(1000)
    assert star.mean() == pytest.approx(math.pi * 0.48**2 / 2, rel=0.01)
    around = star[
        500 + np.round(400 * np.sin(a := np.linspace(0, 2 * math.pi, 8001))).astype(int),
        500 + np.round(400 * np.cos(a)).astype(int),
    ]
    assert np.count_nonzero(np.diff(around)) == 80
