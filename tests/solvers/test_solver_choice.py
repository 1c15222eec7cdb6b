"""Width, padding, features and ridge chosen by held-out samples: on grids, at points, and encoders of coarser grids."""

import json
import math
from functools import reduce

import pytest
import skimage.data
import torch
from draws import coordinates

from pe_lightning import encoders
from pe_lightning.encoders import Encoder, widened
from pe_lightning.encoders.resolution import shrunk
from pe_lightning.errors import InputError
from pe_lightning.solvers import ChoiceWarning, choose_grid, choose_points, solve_grid, solve_points
from pe_lightning.solvers.held_out import grid_windows, thinned_grid
from pe_lightning.solvers.leave_one_out import Evidence, LeaveOneOut
from pe_lightning.solvers.scorers import MAX_ROUNDING_DB, GridScorer
from pe_lightning.solvers.search import Candidate, Search, Space, tied, tunable


def picture(n, noise=0.0):
    """A smooth surface with an edge, (1, n, n, 1)."""
    x = coordinates(n)
    surface = 0.5 + 0.2 * torch.sin(9 * x)[:, None] * torch.cos(7 * x) + 0.2 * ((x[:, None] + x) > 0.9)
    return (surface + noise * torch.randn(n, n, generator=torch.Generator().manual_seed(0)))[None, ..., None].float()


def score(solution, whole, n):
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[::2, ::2] = False
    error = (solution.predict([coordinates(n)] * 2) - whole)[:, mask]
    return -10 * math.log10(error.square().mean())


@pytest.mark.parametrize("name", ["logf", "rff", "tri", "gau", "keys"])
def test_automatic_ridge_is_near_the_best(name):
    whole = picture(128)
    train, axes, encoder = whole[:, ::2, ::2], [coordinates(128)[::2]] * 2, {"name": name, "num_features": 64}
    chosen = solve_grid(train, encoder, axes)
    fixed = [score(solve_grid(train, encoder, axes, ridge=10.0**k), whole, 128) for k in range(-8, 1)]
    assert score(chosen, whole, 128) > max(fixed) - (1.0 if name == "rff" else 0.5)  # rff: drawn anew for the thinned grid
    assert chosen.choice.rule == "held-out"
    ridges = [ridge for ridge, _ in chosen.choice.curve]
    assert ridges == sorted(ridges)
    assert ridges[0] <= chosen.ridge <= ridges[-1]
    assert json.loads(json.dumps(chosen.choice.report()))["ridge"] == chosen.ridge


def test_axes_of_one_encoder_with_other_coordinates_are_scored_by_their_own_features():
    """A grid that starts at another sample on each axis: a ridge that follows the features of one axis made 3.5 dB of 20."""
    x, whole = coordinates(64), picture(64)
    axes, train = [x[::2], x[1::2]], whole[:, ::2, 1::2]
    one, other = (encoders.create("tri", num_features=32) for _ in range(2))
    together, alone = (choose_grid(train, axes, [one, entry]) for entry in (one, other))
    assert together.ridge == pytest.approx(alone.ridge)


def test_automatic_sigma_finds_its_way_back():
    whole = picture(128)
    train, axes = whole[:, ::2, ::2], [coordinates(128)[::2]] * 2
    for name, argument, bad in [("gau", "sigma", 0.1), ("tri", "half_width", 0.004), ("rff", "sigma", 200.0)]:
        encoder = {"name": name, "num_features": 64, argument: bad}
        given = solve_grid(train, encoder, axes)
        chosen = solve_grid(train, encoder, axes, sigma="auto")
        assert score(chosen, whole, 128) > score(given, whole, 128) + 1
        default = getattr(encoders.create(name, num_features=64), argument)
        assert 0.49 < getattr(chosen.encoders[0], argument) / default < 2.01
        assert chosen.encoders[0] is chosen.encoders[1]
        assert chosen.choice.factor in dict(chosen.choice.factors)
        assert chosen.choice.report()["value"] == [getattr(chosen.encoders[0], argument)] * 2


def test_small_signals_fall_back_on_a_rule_and_what_cannot_be_chosen_is_refused():
    values, axes = torch.rand(1, 7, 6, 1), [coordinates(7), coordinates(6)]
    choice = choose_grid(values, axes, [encoders.create("gau", num_features=6)] * 2)
    assert (choice.rule, choice.ridge, choice.curve) == ("fallback", 0.1, ())
    assert choose_grid(values, axes, [encoders.create("keys", num_features=6)] * 2).ridge == 1e-3
    # a short axis beside a long one is kept whole
    values, axes = torch.rand(1, 5, 40, 1), [coordinates(5), coordinates(40)]
    choice = choose_grid(values, axes, [encoders.create("gau", num_features=n) for n in (5, 40)])
    assert choice.rule == "held-out"
    with pytest.warns(ChoiceWarning, match="relative ridge 0.1"):
        solution = solve_points(torch.rand(1, 30, 1), {"name": "gau", "num_features": 8}, coords=torch.rand(30, 2))
    assert (solution.ridge, solution.choice.rule, solution.choice.curve) == (0.1, "fallback", ())
    keys = torch.rand(1, 16, 1), [coordinates(16)], [encoders.create("keys", num_features=8)]
    with pytest.raises(InputError, match="keys has no width to choose"):
        choose_grid(*keys, sigma="auto")
    with pytest.raises(InputError, match="ridge must be a number >= 0 or 'auto'"):
        choose_grid(*keys, ridge=-1.0)


def test_large_grids_are_looked_at_through_windows(monkeypatch):
    whole = picture(160)
    encoder = [encoders.create("gau", num_features=160)] * 2
    exact = choose_grid(whole, [coordinates(160)] * 2, encoder)
    monkeypatch.setattr("pe_lightning.solvers.held_out.GRID_WINDOW_SAMPLES", {2: 64})
    windowed = choose_grid(whole, [coordinates(160)] * 2, encoder)
    assert windowed.curve != exact.curve
    assert abs(math.log10(windowed.ridge / exact.ridge)) < 1
    part = choose_grid(whole[:, 40:104, 40:104], [coordinates(160)[40:104]] * 2, encoder, full_size=(160, 160))
    assert abs(math.log10(part.ridge / exact.ridge)) < 1.5


def dense_scores(grid, encoders, ridges):
    """Held-out PSNR by the Kronecker product of the features, formed, in float64."""
    features = [shrunk(encoder, stride)(x) for encoder, stride, x in zip(encoders, grid.strides, grid.coords, strict=True)]
    whole, fitted = reduce(torch.kron, features), grid.fitted.flatten() > 0
    left, s, right = torch.linalg.svd(whole[fitted], full_matrices=False)
    values = grid.values.double().flatten(3)
    target = values - values[..., fitted].mean(-1, keepdim=True)
    unit, scores = whole[fitted].square().sum(1).mean(), []
    for ridge in ridges:
        response = torch.where(s > 1e-13 * s[0] if ridge else s > 1e-6 * s[0], s / (s.square() + ridge * unit), 0.0)
        error = target - (target[..., fitted] @ left * response) @ right @ whole.T
        error = (error.square() * grid.weight.flatten()).transpose(0, 1).flatten(1).sum(1)
        count = grid.weight.sum() * values.shape[0] * values.shape[2]
        scores.append(float((-10 * torch.log10(error / count)).mean()))
    return scores


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("noise", [0.1, 1e-3, 0.0])
@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ((20, 17), ("gau", "tri")),
        ((16, 16), ("rff", "rff")),
        ((5, 24), ("gau", "logf")),  # the first axis is kept whole; singular values of 1e-15
        ((24, 12), ("sine", "gau")),  # two columns do not depend on the others
        ((64,), ("linf",)),  # 69 dB without noise: 0.2 dB of rounding in float32
        ((40,), ("keys",)),
        ((12, 12), ("vanishing", "gau")),
        ((10, 8, 9), ("gau", "linf", "laplace")),
    ],
)
def test_scores_are_those_of_predictions_at_held_out_samples(sizes, names, noise, dtype):
    class Vanishing(Encoder):
        def forward(self, x):
            return torch.zeros(*x.shape, self.num_features, dtype=x.dtype)

    made = [
        Vanishing(8) if name == "vanishing" else encoders.create(name, num_features=max(8, n // 2 * 2))
        for name, n in zip(names, sizes, strict=True)
    ]
    x = torch.stack(torch.meshgrid(*map(coordinates, sizes), indexing="ij"), -1)
    smooth = torch.stack([0.5 + 0.3 * torch.sin((k + 1) * x.sum(-1) + k) for k in range(4)])
    values = smooth + noise * torch.randn(smooth.shape, generator=torch.Generator().manual_seed(0))
    values = values.reshape(2, 2, *sizes).movedim(1, -1).to(dtype)
    grid = thinned_grid(values, [coordinates(n) for n in sizes], sizes)
    ridges = [1e-6, 1e-2, 1.0]
    scorer = GridScorer(grid, made)
    assert scorer(ridges) == pytest.approx(dense_scores(grid, made, ridges), abs=MAX_ROUNDING_DB)
    if noise == 0.1:
        assert scorer.projections.fitted.dtype == dtype, "the precision of the data is enough"
    scaled = GridScorer(grid._replace(values=values.movedim(-1, 1)[None] * 2.0**-90), made)(ridges)
    assert scaled == pytest.approx([score + 20 * math.log10(2.0**90) for score in scorer(ridges)], abs=1e-9)


@pytest.mark.parametrize(
    ("name", "arguments", "changed"),
    [
        ("gau", {"sigma": 0.01}, {"sigma": 0.02}),
        ("tri", {"half_width": 0.01, "padding": 2}, {"half_width": 0.02}),
        ("rff", {"sigma": 8.0}, {"sigma": 4.0}),
        ("logf", {"sigma": 4.0}, {"sigma": 3.0}),
        ("keys", {}, {}),
    ],
)
def test_features_shrink_with_the_grid(name, arguments, changed):
    encoder = encoders.create(name, num_features=40, **arguments)
    small = shrunk(encoder, 2.0)
    resolved = small.resolved()
    spacing = {"spacing": 1 / 20} if "spacing" in resolved else {}
    assert resolved == {**encoder.resolved(), "num_features": 20, **spacing, **changed}
    if encoder.width is not None:  # widths follow the coarser of samples and shifts
        argument, rule = encoder.width.argument, encoder.width.rule
        assert widened(encoder, 20, 1.0).resolved()[argument] == pytest.approx(rule(20))
        assert widened(encoder, 256, 1.0).resolved()[argument] == pytest.approx(rule(40))


def test_ties_have_a_least_and_a_largest_ridge():
    assert tied([(1e-3, 10.0), (1e-2, 10.02), (1e-1, 10.03)]) == {"least": 1e-3, "largest": 1e-1}
    assert tied([(1e-4, 9.95), (1e-2, 10.05), (1.0, 9.0)]) == pytest.approx({"least": 1e-3, "largest": 1e-2})


def test_encoders_that_declare_nothing_or_are_learned_see_their_coordinates_closer_together():
    class Chirp(Encoder):
        def __init__(self, num_features: int = 8, rate: float = 3.0) -> None:
            super().__init__(num_features)
            self.rate = rate

        def forward(self, x):
            return torch.cos(self.rate * x[..., None] * torch.arange(self.num_features, dtype=x.dtype))

    encoder = Chirp()
    torch.testing.assert_close(shrunk(encoder, 4.0)(coordinates(12)), encoder(coordinates(12) / 4))
    assert tunable(encoder) is None
    assert widened(encoder, 10, 2.0) is encoder
    learned = encoders.create("rff", num_features=16)
    frequencies = 1.5 * learned.frequencies
    del learned.frequencies
    learned.frequencies = torch.nn.Parameter(frequencies)
    torch.testing.assert_close(shrunk(learned, 2.0)(coordinates(12)), learned(coordinates(12) / 2))


# -- scattered points -------------------------------------------------------------------------------------------------


def scattered(noise=0.02, size=64):
    """A smooth signal, a random third of whose samples are trained on."""
    generator = torch.Generator().manual_seed(0)
    axes = [coordinates(size).float()] * 2
    x, y = torch.meshgrid(*axes, indexing="ij")
    values = (0.5 + 0.3 * torch.sin(7 * x) * torch.cos(5 * y) + 0.2 * torch.sin(11 * x * y))[None, ..., None]
    values = values + noise * torch.randn(values.shape, generator=generator)
    return values, torch.rand(1, size, size, generator=generator) < 0.33, axes


def off_the_mask(values, mask, axes, encoder, ridge):
    prediction = solve_points(values, encoder, axes=axes, mask=mask, ridge=ridge, iterations=200).predict(axes)
    return -10 * math.log10((prediction - values)[~mask].square().mean().item())


@pytest.mark.parametrize("name", ["gau", "linf"])
@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_the_ridge_chosen_at_points_is_near_the_best(name, noise):
    values, mask, axes = scattered(noise)
    encoder = encoders.create(name, num_features=24)
    chosen = solve_points(values, encoder, axes=axes, mask=mask, iterations=200)
    scores = [off_the_mask(values, mask, axes, encoder, 10.0**k) for k in range(-7, 1)]
    assert chosen.ridge == chosen.choice.ridge
    assert off_the_mask(values, mask, axes, encoder, chosen.ridge) > max(scores) - 0.6


def test_a_width_far_off_is_corrected_at_points():
    values, mask, axes = scattered()
    for name, argument, bad in [("gau", "sigma", 0.2 / 24), ("linf", "sigma", 6.0)]:
        made = [encoders.create(name, num_features=24, **{argument: bad})] * 2
        before = solve_points(values, made, axes=axes, mask=mask)
        after = solve_points(values, made, axes=axes, mask=mask, sigma="auto")
        assert after.encoders[0] is after.encoders[1]
        assert off_the_mask(values, mask, axes, after.encoders, after.ridge) > 1 + off_the_mask(
            values, mask, axes, made, before.ridge
        )
        report = after.report().choice
        assert json.loads(json.dumps(report)) == report
        assert report["value"] == [getattr(after.encoders[0], argument)] * 2
        assert {row["width"][argument] for row in report["tried"]} >= set(report["value"])
        assert max(after.choice.factors, key=lambda point: point[1])[1] <= max(row["psnr"] for row in report["tried"])


def test_a_given_ridge_is_kept_and_axes_without_a_width_keep_their_encoder():
    values, mask, axes = scattered()
    made = [encoders.create("gau", num_features=24), encoders.create("keys", num_features=24)]
    choice = choose_points(values, made, axes=axes, mask=mask, ridge=0.01, sigma="auto")
    assert {row["ridge"] for row in choice.tried} == {0.01}
    assert choice.ridge == 0.01
    assert choice.encoders[1] is made[1]


def test_the_choice_does_not_depend_on_how_points_are_given():
    values, mask, axes = scattered()
    coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)[mask[0]]
    at_points, encoder = values[:, mask[0]], {"name": "gau", "num_features": 16}
    by_mask = choose_points(values, encoder, axes=axes, mask=mask)
    by_coords = choose_points(at_points, encoder, coords=coords)
    by_index = choose_points(at_points, encoder, axes=axes, index=mask[0].flatten().nonzero().T)
    for other in (by_coords, by_index):
        for (_, score), (_, expected) in zip(other.curve, by_mask.curve, strict=True):
            assert score == pytest.approx(expected, abs=0.05)


def test_a_row_that_is_rough_in_places_gets_a_ridge_for_them():
    """Windows are scored together: in most of them next to nothing happens, and any ridge is good."""
    x = torch.arange(1 << 14, dtype=torch.float64) / (1 << 14)
    noise = torch.rand(1 << 14, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.5
    values = (0.5 + torch.where((x * 16) % 1 < 0.1, noise, 1e-4 * torch.sin(900 * x)))[None, :, None]
    mask = torch.rand(1, 1 << 14, generator=torch.Generator().manual_seed(1)) < 0.25
    assert choose_points(values, "gau", axes=[x], mask=mask).ridge > 1
    assert choose_grid(values[:, ::2], [x[::2]], [encoders.create("gau", num_features=1 << 13)]).ridge > 0.05


def test_a_drawn_frequency_that_vanishes_on_the_samples_gets_a_larger_ridge():
    picture = torch.from_numpy(skimage.data.camera()[::4, ::4] / 255)[None, ..., None].float()
    largest = encoders.create("rff", num_features=64, sigma=1.0, seed=1).frequencies.abs().max().item()
    encoder = encoders.create("rff", num_features=64, sigma=0.9999 * 32 / largest, seed=1)  # its sine is nearly zero
    x, fine = torch.arange(64) / 64, torch.arange(128) / 128

    def score(ridge: float | str) -> float:
        found = solve_grid(picture[:, ::2, ::2], [encoder] * 2, [x] * 2, ridge=ridge).predict([fine] * 2)
        return -10 * math.log10((found - picture)[:, 1::2, 1::2].square().mean().item())

    # 3 dB without a look at the noise
    assert score("auto") > max(score(10.0**power) for power in range(-8, 1)) - 1


def test_points_that_features_do_not_connect_get_the_usual_ridge():
    """Every ridge predicts points that are held out of one-hot features by the mean; the largest ridge made 8 dB of 17."""
    values, mask, axes = scattered()
    for name, rule in [("impulse", "fallback"), ("gau", "held-out")]:
        choice = choose_points(values, {"name": name, "num_features": 64}, axes=axes, mask=mask)
        assert choice.rule == rule
    assert choose_points(values, {"name": "impulse", "num_features": 64}, axes=axes, mask=mask).ridge == 0.1


# -- smooth signals, and samples left out one at a time -----------------------------------------------------------------


def wave(size, rate, phase=0.3):
    x = coordinates(size)
    return (0.5 + 0.25 * torch.sin(rate * x + phase)[:, None] * torch.cos(rate * x - 0.2))[None, ..., None]


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("sizes", "features"), [((9, 8), 7), ((6, 7), 12), ((20,), 12)])
def test_leave_one_out_scores_are_those_of_fits_without_each_sample(sizes, features, center):
    """With the mean of all samples, which is not fitted again; without missing samples, and with some that are ignored."""
    values = torch.rand(2, *sizes, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    known = torch.rand(2, *sizes, generator=torch.Generator().manual_seed(1)) > 0.1
    axes, made = [coordinates(n) for n in sizes], [encoders.create("gau", num_features=features)] * len(sizes)
    whole, ridges = reduce(torch.kron, [encoder(x) for encoder, x in zip(made, axes, strict=True)]), [1e-4, 1e-2, 1.0]
    for mask in (None, known):
        windows = grid_windows(values, axes, sizes, 64, 4, mask)
        weight = torch.ones(2, *sizes, dtype=torch.bool) if mask is None else mask
        expected = []
        for ridge in ridges:
            absolute, scores = ridge * whole.square().sum(1).mean(), []
            for signal, used in zip(values.flatten(1, -2), weight.flatten(1), strict=True):
                y = signal - signal[used].mean(0) * center
                errors = []
                for i in used.nonzero().flatten().tolist():
                    rest = torch.arange(len(y)) != i
                    gram = whole[rest] @ whole[rest].T + absolute * torch.eye(len(y) - 1, dtype=torch.float64)
                    errors.append(y[i] - whole[i] @ whole[rest].T @ torch.linalg.solve(gram, y[rest]))
                scores.append(-10 * torch.log10(torch.stack(errors).square().mean()))
            expected.append(float(torch.stack(scores).mean()))
        assert LeaveOneOut(windows, made, center)(ridges) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("sizes", "features"), [((9, 8), 7), ((6, 7), 12), ((20,), 12)])
def test_the_evidence_is_the_density_of_the_samples_with_the_best_variance(sizes, features):
    """Up to a constant and a factor: by the dense covariance of the samples, of fewer features and of more."""
    values = torch.rand(2, *sizes, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    axes, made = [coordinates(n) for n in sizes], [encoders.create("gau", num_features=features)] * len(sizes)
    whole, ridges = reduce(torch.kron, [encoder(x) for encoder, x in zip(made, axes, strict=True)]), [1e-3, 0.1, 1.0]
    expected = []
    for ridge in ridges:
        covariance = whole @ whole.T + ridge * whole.square().sum(1).mean() * torch.eye(len(whole), dtype=torch.float64)
        logarithms = []
        for signal in values.flatten(1, -2):
            y = signal - signal.mean(0)
            variance = (y * torch.linalg.solve(covariance, y)).mean()
            zeros = torch.zeros(len(y), dtype=torch.float64)
            normal = torch.distributions.MultivariateNormal(zeros, variance * covariance)
            logarithms.append(float(normal.log_prob(y.T).mean()) / len(y))
        expected.append(sum(logarithms) / 2 * 20 / math.log(10))
    found = Evidence(grid_windows(values, axes, sizes, 64, 4), made, True)(ridges)
    differences = [f - e for f, e in zip(found, expected, strict=True)]
    assert differences == pytest.approx([differences[0]] * 3, abs=1e-6)


@pytest.mark.parametrize(("size", "rate", "least"), [(20, 4, 58), (32, 5, 62), (48, 9, 62)])
def test_smooth_signals_get_wide_features_past_the_borders(size, rate, least):
    whole = wave(size, rate).float()
    chosen = solve_grid(whole[:, ::2, ::2], "gau", [coordinates(size)[::2]] * 2, sigma="auto")
    assert chosen.choice.rule == "evidence"
    assert chosen.choice.candidate.padding == 4
    assert chosen.choice.factor > 2
    assert score(chosen, whole, size) > least
    assert chosen.report().choice["num_features"] == [encoder.num_features for encoder in chosen.encoders]
    given = solve_grid(whole[:, ::2, ::2], {"name": "gau", "padding": 0}, [coordinates(size)[::2]] * 2, sigma="auto")
    assert given.choice.candidate.padding is None, "what is given is kept"


@pytest.mark.parametrize("name", ["gau", "linf"])
def test_a_tone_near_the_band_limit_is_not_judged_at_twice_the_spacing(name):
    """Every second sample of the trained ones is less than two per period, and predicts the others by their mean."""
    x = coordinates(1024)
    row = (0.5 + 0.3 * torch.sin(2 * math.pi * 170 * x + 0.4))[None, :, None]
    found = solve_grid(row[:, ::2], name, [x[::2]], sigma="auto")
    assert found.choice.rule in ("leave-one-out", "evidence")
    assert -10 * math.log10((found.predict([x]) - row)[:, 1:-64:2].square().mean()) > 40


def test_without_the_mean_the_choice_is_made_without_it():
    """Relative to a large mean every ridge looks too small."""
    x, generator = coordinates(128), torch.Generator().manual_seed(3)
    row = (10 + torch.randn(128, generator=generator).cumsum(0) / 8)[None, :, None].double() / 20
    encoder = encoders.create("gau", num_features=64)
    for center in (True, False):
        found = solve_grid(row[:, ::2], encoder, [x[::2]], center=center)
        error = [
            (solve_grid(row[:, ::2], encoder, [x[::2]], center=center, ridge=10.0**k).predict([x]) - row)[:, 1:-2:2]
            .square()
            .mean()
            for k in range(-8, 1)
        ]
        assert (found.predict([x]) - row)[:, 1:-2:2].square().mean() < 1.3 * min(error)


@pytest.mark.parametrize(("gain", "slope", "factor"), [(0.3, 0.0, 1.0), (0.6, 0.6, 4.0)])
def test_a_search_climbs_while_scores_rise_by_more_than_the_handicap(gain, slope, factor):
    """By so many dB an octave; ridges above the usual one have a handicap too, which ends at 0.75 dB in all."""
    gau = encoders.create("gau", num_features=8)
    made = {}

    def make(candidate):
        made[candidate] = (gau.copy(sigma=gau.sigma * candidate.factor),)
        return made[candidate]

    def scorer(made):
        wide = math.log2(made[0].sigma / gau.sigma)
        return lambda ridges, ahead=(): [20 + gain * wide + slope * math.log10(r / 10) for r in ridges]

    search = Search("grid", Space(make, widths=True), None, scorer)
    candidate, ridge = search.run()
    assert candidate == Candidate(factor=factor)
    assert (ridge > 1) == (factor > 1), "a limited handicap does not hide what is much better"
    assert search.handicap(Candidate(factor=2**-0.5), gau.fallback_ridge) == pytest.approx(0.25)
    assert search.handicap(candidate, 10.0) == 0.75
