"""The crop on which encoders are scored, the candidates, and their order."""

import math

import h5py
import numpy as np
import pytest
import torch

from pe_lightning import encoders
from pe_lightning.encoders import Encoder, Gaussian
from pe_lightning.encoders.arguments import PositiveInt
from pe_lightning.errors import InputError
from pe_lightning.studies.suggest.crop import scored_signals
from pe_lightning.studies.suggest.report import print_result
from pe_lightning.studies.suggest.search import MAX_DENSE, EncoderCandidate, encoder_candidates, score, search
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


@pytest.mark.parametrize("stride", [2, 3])
def test_a_crop_of_a_grid_has_its_trained_and_held_out_samples(stride):
    """Values that are their own position say where the crop comes from."""
    grid = (301, 400)
    position = torch.arange(301 * 400).reshape(1, *grid, 1) / (301 * 400)
    data = loaded(TensorDataModule(position.float(), sampling={"name": "grid", "stride": stride}))
    crop = scored_signals(data, 10_000)
    trained, expected = crop.data.split.train_mask(), data.signals.split.train_mask()[0]
    scored = crop.data.evaluation_batch().mask[0]
    assert 9_000 < scored.numel() <= 10_000
    assert not (scored & trained[0]).any()
    index = (crop.data.values[0, ..., 0].double() * 301 * 400).round().long()
    assert torch.equal(trained[0], expected[index // 400, index % 400])
    for axis, positions in enumerate(crop.data.split.index):
        assert int(positions[-1]) + 1 == scored.shape[axis], "no border that the signal has not"
    axis = crop.data.train_batch().axes[0].tolist()
    assert axis == pytest.approx([i / crop.sizes[0] for i in range(crop.sizes[0])])
    assert crop.crop == f"the central {'x'.join(map(str, scored.shape))} samples"
    whole = scored_signals(data)
    assert (whole.data, whole.crop) == (data.signals, "")


def test_a_crop_of_scattered_samples_never_trains_on_what_is_held_out():
    sampling = {"name": "random", "fraction": 0.2, "seed": 1}
    crop = scored_signals(loaded(TensorDataModule(smooth(300, 300, signals=5), sampling=sampling)), 40_000)
    trained = crop.data.split.train_mask()
    assert crop.data.info.num_signals == 4
    assert crop.crop.endswith("samples of 4 of 5 signals")
    assert not (trained & crop.data.evaluation_batch().mask).any()
    assert 0.15 < trained.float().mean() <= 0.2 + 0.01
    assert crop.sizes[0] == pytest.approx(crop.data.info.grid[0] * 0.2**0.5, rel=0.1)


def test_signals_that_stay_in_their_file(tmp_path):
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["v"] = np.asarray(smooth(60, 120, 130)[0, ..., 0])
    options = {"paths": str(tmp_path / "v.h5"), "storage": {"in_memory": False}}
    crop = scored_signals(loaded(VideoDataModule(**options)), 50_000)
    assert isinstance(crop.data.values, torch.Tensor)
    assert score(EncoderCandidate("gau", share=1.0, width="sigma"), crop, CPU).mean > 30
    scattered = loaded(VideoDataModule(**options, batching={"kind": "points"}, sampling="random"))
    with pytest.raises(InputError, match="in_memory true"):
        scored_signals(scattered)


def test_features_follow_the_samples():
    """As many as trained samples and half as many, even, fewer on a crop, and capped unless they are local."""
    row = scored_signals(loaded(TensorDataModule(smooth(8192))))
    assert EncoderCandidate("rff", share=1.0).features(row) == (MAX_DENSE,)
    assert EncoderCandidate("bspline", share=1.0, local=True).features(row) == (4096,)
    assert EncoderCandidate("gau", share=0.5).label(row) == "gau, K = 1024"
    assert EncoderCandidate("basic").features(row) == (None,)
    data = loaded(TensorDataModule(smooth(512, 256)))
    whole, crop = scored_signals(data), scored_signals(data, 128 * 64)
    assert (whole.sizes, crop.sizes, crop.auto_features()) == ((256, 128), (64, 32), [(64, 256), (32, 128)])
    candidate = EncoderCandidate("gau", count=64)
    assert candidate.features(whole) == candidate.features(crop, full=True) == (64, 64)
    assert candidate.features(crop) == (16, 16), "as many per sample"
    assert candidate.describe(crop, full=True) == {"name": "gau", "num_features": 64}
    assert EncoderCandidate("gau", share=1.0).label(crop) == "gau, K = 256x128"


def small_search(names, counts=(), deadline=math.inf):
    signals = scored_signals(loaded(TensorDataModule(smooth(64, 64))))
    candidates, skipped = encoder_candidates(names, counts)
    result = search(candidates, signals, deadline, CPU, lambda text: None)
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

    class Numbered(Encoder):
        def __init__(self, num_features: PositiveInt = 8) -> None:
            super().__init__(num_features)

        def forward(self, x):
            return torch.cos(x[..., None] * torch.arange(self.num_features))

    monkeypatch.setattr(encoders.registry, "_classes", dict(encoders.registry._classes))
    for name, cls in (("learned", Learned), ("breaking", Breaking), ("numbered", Numbered)):
        encoders.registry.register(name)(cls)
    result = small_search(("learned", "breaking", "gau", "rff"), (8, 1 << 20))
    assert "its features are trained" in result.skipped["learned"]
    assert result.skipped["breaking, K = 8"] == "failed: RuntimeError: no kernel"
    assert {trial.candidate.label(result.signals) for trial in result.of(interpolation=False)} == {
        "gau, K = 8",
        "rff, K = 8",
    }
    assert "GB of memory" in result.skipped["gau, K = 1048576"]
    result = small_search(("numbered",))
    labels = {trial.candidate.label(result.signals) for trial in result.of(interpolation=False)}
    assert labels == {"numbered, K = 32", "numbered, K = 16"}, "a class whose num_features takes no auto"


def test_trials_are_ranked_with_interpolation_among_them():
    result = small_search(("gau", "sine", "noise"))
    scores = [trial.found.mean for trial in result.trials]
    assert scores == sorted(scores, reverse=True)
    assert len(result.of(interpolation=True)) == 4
    assert "low rank" in next(
        trial.found.notes for trial in result.of(interpolation=False) if trial.candidate.name == "sine"
    )


def test_candidates_left_when_time_is_over_are_listed():
    result = small_search((), deadline=-math.inf)
    assert len(result.trials) == 1, "the first one is tried"
    assert len(result.skipped) > 20
    assert "no time left; give a larger --budget" in result.skipped.values()


def test_large_signals_are_scored_on_a_crop_that_is_named(capsys):
    data = loaded(TensorDataModule(smooth(400, 300)))
    candidates, _ = encoder_candidates(("gau", "bspline", "noise"), ())
    result = search(candidates, scored_signals(data, 10_000), math.inf, CPU, lambda text: None)
    assert {trial.candidate.label(result.signals) for trial in result.of(interpolation=False)} >= {"noise, K = 200x150"}
    print_result(result)
    assert f"Scored on {result.signals.crop}." in capsys.readouterr().out


def test_signals_are_scored_by_their_own_metric(capsys):
    data = TensorDataModule((smooth(64, 64) > 0.5).float())
    data.source.metric = "iou"
    signals = scored_signals(loaded(data))
    result = search(encoder_candidates(("gau",), (32,))[0], signals, math.inf, CPU, lambda text: None)
    assert all(0.5 < trial.found.mean <= 1 for trial in result.trials)
    print_result(result)
    shown = capsys.readouterr().out
    assert "(iou)" in shown
    assert "dB" not in shown
