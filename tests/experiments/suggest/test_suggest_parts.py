"""The windows that encoders are judged on, what is tried, and the order of it."""

import time

import h5py
import numpy as np
import pytest
import torch

from pe_lightning import encoders
from pe_lightning.baselines import interpolate
from pe_lightning.data import TensorDataModule, VideoDataModule
from pe_lightning.data.splits import GridSplit
from pe_lightning.encoders import Encoder, Gaussian
from pe_lightning.errors import InputError
from pe_lightning.experiments.suggest import attempts, candidates, parts
from pe_lightning.experiments.suggest.attempts import Interpolation, attempt
from pe_lightning.experiments.suggest.candidates import Candidate, make_candidates
from pe_lightning.experiments.suggest.search import search
from pe_lightning.metrics import SignalPSNR

CPU = torch.device("cpu")


def smooth(*sizes: int, signals: int = 1) -> torch.Tensor:
    """Signals of a few waves, in [0, 1]."""
    axes = torch.meshgrid(*(torch.arange(n) / n for n in sizes), indexing="ij")
    values = [sum(torch.sin((3 + s + a) * x) for a, x in enumerate(axes)) / len(axes) for s in range(signals)]
    return torch.stack(values)[..., None].double().float() / 2 + 0.5


@pytest.mark.parametrize("stride", [2, 3])
def test_windows_of_a_grid_have_its_trained_and_held_out_samples(stride):
    """Values that are their own position say where a window comes from."""
    grid = (301, 400)
    position = torch.arange(301 * 400).reshape(1, *grid, 1) / (301 * 400)
    data = TensorDataModule(position.float(), sampling={"name": "grid", "stride": stride})
    data.prepare_data()
    part = parts.make_windows(data)
    assert part.info.num_signals == {2: 3, 3: 2}[stride]
    assert isinstance(part.dataset.split, GridSplit)
    trained, expected = part.dataset.split.train_mask(), data.split.train_mask()[0]
    seen = torch.zeros(grid, dtype=torch.long)
    for window, scored in zip(part.dataset.values, part.scored, strict=True):
        index = (window[..., 0].double() * 301 * 400).round().long()
        rows, columns = index // 400, index % 400
        assert torch.equal(trained[0], expected[rows, columns])
        assert not (scored & trained[0]).any()
        seen[rows, columns] += 1
        last = torch.tensor(scored.shape) - 1
        for axis in (0, 1):
            beyond = int(part.dataset.split.index[axis][-1]) + 1
            assert not scored.narrow(axis, beyond, int(last[axis]) + 1 - beyond).any(), "no border that the signal has not"
    assert int(seen.max()) == 1, "windows do not overlap"


def test_windows_of_scattered_samples_never_train_on_what_is_held_out():
    data = TensorDataModule(smooth(300, 300, signals=3), sampling={"name": "random", "fraction": 0.2, "seed": 1})
    data.prepare_data()
    part = parts.make_windows(data)
    trained = part.dataset.split.train_mask()
    assert part.info.num_signals == 3
    assert not (trained & part.scored).any()
    share = trained.float().mean()
    assert 0.15 < share <= 0.2 + 0.01
    assert part.spread[0] == pytest.approx(part.info.grid[0] * 0.2**0.5, rel=0.1)


def test_small_signals_are_taken_whole():
    data = TensorDataModule(smooth(64, 64))
    data.prepare_data()
    assert parts.make_windows(data) is None
    assert parts.whole(data).spread == (32, 32)


def test_one_window_of_an_axis_that_is_short(monkeypatch):
    data = TensorDataModule(smooth(20, 9000))
    data.prepare_data()
    part = parts.make_windows(data)
    assert part.info.grid[0] == 20
    assert part.info.grid[1] < 9000


def test_signals_that_stay_in_their_file(tmp_path):
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["v"] = np.asarray(smooth(60, 120, 130)[0, ..., 0])
    data = VideoDataModule(str(tmp_path / "v.h5"), in_memory=False, batch="blocks")
    data.prepare_data()
    assert parts.whole(data) is None
    part = parts.make_windows(data)
    assert isinstance(part.dataset.values, torch.Tensor)
    assert attempt(part, Candidate("gau", 1.0, width="sigma"), CPU).mean > 30
    scattered = VideoDataModule(str(tmp_path / "v.h5"), in_memory=False, batch="points", sampling="random")
    scattered.prepare_data()
    with pytest.raises(InputError, match="in_memory true"):
        parts.make_windows(scattered)


def test_every_registered_encoder_is_a_candidate_or_skipped_with_a_reason():
    found, skipped = make_candidates((), ())
    assert {c.name for c in found} | {s.label for s in skipped} == set(encoders.names())
    gaussian = [c for c in found if c.name == "gau"]
    assert [(c.share, c.padding, c.width) for c in gaussian] == [(1.0, 0, "sigma"), (0.5, 0, "sigma"), (1.0, 1, "sigma")]
    assert {c.local for c in gaussian} == {True}
    assert not any(c.local for c in found if c.name in ("rff", "linf", "noise"))
    first = found[: len({c.name for c in found})]
    assert len({c.name for c in first}) == len(first), "every encoder once before any twice"
    assert [c.count for c in make_candidates(("gau",), (8, 12))[0]] == [8, 12]


@pytest.fixture
def more_encoders(monkeypatch):
    """Encoders that no solver takes."""

    class Learned(Gaussian):
        def __init__(self, num_features: int = 8) -> None:
            super().__init__(num_features)
            self.shift = torch.nn.Parameter(torch.zeros(1))

    class Demanding(Gaussian):
        def __init__(self, table: str, num_features: int = 8) -> None:
            super().__init__(num_features)

    class Breaking(Encoder):
        def __init__(self, num_features: int = 8) -> None:
            super().__init__(num_features)

        def forward(self, x):
            raise RuntimeError("no kernel")

    classes = dict(encoders.registry._classes)
    monkeypatch.setattr(encoders.registry, "_classes", classes)
    for name, cls in (("learned", Learned), ("demanding", Demanding), ("breaking", Breaking)):
        encoders.registry.register(name)(cls)


def small_search(names, counts=(), seconds=60.0):
    data = TensorDataModule(smooth(32, 32))
    data.prepare_data()
    whole = parts.whole(data)
    made, skipped = make_candidates(names, counts)
    found = search(made, whole, None, time.perf_counter() + seconds, CPU, lambda text: None)
    found.skipped[:0] = skipped
    return found


def test_what_the_solvers_cannot_take_is_skipped_with_the_reason(more_encoders):
    found = small_search(("learned", "demanding", "breaking", "gau"), (8,))
    reasons = {entry.label: entry.reason for entry in found.skipped}
    assert "its features are learned" in reasons["learned"]
    assert "needs a value for 'table'" in reasons["demanding"]
    assert reasons["breaking, K = 8"] == "failed: RuntimeError: no kernel"
    assert [row.what.name for row in found.encoders()] == ["gau"]


def test_features_for_which_there_is_no_memory_are_skipped():
    found = small_search(("rff", "gau"), (16, 1 << 20))
    assert {row.what.count for row in found.encoders()} == {16}
    assert {entry.label for entry in found.skipped} == {"rff, K = 1048576", "gau, K = 1048576"}
    assert all("GB of memory" in entry.reason for entry in found.skipped)


def test_rows_are_ranked_with_interpolation_among_them_and_scored_as_it_scores():
    found = small_search(("gau", "noise"))
    scores = [row.best.mean for row in found.rows]
    assert scores == sorted(scores, reverse=True)
    assert found.rows[-1].what.name == "noise"
    data = TensorDataModule(smooth(32, 32))
    for row in found.rows:
        if isinstance(row.what, Interpolation):
            metric = SignalPSNR(1)
            truth = data.evaluation_batch()
            metric.update(interpolate(row.what.name, data.train_batch(), truth.axes), truth.values, truth.mask)
            assert row.best.mean == pytest.approx(float(metric.per_signal()))


def test_without_time_the_rest_is_listed():
    found = small_search((), seconds=-1.0)
    assert not found.rows
    assert {entry.reason for entry in found.skipped} == {"no time left; give a larger --budget"}
    assert len(found.skipped) > 20


def test_large_signals_are_screened_and_the_best_confirmed_on_all_samples():
    data = TensorDataModule(smooth(400, 300))
    data.prepare_data()
    whole, windows = parts.whole(data), parts.make_windows(data)
    made, _ = make_candidates(("gau", "bspline", "noise"), ())
    found = search(made, whole, windows, time.perf_counter() + 60, CPU, lambda text: None)
    rows = {row.what.label(whole): row for row in found.encoders()}
    assert found.encoders()[0].whole is not None
    assert rows["noise, K = 200x150"].whole is None, "too far behind"
    assert all(row.windows is not None for row in found.rows)
    assert all(row.whole is not None for row in found.rows if isinstance(row.what, Interpolation))


def test_a_slow_screening_is_not_taken_for_a_fast_confirmation(monkeypatch):
    """A kind of attempt whose time is known from the windows is not begun when it cannot end in time."""
    data = TensorDataModule(smooth(400, 300))
    data.prepare_data()
    whole, windows = parts.whole(data), parts.make_windows(data)
    clock = [0.0]
    monkeypatch.setattr("pe_lightning.experiments.suggest.search.time.perf_counter", lambda: clock[0])

    def slow(part, what, device):
        seconds = attempts.cost(part, what) / attempts.cost(windows, what)
        clock[0] += seconds
        return attempts.Score((20.0,), seconds)

    monkeypatch.setattr("pe_lightning.experiments.suggest.search.attempt", slow)
    found = search(make_candidates(("gau",), ())[0], whole, windows, 30.0, CPU, lambda text: None)
    assert clock[0] <= 30.0
    assert any(row.whole is not None for row in found.encoders())


def test_solver_warnings_become_notes():
    data = TensorDataModule(smooth(64, 64))
    data.prepare_data()
    score = attempt(parts.whole(data), Candidate("sine", 1.0), CPU)
    assert score.notes == ("low rank",)


def test_many_features_are_capped_unless_they_are_local():
    data = TensorDataModule(smooth(8192))
    data.prepare_data()
    part = parts.whole(data)
    assert Candidate("rff", 1.0).features(part) == (candidates.MOST_DENSE,)
    assert Candidate("bspline", 1.0, local=True).features(part) == (4096,)
    assert Candidate("gau", 0.5).label(part) == "gau, K = 1024"
    assert Candidate("basic").features(part) == (None,)


def test_a_number_of_features_is_that_of_the_whole_signals_and_less_on_windows():
    data = TensorDataModule(smooth(512, 256))
    data.prepare_data()
    whole, windows = parts.whole(data), parts.make_windows(data)
    assert (whole.spread, windows.spread, windows.full_spread) == ((256, 128), (64, 64), (256, 128))
    candidate = Candidate("gau", count=64)
    assert candidate.features(whole) == candidate.features(windows, full=True) == (64, 64)
    assert candidate.features(windows) == (16, 32), "as many per sample"
    assert candidate.label(windows) == "gau, K = 64"
    assert candidate.describe(windows, full=True) == {"name": "gau", "num_features": 64}
    assert Candidate("gau", 1.0).label(windows) == "gau, K = 256x128"
