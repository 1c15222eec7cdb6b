"""Reconstructions while a fit is under way."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, seed_everything
from PIL import Image
from small_fits import MODULES, signals

from pe_lightning.callbacks import RunRecorder, Snapshots, TimeToPSNR, WandbSettings, snapshots
from pe_lightning.data import TensorDataModule, VideoDataModule, grid_axes
from pe_lightning.errors import InputError
from pe_lightning.modules import CoordinateModule


class Keep(Callback):
    """The prediction on the whole grid after every step."""

    def __init__(self):
        self.at = {}

    def on_train_batch_end(self, trainer, pl_module, *arguments):
        with torch.no_grad():
            self.at[trainer.global_step] = pl_module.predict_grid(grid_axes(pl_module.info.grid)).numpy()


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in (folder / "snapshots").rglob("*.*"))


def picture(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.mark.parametrize("kind", ["complex", "complex-head", "simple"])
def test_pictures_are_the_prediction_of_that_step(kind, fit):
    keep = Keep()
    run = fit(kind, signals(3, 16, 12), [keep, Snapshots(every_n_steps=5, signals=2)], steps=12)
    assert written(run.folder) == [f"snapshots/signal{s}/{n}.png" for s in (0, 1) for n in (10, 5)]
    for signal in (0, 1):
        for step in (5, 10):
            found = picture(run.folder / f"snapshots/signal{signal}/{step}.png")
            assert np.abs(found - 255 * np.clip(keep.at[step][signal], 0, 1)).max() <= 0.51


def test_large_pictures_are_shown_in_part(fit, monkeypatch):
    monkeypatch.setattr(snapshots, "LARGEST_SIDE", 7)
    keep = Keep()
    run = fit("complex", signals(1, 16, 5), [keep, Snapshots(every_n_steps=5)], steps=5)
    found = picture(run.folder / "snapshots/signal0/5.png")
    assert found.shape == (6, 5, 3)
    assert np.abs(found - 255 * np.clip(keep.at[5][0, ::3], 0, 1)).max() <= 0.51


def test_rows_are_drawn_beside_the_truth(fit, monkeypatch):
    drawn = []
    original = snapshots.row_plot
    monkeypatch.setattr(snapshots, "row_plot", lambda *arguments: drawn.append(arguments) or original(*arguments))
    keep, values = Keep(), signals(2, 32, channels=1)
    run = fit("simple", values, [keep, Snapshots(every_n_steps=5)], steps=5)
    assert written(run.folder) == ["snapshots/signal0/5.png", "snapshots/signal1/5.png"]
    for place, (prediction, truth, trained, caption, _) in enumerate(drawn):
        assert np.allclose(prediction, keep.at[5][place])
        assert np.array_equal(truth, values[place])
        assert trained.tolist() == [True, False] * 16
        assert caption.endswith("step 5")


def test_of_volumes_only_the_frames_that_are_shown_are_computed(fit, monkeypatch):
    drawn, asked = [], []
    original, predict = snapshots.comparison, MODULES["complex"]().__class__.predict_grid
    monkeypatch.setattr(snapshots, "comparison", lambda *arguments: drawn.append(arguments) or original(*arguments))
    keep, values = Keep(), signals(1, 16, 6, 5)

    def spy(self, axes):
        asked.append([len(x) for x in axes])
        return predict(self, axes)

    module = MODULES["complex"]()
    monkeypatch.setattr(type(module), "predict_grid", spy)
    run = fit(module, values, [keep, Snapshots(every_n_steps=5)], steps=5, limit_val_batches=0)
    assert asked == [[16, 6, 5]] * 5 + [[4, 6, 5]]
    assert [title for *_, title in drawn] == [f"ground truth, {n} of 16" for n in (3, 7, 11, 15)]
    for frame, (prediction, truth, caption, _) in zip((2, 6, 10, 14), drawn, strict=True):
        assert np.allclose(prediction, keep.at[5][0, frame], atol=1e-6)
        assert np.array_equal(truth, values[0, frame])
        assert caption == "reconstruction, step 5"
    single = original(*drawn[0])
    assert picture(run.folder / "snapshots/signal0/5.png").shape[:2] == (4 * single.height, single.width)


def test_a_volume_that_stays_in_its_file_has_frames_without_the_truth(fit, tmp_path):
    with h5py.File(tmp_path / "volume.h5", "w") as file:
        file["values"] = signals(1, 16, 6, 5, channels=1)[0, ..., 0].numpy()
    data = VideoDataModule(str(tmp_path / "volume.h5"), in_memory=False, batch="blocks", steps_per_epoch=6)
    run = fit("complex", data, [Snapshots(every_n_steps=5)], steps=5)
    assert picture(run.folder / "snapshots/volume/5.png").shape == (4 * 6, 5)


def test_the_clock_stands_still_and_weights_are_those_of_a_fit_that_nobody_watches(fit, monkeypatch):
    ran = []
    predict = MODULES["complex"]().__class__.predict_grid
    timing = TimeToPSNR([200])

    def spy(self, axes):
        ran.append(timing.clock._since is not None)
        return predict(self, axes)

    monkeypatch.setattr(type(MODULES["complex"]()), "predict_grid", spy)
    watched = fit("complex", signals(2, 16, 12), [Snapshots(every_n_steps=2), timing], limit_val_batches=0)
    assert ran == [False] * 6
    alone = fit("complex", signals(2, 16, 12), [], limit_val_batches=0)
    assert torch.equal(watched.module.weight, alone.module.weight)


def test_they_are_in_wandb(make_trainer, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    seed_everything(0, verbose=False)
    recorder = RunRecorder(root=tmp_path / "runs", wandb=WandbSettings(), table=False)
    trainer = make_trainer(max_steps=10, callbacks=[Snapshots(every_n_steps=5), recorder], log_every_n_steps=5)
    module: CoordinateModule = MODULES["complex"]()
    trainer.fit(module, TensorDataModule(signals(2, 16, 12), steps_per_epoch=5))
    for logger in trainer.loggers:
        logger.finalize("success")
    import wandb

    wandb.finish()
    images = list((recorder.run_dir / "wandb").glob("offline-run-*/files/media/images/snapshots_*.png"))
    assert len(images) == 4


def test_a_run_that_leaves_nothing_has_no_snapshots(fit, tmp_path):
    fit("complex", signals(1, 16, 12), [Snapshots(every_n_steps=1)], fast_dev_run=3)
    assert not list(tmp_path.rglob("*.png"))


def test_what_cannot_be_shown_is_refused_before_a_directory_is_made(fit, make_trainer, tmp_path):
    with pytest.raises(InputError, match="1 to 3 axes; these have 4"):
        fit("complex", signals(1, 4, 4, 4, 4), [Snapshots()])
    with pytest.raises(InputError, match=r"RunRecorder\(\)"):
        make_trainer(max_steps=1, callbacks=[Snapshots()]).fit(MODULES["complex"](), TensorDataModule(signals(1, 8, 8)))
    with pytest.raises(InputError, match="Snapshots: every_n_steps"):
        Snapshots(every_n_steps=0)
    with pytest.raises(InputError, match="Snapshots: signals"):
        Snapshots(signals=0)
    assert not (tmp_path / "runs").exists()
