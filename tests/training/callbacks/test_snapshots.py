"""Reconstructions while a fit is under way."""

from pathlib import Path

import numpy as np
import pytest
import torch
from fits import MODULES, signals
from lightning.pytorch import Callback
from PIL import Image

from pe_lightning.errors import InputError
from pe_lightning.signals import grid_axes
from pe_lightning.training import ComplexLinear, TensorDataModule
from pe_lightning.training.callbacks import Snapshots, TrainingClock, snapshots


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


def test_pictures_are_the_prediction_of_that_step(fit):
    keep = Keep()
    run = fit("complex", signals(3, 16, 12, channels=3), [keep, Snapshots(every_n_steps=5, signals=2)], steps=12)
    written = sorted(str(path.relative_to(run.folder / "snapshots")) for path in run.folder.glob("snapshots/*/*"))
    assert written == [f"signal{s}/{n}.png" for s in (0, 1) for n in (10, 5)]
    for signal, step in ((0, 5), (1, 10)):
        found = picture(run.folder / f"snapshots/signal{signal}/{step}.png")
        assert np.abs(found - 255 * np.clip(keep.at[step][signal], 0, 1)).max() <= 0.51


@pytest.mark.parametrize("grid", [(32,), (16, 6, 5)])
def test_rows_and_frames_are_drawn_beside_the_truth(grid, fit, monkeypatch):
    """Of a volume only the frames that are shown are computed."""
    drawn, asked, predict = [], [], ComplexLinear.predict_grid
    for name in ("row_plot", "comparison_frames"):
        original = getattr(snapshots, name)
        monkeypatch.setattr(
            snapshots, name, lambda *given, draw=original, **more: drawn.append(given) or draw(*given, **more)
        )
    monkeypatch.setattr(
        ComplexLinear, "predict_grid", lambda self, axes: asked.append([len(x) for x in axes]) or predict(self, axes)
    )
    keep, values = Keep(), signals(2, *grid, channels=1)
    fit("complex", values, [keep, Snapshots(every_n_steps=5)], steps=5, limit_val_batches=0)
    assert asked[-1] == ([4, 6, 5] if len(grid) == 3 else [32])
    for index, (prediction, truth, third, *more) in enumerate(drawn):
        frames = more[0] if len(grid) == 3 else slice(None)
        assert np.allclose(prediction, keep.at[5][index, frames], atol=1e-6)
        assert np.array_equal(truth, values[index, frames])
        assert len(grid) == 3 or third.tolist() == [True, False] * 16
    assert len(drawn) == 2


def test_the_clock_is_stopped_and_the_weights_are_those_of_a_fit_without_snapshots(fit, now, monkeypatch):
    predict = ComplexLinear.predict_grid

    def slow(self, axes):
        now[0] += 1
        return predict(self, axes)

    monkeypatch.setattr(ComplexLinear, "predict_grid", slow)
    watched = fit("complex", signals(2, 16, 12, channels=3), [Snapshots(every_n_steps=2)], limit_val_batches=0)
    assert now[0] == 6
    assert TrainingClock.of(watched.trainer).seconds == 0
    alone = fit("complex", signals(2, 16, 12, channels=3), [], limit_val_batches=0)
    for found, expected in zip(watched.module.parameters(), alone.module.parameters(), strict=True):
        assert torch.equal(found, expected)


def test_signals_that_cannot_be_shown_are_refused_before_a_directory_is_made(fit, make_trainer, tmp_path):
    with pytest.raises(InputError, match="signals of 1 to 3 axes"):
        fit("complex", signals(1, 4, 4, 4, 4, channels=3), [Snapshots()])
    with pytest.raises(InputError, match=r"RunRecorder\(\)"):
        make_trainer(max_steps=1, callbacks=[Snapshots()]).fit(
            MODULES["complex"](), TensorDataModule(signals(1, 8, 8, channels=3))
        )
    assert not (tmp_path / "runs").exists()
    fit("complex", signals(1, 16, 12, channels=3), [Snapshots(every_n_steps=1)], fast_dev_run=3)
    assert not list(tmp_path.rglob("*.png"))
