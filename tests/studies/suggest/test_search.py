"""Windows on which encoders are scored, the candidates, and their order."""

import math

import h5py
import numpy as np
import pytest
import torch

from pe_lightning import encoders
from pe_lightning.encoders import Encoder, Gaussian
from pe_lightning.errors import InputError
from pe_lightning.studies.suggest.report import print_result
from pe_lightning.studies.suggest.search import MAX_DENSE, EncoderCandidate, encoder_candidates, score, search
from pe_lightning.studies.suggest.windows import all_signals, make_windows
from pe_lightning.training import TensorDataModule, VideoDataModule

CPU = torch.device("cpu")


def smooth(*sizes: int, signals: int = 1) -> torch.Tensor:
    """Signals of a few waves, in [0, 1]."""
    axes = torch.meshgrid(*(torch.arange(n) / n for n in sizes), indexing="ij")
    values = [sum(torch.sin((3 + s + a) * x) for a, x in enumerate(axes)) / len(axes) for s in range(signals)]
    return torch.stack(values)[..., None].double().float() / 2 + 0.5


def loaded(data):
    data.prepare_data()
    return data


@pytest.mark.parametrize(("stride", "count"), [(2, 3), (3, 2)])
def test_windows_of_a_grid_have_its_trained_and_held_out_samples(stride, count):
    """Values that are their own position say where a window comes from."""
    grid = (301, 400)
    position = torch.arange(301 * 400).reshape(1, *grid, 1) / (301 * 400)
    data = loaded(TensorDataModule(position.float(), sampling={"name": "grid", "stride": stride}))
    windows = make_windows(data)
    assert windows.data.info.num_signals == count
    trained, expected = windows.data.dataset.split.train_mask(), data.split.train_mask()[0]
    seen = torch.zeros(grid, dtype=torch.long)
    scored = windows.data.dataset.evaluation_batch.mask[0]
    assert not (scored & trained[0]).any()
    for window in windows.data.dataset.values:
        index = (window[..., 0].double() * 301 * 400).round().long()
        assert torch.equal(trained[0], expected[index // 400, index % 400])
        seen[index // 400, index % 400] += 1
    for axis, positions in enumerate(windows.data.dataset.split.index):
        assert int(positions[-1]) + 1 == scored.shape[axis], "no border that the signal has not"
    assert int(seen.max()) == 1, "windows do not overlap"
    assert windows.data.dataset.train_batch.axes[0].tolist() == pytest.approx(
        [i / windows.sizes[0] for i in range(windows.sizes[0])]
    )


def test_windows_of_scattered_samples_never_train_on_what_is_held_out():
    sampling = {"name": "random", "fraction": 0.2, "seed": 1}
    windows = make_windows(loaded(TensorDataModule(smooth(300, 300, signals=3), sampling=sampling)))
    trained = windows.data.dataset.split.train_mask()
    assert windows.data.info.num_signals == 3
    assert not (trained & windows.data.dataset.evaluation_batch.mask).any()
    assert 0.15 < trained.float().mean() <= 0.2 + 0.01
    assert windows.sizes[0] == pytest.approx(windows.data.info.grid[0] * 0.2**0.5, rel=0.1)


def test_signals_that_stay_in_their_file(tmp_path):
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["v"] = np.asarray(smooth(60, 120, 130)[0, ..., 0])
    options = {"paths": str(tmp_path / "v.h5"), "storage": {"in_memory": False}}
    data = loaded(VideoDataModule(**options, batching={"kind": "blocks"}))
    assert all_signals(data) is None
    windows = make_windows(data)
    assert isinstance(windows.data.dataset.values, torch.Tensor)
    assert score(EncoderCandidate("gau", share=1.0, width="sigma"), windows, CPU).mean > 30
    scattered = loaded(VideoDataModule(**options, batching={"kind": "points"}, sampling="random"))
    with pytest.raises(InputError, match="in_memory true"):
        make_windows(scattered)


def test_features_follow_the_samples():
    """As many as trained samples and half as many, even, fewer on windows, and capped unless they are local."""
    row = all_signals(loaded(TensorDataModule(smooth(8192))))
    assert EncoderCandidate("rff", share=1.0).features(row) == (MAX_DENSE,)
    assert EncoderCandidate("bspline", share=1.0, local=True).features(row) == (4096,)
    assert EncoderCandidate("gau", share=0.5).label(row) == "gau, K = 1024"
    assert EncoderCandidate("basic").features(row) == (None,)
    data = loaded(TensorDataModule(smooth(512, 256)))
    whole, windows = all_signals(data), make_windows(data)
    assert (whole.sizes, windows.sizes, windows.auto_features()) == ((256, 128), (64, 64), [(64, 256), (64, 128)])
    candidate = EncoderCandidate("gau", count=64)
    assert candidate.features(whole) == candidate.features(windows, full=True) == (64, 64)
    assert candidate.features(windows) == (16, 32), "as many per sample"
    assert candidate.describe(windows, full=True) == {"name": "gau", "num_features": 64}
    assert EncoderCandidate("gau", share=1.0).label(windows) == "gau, K = 256x128"


def small_search(names, counts=(), deadline=math.inf):
    signals = all_signals(loaded(TensorDataModule(smooth(64, 64))))
    candidates, skipped = encoder_candidates(names, counts)
    result = search(candidates, signals, None, deadline, CPU, lambda text: None)
    result.skipped = {**skipped, **result.skipped}
    return result


def test_encoders_the_solvers_cannot_fit_are_skipped_with_the_reason(monkeypatch):
    class Learned(Gaussian):
        def __init__(self, num_features: int = 8) -> None:
            super().__init__(num_features)
            self.shift = torch.nn.Parameter(torch.zeros(1))

    class Breaking(Encoder):
        def __init__(self, num_features: int = 8) -> None:
            super().__init__(num_features)

        def forward(self, x):
            raise RuntimeError("no kernel")

    monkeypatch.setattr(encoders.registry, "_classes", dict(encoders.registry._classes))
    for name, cls in (("learned", Learned), ("breaking", Breaking)):
        encoders.registry.register(name)(cls)
    result = small_search(("learned", "breaking", "gau", "rff"), (8, 1 << 20))
    assert "its features are trained" in result.skipped["learned"]
    assert result.skipped["breaking, K = 8"] == "failed: RuntimeError: no kernel"
    assert {trial.candidate.label(result.shown) for trial in result.of(interpolation=False)} == {"gau, K = 8", "rff, K = 8"}
    assert "GB of memory" in result.skipped["gau, K = 1048576"]


def test_trials_are_ranked_with_interpolation_among_them():
    result = small_search(("gau", "sine", "noise"))
    scores = [trial.best.mean for trial in result.trials]
    assert scores == sorted(scores, reverse=True)
    assert len(result.of(interpolation=True)) == 4
    assert "low rank" in next(trial.best.notes for trial in result.of(interpolation=False) if trial.candidate.name == "sine")


def test_candidates_left_when_time_is_over_are_listed():
    result = small_search((), deadline=-math.inf)
    assert len(result.trials) == 1, "the first one is tried"
    assert len(result.skipped) > 20
    assert "no time left; give a larger --budget" in result.skipped.values()


def test_large_signals_are_screened_and_the_best_tried_on_all_samples():
    data = loaded(TensorDataModule(smooth(400, 300)))
    signals, windows = all_signals(data), make_windows(data)
    candidates, _ = encoder_candidates(("gau", "bspline", "noise"), ())
    result = search(candidates, signals, windows, math.inf, CPU, lambda text: None)
    trials = {trial.candidate.label(signals): trial for trial in result.of(interpolation=False)}
    assert result.of(interpolation=False)[0].whole is not None
    assert trials["noise, K = 200x150"].whole is None, "too far behind"
    assert all(trial.windows is not None for trial in result.trials)
    assert all(trial.whole is not None for trial in result.of(interpolation=True))


def test_scores_in_windows_are_shown_where_no_time_was_left_for_all_samples(capsys):
    data = loaded(TensorDataModule(smooth(400, 300)))
    candidates = encoder_candidates(("gau",), ())[0]
    result = search(candidates, all_signals(data), make_windows(data), -math.inf, CPU, lambda text: None)
    print_result(result)
    shown = capsys.readouterr().out
    assert "in windows" in shown
    assert f"{result.trials[0].best.mean:.2f}" in shown.partition("Scored on")[0]
    assert "also on all samples" not in shown


def test_signals_are_scored_by_their_own_metric(capsys):
    data = TensorDataModule((smooth(64, 64) > 0.5).float())
    data.source.metric = "iou"
    signals = all_signals(loaded(data))
    result = search(encoder_candidates(("gau",), (32,))[0], signals, None, math.inf, CPU, lambda text: None)
    assert all(0.5 < trial.best.mean <= 1 for trial in result.trials)
    print_result(result)
    shown = capsys.readouterr().out
    assert "(iou)" in shown
    assert "dB" not in shown
