"""What a run leaves: its directory, configuration, logs, ``metrics.json`` and reconstructions."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.trainer.states import TrainerFn
from skimage.metrics import structural_similarity
from torch import Tensor

import pe_lightning
from pe_lightning import runs
from pe_lightning.callbacks.loggers import WandbSettings, make_loggers
from pe_lightning.callbacks.pictures import comparison, file_names, is_picture, write_png, write_signal
from pe_lightning.callbacks.table import print_scores
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.errors import InputError
from pe_lightning.metrics import summary
from pe_lightning.modules import CoordinateModule

__all__ = ["RunRecorder"]

SSIM_WINDOW = 7
"""Side of scikit-image's default window; smaller pictures have no SSIM."""
LOGGED_PICTURES = 16
"""How many comparisons go to W&B; all of them are on disk."""


class RunRecorder(Callback):
    """Gives a run its directory and fills it.

    The directory is made when data and model are known to be good: a run that fails on bad input leaves nothing behind.
    The first process chooses it and tells the others. A fit that resumes from a checkpoint keeps the directory of that
    checkpoint; validate, test and predict of a checkpoint write into a folder beside it, named after what they do.

    Args:
        root: Where run directories go; ``None`` is ``runs`` in the Trainer's ``default_root_dir``.
        ckpt_path: The checkpoint that the Trainer is going to load, if any.
        config: The resolved configuration as YAML, kept as ``config.yaml``.
        hyper_parameters: The resolved configuration as plain values, for the loggers.
        wandb: How the run appears in W&B.
        log: Whether a fit that has no logger gets a CSV and a W&B logger.
        table: Whether a table of the scores is printed.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        ckpt_path: str | Path | None = None,
        config: str | None = None,
        hyper_parameters: dict[str, Any] | None = None,
        wandb: WandbSettings | None = None,
        log: bool = True,
        table: bool = True,
    ) -> None:
        self.root = root
        self.ckpt_path = ckpt_path
        self.config = config
        self.hyper_parameters = hyper_parameters or {}
        self.wandb = wandb or WandbSettings()
        self.log_runs = log
        self.table = table
        self.run_dir: Path | None = None
        self.metrics: dict[str, Any] = {}
        self._fit_seconds: float | None = None
        self._started = self._excluded = 0.0
        self._paused_at: float | None = None
        self._predictions: list[Tensor] = []
        self._values: list[Tensor] = []

    # -- the directory ------------------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Builds the module, which can still refuse the data, then chooses the directory and attaches loggers."""
        if self.run_dir is not None or getattr(trainer, "fast_dev_run", False):
            return
        if not isinstance(pl_module, CoordinateModule):
            raise InputError(f"RunRecorder records modules of pe_lightning, got a {type(pl_module).__name__}")
        pl_module.configure_model()
        chosen: str | None = None
        if trainer.is_global_zero:
            if self.ckpt_path is not None:
                run = runs.of_checkpoint(self.ckpt_path)
                folder = run if stage == "fit" else run / TrainerFn(stage).value
            else:
                folder = runs.claim(self.root or Path(trainer.default_root_dir) / "runs", _run_name(trainer, pl_module))
            folder.mkdir(parents=True, exist_ok=True)
            chosen = str(folder)
        self.run_dir = Path(trainer.strategy.broadcast(chosen))
        home = self.run_dir if self.ckpt_path is None else runs.of_checkpoint(self.ckpt_path)
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                callback.dirpath = callback.dirpath or str(home / runs.CHECKPOINTS)
        if stage == "fit":
            self._prepare_fit(trainer)

    def _prepare_fit(self, trainer: Trainer) -> None:
        assert self.run_dir is not None
        held_out = not isinstance(_data(trainer), SignalDataModule) or _data(trainer).effective_protocol != "none"
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.monitor == "val/psnr" and not held_out:
                callback.monitor = None  # nothing to compare checkpoints by: the latest is kept
        if self.log_runs and not trainer.loggers:
            trainer.loggers = make_loggers(self.run_dir, self.wandb)
        if self.config is not None and trainer.is_global_zero:
            runs.write_atomically(self.run_dir / runs.CONFIG, self.config)

    # -- the clock: from data in memory to final parameters, validation and its checkpoints left out --------------------

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock and logs the configuration."""
        if self.run_dir is not None and trainer.is_global_zero:
            described = {**self.hyper_parameters, **_describe(trainer, pl_module), "run_dir": str(self.run_dir)}
            for logger in trainer.loggers:
                logger.log_hyperparams(described)
        self._started, self._excluded, self._paused_at = time.perf_counter(), 0.0, None

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the clock."""
        self._paused_at = time.perf_counter()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Starts the clock again after a validation."""
        if self._paused_at is not None:
            self._excluded += time.perf_counter() - self._paused_at
            self._paused_at = None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reads the clock."""
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize(pl_module.device)
        end = self._paused_at if self._paused_at is not None else time.perf_counter()
        self._fit_seconds = end - self._started - self._excluded

    # -- scores and files -----------------------------------------------------------------------------------------------

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keeps the prediction for the files."""
        if self.run_dir is not None and trainer.is_global_zero:
            self._predictions.append(outputs["prediction"].float().cpu())
            self._values.append(batch.values.float().cpu())

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes ``metrics.json`` and the reconstructions, logs them, prints the table."""
        if self.run_dir is None or not trainer.is_global_zero or not isinstance(pl_module, CoordinateModule):
            return
        predictions, values = torch.cat(self._predictions).numpy(), torch.cat(self._values).numpy()
        self._predictions, self._values = [], []
        self.metrics = self._collect(trainer, pl_module, predictions, values)
        runs.write_atomically(self.run_dir / runs.METRICS, json.dumps(self.metrics, indent=2, allow_nan=False) + "\n")
        self._write_reconstructions(trainer, pl_module, predictions, values)
        if self.table:
            print_scores(self.metrics, self.run_dir)

    def _collect(
        self, trainer: Trainer, module: CoordinateModule, predictions: np.ndarray[Any, Any], values: np.ndarray[Any, Any]
    ) -> dict[str, Any]:
        scores = module.scores
        train = summary(scores["train/psnr"], "train/psnr", "no sample was trained on")
        ssim, why_not = _ssim(predictions, values)
        return {
            "schema": 1,
            **summary(scores["test/psnr"], "test/psnr", "nothing is held out (protocol none)"),
            **train,
            **summary(ssim, "test/ssim", why_not),
            "fit_seconds": self._fit_seconds,
            "solve_seconds": None,
            "steps": trainer.global_step,
            **_describe(trainer, module),
            "seed": self.hyper_parameters.get("seed_everything"),
            "versions": {
                "pe_lightning": pe_lightning.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "lightning": lightning.__version__,
                "numpy": np.__version__,
            },
        }

    def _write_reconstructions(
        self, trainer: Trainer, module: CoordinateModule, predictions: np.ndarray[Any, Any], values: np.ndarray[Any, Any]
    ) -> None:
        assert self.run_dir is not None
        names = module.require_info().names
        folder = self.run_dir / runs.RECONSTRUCTIONS
        pictures: list[str] = []
        for place, stem in enumerate(file_names(names)):
            prediction, truth = predictions[place], values[place]
            write_signal(folder / stem, prediction)
            if is_picture(prediction):
                score = self.metrics["test/psnr_per_signal"][place]
                caption = "reconstruction" if score is None else f"reconstruction, {score:.2f} dB held out"
                sheet = write_png(folder / f"{stem}_comparison.png", comparison(prediction, truth, caption))
                pictures.append(str(sheet))
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                columns = ["signal", "test/psnr", "train/psnr", "test/ssim"]
                keys = [f"{column}_per_signal" for column in columns[1:]]
                rows = [[name, *[self.metrics[key][i] for key in keys]] for i, name in enumerate(names)]
                logger.log_table("test/signals", columns=columns, data=rows, step=trainer.global_step)
                if pictures:
                    shown = pictures[:LOGGED_PICTURES]
                    logger.log_image("reconstructions", shown, step=trainer.global_step, caption=list(names[: len(shown)]))
            numbers = {
                key: self.metrics[key]
                for key in ("test/psnr", "test/psnr_std", "test/ssim", "train/psnr", "num_params", "fit_seconds")
                if isinstance(self.metrics[key], (int, float))
            }
            logger.log_metrics({f"final/{key.replace('/', '_')}": v for key, v in numbers.items()}, trainer.global_step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the scores of a ``validate``; during a fit they are in the logs."""
        if self.run_dir is None or trainer.state.fn != TrainerFn.VALIDATING or not trainer.is_global_zero:
            return
        scores = {key: float(value) for key, value in trainer.callback_metrics.items()}
        runs.write_atomically(self.run_dir / runs.METRICS, json.dumps({"schema": 1, **scores}, indent=2) + "\n")

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Writes each predicted signal as a file."""
        if self.run_dir is None or not trainer.is_global_zero or not isinstance(pl_module, CoordinateModule):
            return
        size = "x".join(str(n) for n in outputs.shape[1:-1])
        files = file_names(pl_module.require_info().names)
        written = [
            write_signal(self.run_dir / size / stem, values)
            for stem, values in zip(files, outputs.float().cpu().numpy(), strict=True)
        ]
        if self.table:
            for path in written:
                print(path)


def _data(trainer: Trainer) -> Any:
    return getattr(trainer, "datamodule", None)


def _run_name(trainer: Trainer, module: CoordinateModule) -> str:
    names = module.require_info().names
    data = names[0] if len(names) == 1 else f"{len(names)}-signals"
    encoders = dict.fromkeys(encoder.name.rpartition(".")[2] for encoder in module.prototypes)
    return "-".join([data, type(module).__name__, "+".join(encoders)])


def _describe(trainer: Trainer, module: CoordinateModule) -> dict[str, Any]:
    """What was fitted with what, as plain values."""
    info = module.require_info()
    encoders = [{"name": encoder.name, **encoder.resolved()} for encoder in module.encoding.encoders]
    data = _data(trainer)
    described = data.describe() if isinstance(data, SignalDataModule) else {}
    return {
        "model": type(module).__name__,
        "num_params": module.num_params,
        "num_signals": info.num_signals,
        "grid": list(info.grid),
        "channels": info.channels,
        "signals": list(info.names),
        "encoding": module.encoding.name,
        # one entry where all axes or directions have the same encoder
        "encoder": encoders[0] if all(entry == encoders[0] for entry in encoders) else encoders,
        "protocol": described.get("protocol"),
        "sampling": described.get("sampling"),
        "data_fingerprint": described.get("fingerprint"),
        "paths": described.get("paths"),
    }


def _ssim(predictions: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> tuple[Tensor, str]:
    """SSIM of whole pictures, predictions clamped to [0, 1] as they are shown; NaN and a reason where there is none."""
    scores = torch.full((len(values),), float("nan"), dtype=torch.float64)
    if values.ndim != 4:
        return scores, f"SSIM is for pictures; the signals have {values.ndim - 2} axis or axes"
    if min(values.shape[1:3]) < SSIM_WINDOW:
        return scores, f"SSIM needs pictures of at least {SSIM_WINDOW} x {SSIM_WINDOW} samples"
    for place, (prediction, truth) in enumerate(zip(predictions, values, strict=True)):
        if np.isfinite(prediction).all():
            clamped = np.clip(prediction, 0, 1)
            scores[place] = float(structural_similarity(truth, clamped, channel_axis=-1, data_range=1.0))
    return scores, "a prediction is not finite"
