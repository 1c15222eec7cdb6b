"""``num_features: auto``: as many features as samples, where the samples are."""

import pytest
import torch
from draws import coordinates, numbers

from pe_lightning import encoders
from pe_lightning.encoders import per_axis, resolution, samples_per_unit, sized
from pe_lightning.errors import InputError
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.signals.batches import GridBatch
from pe_lightning.solvers import solve_grid, solve_points


@pytest.mark.parametrize("sizes", [(32, 24), (31, 23)])
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize(("name", "baseline"), [("tri", "linear"), ("keys", "bicubic")])
def test_kernels_interpolate_whatever_the_stride_and_size(sizes, stride, name, baseline):
    """Shifts lie on the samples: with them, linear and bicubic interpolation are exact fits, at the borders too."""
    values, axes = numbers(2, *sizes, 3), [coordinates(n) for n in sizes]
    seen, train = values[:, ::stride, ::stride], [x[::stride] for x in axes]
    solution = solve_grid(seen, name, train, ridge=0.0)
    expected = interpolate(baseline, GridBatch(tuple(train), seen), axes)
    found = solution.predict(axes)
    inside = (slice(None), slice(stride, -2 * stride), slice(stride, -2 * stride)) if name == "keys" else ...
    torch.testing.assert_close(found[inside], expected[inside], rtol=0, atol=1e-9)


def test_counts_follow_the_samples_of_each_axis():
    axes = [coordinates(64)[::2], coordinates(100)[::3], coordinates(20)]
    samples = [samples_per_unit(x) for x in axes]
    assert samples == [32, 100 / 3, 20]
    for name, counts in (("gau", [32, 34, 20]), ("rff", [32, 34, 20]), ("identity", [1, 1, 1])):
        made = sized(per_axis(name, 3), [1 / n for n in samples], samples)
        assert [encoder.num_features for encoder in made] == counts
    gaussians = sized(per_axis("gau", 3), [1 / n for n in samples], samples)
    assert [encoder.sigma for encoder in gaussians] == pytest.approx([0.64 / n for n in samples])
    assert [encoder.padding for encoder in gaussians] == ["edge"] * 3
    given = sized(per_axis({"name": "gau", "num_features": 50}, 3), [1 / n for n in samples], samples)
    assert [encoder.num_features for encoder in given] == [50] * 3
    # fewer samples than features: their distance is what a width follows
    assert [encoder.sigma for encoder in given] == pytest.approx([0.64 / n for n in samples])
    assert [encoder.padding for encoder in given] == [0] * 3


def test_given_arguments_are_preserved():
    encoder = {"name": "laplace", "num_features": 16, "scale": 0.3, "padding": 2}
    (made,) = sized(per_axis(encoder, 1), [1 / 8], [8.0])
    assert made.resolved() == encoders.resolve(encoder).resolved()


def test_features_are_bounded_by_memory_with_a_sentence(monkeypatch):
    with pytest.warns(UserWarning, match="uses 10x10 features for 20x20 samples.*set num_features for more"):
        made = sized(per_axis("gau", 2), [1 / 20] * 2, [20.0] * 2, channels=3, max_weights=300)
    assert made[0].num_features == 10
    monkeypatch.setattr(resolution, "MAX_DENSE_FEATURES", 8)
    with pytest.warns(UserWarning, match="uses 8 features for 20 samples"):
        assert sized(per_axis("rff", 1), [1 / 20], [20.0])[0].num_features == 8
    assert sized(per_axis("tri", 1), [1 / 20], [20.0])[0].num_features == 20, "features of small support are not dense"


def test_scattered_samples_get_the_features_of_their_grid():
    values, axes = numbers(1, 400, 1), [coordinates(40)] * 2
    index = torch.randperm(1600, generator=torch.Generator().manual_seed(0))[:400].sort().values
    solution = solve_points(values, "laplace", axes=axes, index=index, ridge=0.1)
    assert [encoder.num_features for encoder in solution.encoders] == [40, 40]
    assert solution.encoders[0].scale == pytest.approx(1.5 / 20), "a quarter of the samples is twice as far apart"
    kernels = solve_points(values, "keys", axes=axes, index=index, ridge=0.1)
    assert kernels.encoders[0].num_features == 20, "without a width, the shifts are as far apart as the samples"
    free = solve_points(values, "gau", coords=numbers(400, 2), ridge=0.1)
    assert free.encoders[0].num_features == 20


def test_width_is_a_name_for_every_width():
    assert encoders.create("tri", width=0.25).half_width == 0.25
    assert encoders.automatic(encoders.resolve({"name": "laplace", "width": "auto"})) == "scale"
    assert encoders.automatic(encoders.create("keys", width="auto")) is None
    assert encoders.create("gau").copy(width=0.5).sigma == 0.5
    with pytest.raises(InputError, match="encoder 'keys' has no width, got width"):
        encoders.create("keys", width=0.1)
