"""The content of ``metrics.json``, the reconstructions, and what of both goes to the loggers."""

from __future__ import annotations

import copy
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import lightning
import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch.loggers import Logger, WandbLogger
from skimage.metrics import structural_similarity
from torch import Tensor

import pe_lightning
from pe_lightning.baselines import interpolate
from pe_lightning.callbacks.outputs import Formats, write_png, write_signal
from pe_lightning.callbacks.pairs import PAIR_BYTES, write_pair
from pe_lightning.callbacks.pictures import comparison, comparison_frames, row_plot
from pe_lightning.data.batches import GridBatch, SignalInfo
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.metrics import SignalPSNR, psnr, summary
from pe_lightning.modules import CoordinateModule
from pe_lightning.runs import file_names

__all__ = [
    "describe",
    "log_checkpoint",
    "log_scores",
    "run_name",
    "score",
    "score_baselines",
    "versions",
    "write_reconstructions",
]

Array = npt.NDArray[np.float32]

SSIM_WINDOW = 7
"""Side of scikit-image's default window; smaller pictures have no SSIM."""
DELAUNAY_LIMIT = 1 << 21
"""Points of all signals together up to which the Delaunay baseline is computed: a minute on two cores."""
LOGGED_PICTURES = 16
"""How many comparisons, and how many videos, go to W&B; all of them are on disk."""
SHEETS = 64
"""How many rows, videos or volumes are compared with the truth in a picture; every image is."""


def run_name(module: CoordinateModule) -> str:
    """``<data>-<model>-<encoder>`` of a built module."""
    names = module.require_info().names
    data = names[0] if len(names) == 1 else f"{len(names)}-signals"
    encoders = dict.fromkeys(encoder.name.rpartition(".")[2] for encoder in module.prototypes)
    return "-".join([data, type(module).__name__, "+".join(encoders)])


def describe(module: CoordinateModule, data: SignalDataModule | None) -> dict[str, Any]:
    """What was fitted with what, as plain values."""
    described = data.describe() if data is not None else {}
    return {
        **module.describe(),
        "protocol": described.get("protocol"),
        "sampling": described.get("sampling"),
        "data_fingerprint": described.get("fingerprint"),
        "paths": described.get("paths"),
    }


def score(module: CoordinateModule, predictions: Array | None, values: Array | None) -> dict[str, Any]:
    """The scores of a tested module, per signal and on average, as plain values.

    Args:
        module: A module whose test has ended.
        predictions: ``(S, *grid, C)``; ``None`` if they are not in memory.
        values: The truth, same shape.
    """
    if predictions is None or values is None:
        similarity, why_not = torch.full((module.require_info().num_signals,), torch.nan), "SSIM needs the signals in memory"
    else:
        similarity, why_not = _ssim(predictions, values)
    return {
        "schema": 1,
        **summary(module.scores["test/psnr"], "test/psnr", "nothing is held out (protocol none)"),
        **summary(module.scores["train/psnr"], "train/psnr", "no sample was trained on"),
        **summary(similarity, "test/ssim", why_not),
    }


def score_baselines(data: SignalDataModule | None) -> dict[str, dict[str, Any]]:
    """What interpolation of the same training samples reaches on the same held-out samples, per method.

    Computed once per DataModule: the fits of a sweep share one. Nothing without a DataModule of ours, or where nothing is
    held out.
    """
    if data is None or data.effective_protocol == "none":
        return {}
    if data not in _BASELINES:
        _BASELINES[data] = _interpolations(data)
    return copy.deepcopy(_BASELINES[data])


_BASELINES: WeakKeyDictionary[SignalDataModule, dict[str, dict[str, Any]]] = WeakKeyDictionary()


def _interpolations(data: SignalDataModule) -> dict[str, dict[str, Any]]:
    if data.streamed:
        return {"linear": {"test/psnr": None, "test/psnr_reason": "interpolation needs the signals in memory"}}
    train, evaluation = data.train_batch(), data.evaluation_batch()
    on_grid = isinstance(train, GridBatch)
    found: dict[str, dict[str, Any]] = {}
    for name in ("nearest", "linear", "bicubic", "spline") if on_grid else ("nearest", "delaunay"):
        if name == "delaunay" and (data.info.num_axes > 2 or train.values[..., 0].numel() > DELAUNAY_LIMIT):
            reason = f"left out: triangulating more than {DELAUNAY_LIMIT} points, or in more than 2 axes, takes minutes"
            found[name] = {"test/psnr": None, "test/psnr_reason": reason}
            continue
        metric = SignalPSNR(data.info.num_signals)
        metric.update(interpolate(name, train, evaluation.axes), evaluation.values, evaluation.mask)
        # not compute(), which waits for the other processes: only the first one is here
        found[name] = summary(psnr(metric.squared_error, metric.count), "test/psnr", "nothing is held out")
    return found


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    return {
        "pe_lightning": pe_lightning.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "numpy": np.__version__,
    }


def write_reconstructions(
    folder: Path,
    metrics: dict[str, Any],
    predictions: Array,
    values: Array,
    info: SignalInfo | None = None,
    formats: Formats = "auto",
    train_mask: npt.NDArray[np.bool_] | None = None,
) -> list[str]:
    """Writes every signal, and ``<stem>_comparison.png`` of signals of 1 to 3 axes: truth, reconstruction, error.

    Rows and cubes also leave ``<stem>_comparison.h5`` for ``pe-lightning compare``, as :func:`~.pairs.write_pair` has it.

    Args:
        folder: Where to.
        metrics: With ``signals``, and ``test/psnr_per_signal`` for the captions.
        predictions: ``(S, *grid, C)``.
        values: The truth, same shape.
        info: What the source is; without it images are PNG, and anything else NPY.
        formats: What the signals are written as.
        train_mask: Which samples were trained on, ``(S or 1, *grid)``.

    Returns:
        The paths of the comparisons, those of the first signals.
    """
    pictures = []
    most = PAIR_BYTES // min(SHEETS, len(values))
    for place, stem in enumerate(file_names(tuple(metrics["signals"]))):
        write_signal(folder / stem, predictions[place], info, place, formats)
        psnr = metrics["test/psnr_per_signal"][place]
        caption = "reconstruction" if psnr is None else f"reconstruction, {psnr:.2f} dB held out"
        pair = predictions[place], values[place]
        trained = None if train_mask is None else train_mask[place if len(train_mask) > 1 else 0]
        if values.ndim == 4:
            sheet = comparison(*pair, caption)
        elif values.ndim == 5 and place < SHEETS:
            sheet = comparison_frames(*pair, caption)
        elif values.ndim == 3 and place < SHEETS:
            sheet = row_plot(*pair, trained, caption, info.rate if info is not None else None)
        else:
            continue
        if values.ndim != 4:
            write_pair(folder / f"{stem}_comparison.h5", *pair, info, trained if values.ndim == 3 else None, most)
        pictures.append(str(write_png(folder / f"{stem}_comparison.png", sheet)))
    return pictures


def log_scores(
    loggers: Sequence[Logger], metrics: dict[str, Any], pictures: list[str], curve: Path | None, step: int
) -> None:
    """Logs the final scores; to W&B also those per signal as a table, the comparisons and the curve of a choice."""
    keys = ("test/psnr", "test/psnr_std", "test/ssim", "train/psnr", "num_params", "fit_seconds")
    baselines = {f"baseline/{name}": row["test/psnr"] for name, row in metrics["baselines"].items() if row["test/psnr"]}
    numbers = baselines | {
        f"final/{key.replace('/', '_')}": metrics[key] for key in keys if isinstance(metrics[key], (int, float))
    }
    for logger in loggers:
        logger.log_metrics(numbers, step)
        if isinstance(logger, WandbLogger):
            columns = ["test/psnr", "train/psnr", "test/ssim"]
            per_signal = zip(*(metrics[f"{column}_per_signal"] for column in columns), strict=True)
            rows = [[name, *scores] for name, scores in zip(metrics["signals"], per_signal, strict=True)]
            logger.experiment.summary.update({key: metrics[key] for key in keys if metrics[key] is not None} | baselines)
            logger.log_table("test/signals", columns=["signal", *columns], data=rows, step=step)
            if pictures:
                shown = pictures[:LOGGED_PICTURES]
                logger.log_image("reconstructions", list(shown), step=step, caption=metrics["signals"][: len(shown)])
                # the reconstruction itself, where that is a video
                films = [path.removesuffix("_comparison.png") + ".mp4" for path in shown]
                films = [path for path in films if Path(path).is_file()]
                if films:
                    logger.log_video("videos", films, step=step, format=["mp4"] * len(films))
            if curve is not None:
                logger.log_image("choice", [str(curve)], step=step)


def log_checkpoint(loggers: Sequence[Logger], path: Path) -> None:
    """Keeps a checkpoint in W&B, as an artifact named after the run."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.log_artifact(str(path), name=f"checkpoint-{logger.experiment.id}", type="model")


def _ssim(predictions: Array, values: Array) -> tuple[Tensor, str]:
    """SSIM of whole pictures, predictions clamped to [0, 1] as they are shown; NaN and a reason where there is none."""
    scores = torch.full((len(values),), float("nan"), dtype=torch.float64)
    if values.ndim != 4:
        return scores, f"SSIM is for pictures, of two axes; these signals have {values.ndim - 2}"
    if min(values.shape[1:3]) < SSIM_WINDOW:
        return scores, f"SSIM needs pictures of at least {SSIM_WINDOW} x {SSIM_WINDOW} samples"
    for place, (prediction, truth) in enumerate(zip(predictions, values, strict=True)):
        if np.isfinite(prediction).all():
            clamped = np.clip(prediction, 0, 1)
            scores[place] = float(structural_similarity(truth, clamped, channel_axis=-1, data_range=1.0))  # type: ignore[no-untyped-call]
    return scores, "a prediction is not finite"
