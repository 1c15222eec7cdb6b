"""Reconstructions while a fit is under way."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from lightning.pytorch import Callback
from PIL import Image
from small_fits import MODULES, signals

from pe_lightning.errors import InputError
from pe_lightning.signals import grid_axes
from pe_lightning.signals.cache import Storage
from pe_lightning.signals.loaders import Batching
from pe_lightning.training import ComplexLinear, TensorDataModule, VideoDataModule
from pe_lightning.training.callbacks import Snapshots, TimeToPSNR, snapshots


class Keep(Callback):
    """The prediction on the whole grid after every step."""

    def __init__(self):
        self.at = {}

    def on_train_batch_end(self, trainer, pl_module, *arguments):
        with torch.no_grad():
            self.at[trainer.global_step] = pl_module.predict_grid(grid_axes(pl_module.info.grid)).numpy()


def picture(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.mark.parametrize("kind", ["complex", "simple"])
def test_pictures_are_the_prediction_of_that_step(kind, fit, monkeypatch):
    keep = Keep()
    run = fit(kind, signals(3, 16, 12), [keep, Snapshots(every_n_steps=5, signals=2)], steps=12)
    written = sorted(str(path.relative_to(run.folder / "snapshots")) for path in run.folder.glob("snapshots/*/*"))
    assert written == [f"signal{s}/{n}.png" for s in (0, 1) for n in (10, 5)]
    for signal, step in ((0, 5), (1, 10)):
        found = picture(run.folder / f"snapshots/signal{signal}/{step}.png")
        assert np.abs(found - 255 * np.clip(keep.at[step][signal], 0, 1)).max() <= 0.51
    monkeypatch.setattr(snapshots, "MAX_SHOWN_SIDE", 7)
    keep = Keep()
    run = fit("complex", signals(1, 16, 5), [keep, Snapshots(every_n_steps=5)], steps=5)
    found = picture(run.folder / "snapshots/signal0/5.png")
    assert found.shape == (6, 5, 3), "some samples of a large picture"
    assert np.abs(found - 255 * np.clip(keep.at[5][0, ::3], 0, 1)).max() <= 0.51


def test_rows_are_drawn_beside_the_truth(fit, monkeypatch):
    drawn = []
    original = snapshots.row_plot
    monkeypatch.setattr(snapshots, "row_plot", lambda *arguments: drawn.append(arguments) or original(*arguments))
    keep, values = Keep(), signals(2, 32, channels=1)
    fit("simple", values, [keep, Snapshots(every_n_steps=5)], steps=5)
    assert len(drawn) == 2
    for index, (prediction, truth, trained, *_) in enumerate(drawn):
        assert np.allclose(prediction, keep.at[5][index])
        assert np.array_equal(truth, values[index])
        assert trained.tolist() == [True, False] * 16


def test_only_the_shown_frames_of_a_volume_are_computed(fit, monkeypatch):
    drawn, asked = [], []
    original, predict = snapshots.comparison_frames, ComplexLinear.predict_grid
    monkeypatch.setattr(snapshots, "comparison_frames", lambda *given: drawn.append(given) or original(*given))
    monkeypatch.setattr(
        ComplexLinear, "predict_grid", lambda self, axes: asked.append([len(x) for x in axes]) or predict(self, axes)
    )
    keep, values = Keep(), signals(1, 16, 6, 5)
    fit("complex", values, [keep, Snapshots(every_n_steps=5)], steps=5, limit_val_batches=0)
    assert asked[-1] == [4, 6, 5]
    ((prediction, truth, _, frames, _),) = drawn
    assert np.allclose(prediction, keep.at[5][0, frames], atol=1e-6)
    assert np.array_equal(truth, values[0, frames])


def test_a_volume_that_stays_in_its_file_has_frames_without_the_truth(fit, tmp_path):
    with h5py.File(tmp_path / "volume.h5", "w") as file:
        file["values"] = signals(1, 16, 6, 5, channels=1)[0, ..., 0].numpy()
    batching, storage = Batching("blocks", steps_per_epoch=6), Storage(in_memory=False)
    data = VideoDataModule(str(tmp_path / "volume.h5"), batching=batching, storage=storage)
    run = fit("complex", data, [Snapshots(every_n_steps=5)], steps=5)
    assert picture(run.folder / "snapshots/volume/5.png").shape == (4 * 6 + 3 * 4, 5)


def test_the_clock_is_stopped_and_the_weights_are_those_of_a_fit_without_snapshots(fit, now, monkeypatch):
    predict, timing = ComplexLinear.predict_grid, TimeToPSNR([200])

    def slow(self, axes):
        now[0] += 1
        return predict(self, axes)

    monkeypatch.setattr(ComplexLinear, "predict_grid", slow)
    watched = fit("complex", signals(2, 16, 12), [Snapshots(every_n_steps=2), timing], limit_val_batches=0)
    assert now[0] == 6
    assert timing.clock.seconds == 0
    alone = fit("complex", signals(2, 16, 12), [], limit_val_batches=0)
    for found, expected in zip(watched.module.parameters(), alone.module.parameters(), strict=True):
        assert torch.equal(found, expected)


def test_signals_that_cannot_be_shown_are_refused_before_a_directory_is_made(fit, make_trainer, tmp_path):
    with pytest.raises(InputError, match="signals of 1 to 3 axes"):
        fit("complex", signals(1, 4, 4, 4, 4), [Snapshots()])
    with pytest.raises(InputError, match=r"RunRecorder\(\)"):
        make_trainer(max_steps=1, callbacks=[Snapshots()]).fit(MODULES["complex"](), TensorDataModule(signals(1, 8, 8)))
    with pytest.raises(InputError, match="Snapshots: signals"):
        Snapshots(signals=0)
    assert not (tmp_path / "runs").exists()
    fit("complex", signals(1, 16, 12), [Snapshots(every_n_steps=1)], fast_dev_run=3)
    assert not list(tmp_path.rglob("*.png"))
