"""What a run leaves: its directory, logs, ``metrics.json``, reconstructions, and a table of the scores."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import lightning
import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.trainer.states import TrainerFn
from rich.console import Console
from rich.table import Table
from skimage.metrics import structural_similarity
from torch import Tensor

import pe_lightning
from pe_lightning import runs
from pe_lightning.baselines import interpolate
from pe_lightning.callbacks.base import TimedCallback, data_of
from pe_lightning.callbacks.loggers import WandbSettings, flat, log_scores, make_loggers
from pe_lightning.checkpoints import LAST, CheckpointFiles, locate
from pe_lightning.data.batches import GridBatch
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.output import OutputGrid
from pe_lightning.data.sources.paths import SourceFile
from pe_lightning.data.values import FileValues
from pe_lightning.errors import InputError, last_resort, show_metric
from pe_lightning.media.pictures import plot_choice
from pe_lightning.media.reconstructions import FileAssembly, PredictionWriter, write_reconstructions
from pe_lightning.metrics import create, metrics, summary, unit_of

__all__ = ["Describes", "RunRecorder", "check_monitors", "reports", "score_baselines"]

Array = npt.NDArray[np.float32]

SSIM_WINDOW = 7
"""Side of scikit-image's default window; smaller pictures have no SSIM."""
DELAUNAY_LIMIT = 1 << 21
"""Points of all signals together up to which the Delaunay baseline is computed: a minute on two cores."""
MOST_ROWS = 24
"""Of more signals than this the table has the mean only; metrics.json has them all."""


@runtime_checkable
class Describes(Protocol):
    """A LightningModule that can be recorded.

    After a test it also has ``scores``, a dictionary of values per signal ``(S,)`` by name, such as ``test/psnr`` and
    ``train/psnr``. If its ``test_step`` returns a dictionary with ``prediction``, that becomes the run's reconstructions.
    """

    monitor: str
    """The logged value by which fits are compared: ``val/<metric>``."""
    monitor_mode: Literal["max", "min"]

    def describe(self) -> dict[str, Any]:
        """Plain values for ``metrics.json``: at least ``model``, ``num_params`` and ``encoder`` (with ``name``, or None).

        ``data_name`` names run directories. Where the DataModule is not one of signals, ``data_fingerprint``, ``protocol``
        and ``sampling`` say which runs can be compared.
        """
        ...


class RunRecorder(TimedCallback):
    """Gives a run its directory and fills it, for any module that describes itself (see :class:`Describes`).

    The directory is made when data and model are known to be good: a run that fails on bad input leaves nothing behind.
    The first process chooses it and tells the others. A fit that resumes from a checkpoint in a folder ``checkpoints`` goes
    on in the directory around it; validate, test and predict write into a folder there, named after what they do.

    Args:
        root: Where run directories go; ``None`` is ``runs`` in the Trainer's ``default_root_dir``.
        ckpt_path: The checkpoint that the Trainer is going to load, if any.
        wandb: How the run appears in W&B.
        log: Whether a fit that has no logger gets a CSV and a W&B logger.
        table: Whether a table of the scores is printed.
        folder: The run directory itself, in place of the next free one below ``root``.
        pictures: Whether reconstructions are drawn beside the truth; of many rows that takes longer than fitting them.

    Attributes:
        run_dir: The run directory, once it is chosen.
        hyper_parameters: The resolved configuration as plain values, for the loggers.
        metrics: The content of ``metrics.json``, after a test.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        ckpt_path: str | Path | None = None,
        wandb: WandbSettings | None = None,
        log: bool = True,
        table: bool = True,
        folder: str | Path | None = None,
        pictures: bool = True,
    ) -> None:
        super().__init__()
        self.root = root
        self.ckpt_path = None if ckpt_path is None else locate(ckpt_path)
        self.wandb = wandb or WandbSettings()
        self.log_runs = log
        self.table = table
        self.folder = folder
        self.pictures = pictures
        self.run_dir: Path | None = None
        self.hyper_parameters: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        self._files: FileAssembly | None = None
        self._tested: tuple[Array, Array] | None = None
        self._writer: PredictionWriter | None = None

    @staticmethod
    def run_dir_of(trainer: Trainer) -> Path | None:
        """The run directory; ``None`` without a recorder, and in a ``fast_dev_run``, which leaves nothing."""
        recorders = [callback for callback in trainer.callbacks if isinstance(callback, RunRecorder)]  # type: ignore[attr-defined]
        return recorders[0].run_dir if recorders else None

    # -- the directory ------------------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Builds the module, which can still refuse the data, then chooses the directory and attaches loggers."""
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = CheckpointFiles()
        if self.run_dir is not None or getattr(trainer, "fast_dev_run", False):
            return
        if not isinstance(pl_module, Describes):
            raise InputError(
                f"RunRecorder records modules that describe themselves; {type(pl_module).__name__} needs describe() -> dict "
                "with 'model', 'num_params' and 'encoder', the attributes monitor ('val/<metric>') and monitor_mode ('max' "
                "or 'min'), and after a test scores ('test/<metric>' -> values per signal)"
            )
        pl_module.configure_model()
        chosen = self._choose(trainer, pl_module, stage) if trainer.is_global_zero else None
        self.run_dir = Path(str(trainer.strategy.broadcast(str(chosen))))
        held_out = (data := data_of(trainer)) is None or data.effective_protocol != "none"
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                callback.dirpath = callback.dirpath or str(self.run_dir / runs.CHECKPOINTS)
                if stage == "fit" and callback.monitor == pl_module.monitor and not held_out:
                    callback.monitor = None  # nothing to compare checkpoints by: the latest is saved
        if stage != "fit":
            return
        goals = {pl_module.monitor: pl_module.monitor_mode, f"train/{_metric_of(pl_module)}": pl_module.monitor_mode}
        goals["train/loss"] = "min"
        if type(pl_module).__module__.startswith("pe_lightning."):  # a module of the user's own may log anything
            check_monitors(trainer.callbacks, goals, held_out)  # type: ignore[attr-defined]
        if self.log_runs and not trainer.loggers:
            group = self.wandb.group or name_of(pl_module.describe().get("signals", ["data"]), data)
            trainer.loggers = make_loggers(trainer, self.run_dir, replace(self.wandb, group=group), goals)

    def _choose(self, trainer: Trainer, module: Describes, stage: str) -> Path:
        if self.ckpt_path is not None and (stage != "fit" or self.ckpt_path.parent.name == runs.CHECKPOINTS):
            run = runs.of_checkpoint(self.ckpt_path)
            folder = run if stage == "fit" else run / TrainerFn(stage).value
        elif self.folder is not None:
            folder = Path(self.folder).absolute()
        else:
            described = module.describe()
            first = described.get("data_name") or name_of(described.get("signals", ["data"]), data_of(trainer))
            name = [first, described["model"], _encoders(described)]
            folder = runs.claim(self.root or Path(trainer.default_root_dir) / "runs", "-".join(filter(None, name)))
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # -- the fit --------------------------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Logs what is fitted, and starts the clock."""
        self._log_description(trainer, pl_module)
        self._earlier = self._earlier or getattr(pl_module, "choice_seconds", 0.0)
        super().on_fit_start(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the last weights as a checkpoint, and logs what was chosen during the fit."""
        super().on_fit_end(trainer, pl_module)
        if self.run_dir is None:
            return
        if trainer.checkpoint_callbacks:  # which have none of a fit of no steps, and none after the last whole epoch
            trainer.save_checkpoint(self.run_dir / runs.CHECKPOINTS / LAST, weights_only=False)
        self._log_description(trainer, pl_module)

    def _log_description(self, trainer: Trainer, pl_module: Any) -> None:
        if self.run_dir is None or not trainer.is_global_zero:
            return
        described = describe(pl_module, data_of(trainer))
        described["data"] = {"fingerprint": described.pop("data_fingerprint"), "paths": described.pop("paths")}
        described |= {"seed": self.hyper_parameters.get("seed_everything"), "run_dir": str(self.run_dir)}
        for logger in trainer.loggers:
            logger.log_hyperparams({**flat(described), "config": self.hyper_parameters})

    def state_dict(self) -> dict[str, Any]:
        """The seconds of fitting so far, for a fit that is resumed."""
        return {"fit_seconds": self.clock.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what :meth:`state_dict` gave."""
        self._earlier = state_dict["fit_seconds"]

    # -- scores and files -----------------------------------------------------------------------------------------------

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Makes the files for predictions of signals that stay in their file."""
        data, info = data_of(trainer), getattr(pl_module, "info", None)
        self._files = self._tested = None
        if self.run_dir is not None and info is not None and data is not None and data.streamed:
            self._files = FileAssembly(self.run_dir / runs.RECONSTRUCTIONS, info, first=trainer.is_global_zero)
            trainer.strategy.barrier("the files are there")

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Takes the prediction for the files, if there is one."""
        prediction = outputs.get("prediction") if isinstance(outputs, dict) else None
        if prediction is None or self.run_dir is None or not isinstance(batch, GridBatch):
            return
        if self._files is not None:
            self._files.add(prediction, batch.start)
        elif trainer.is_global_zero and batch.start is None:  # signals in memory are one batch
            self._tested = prediction.float().cpu().numpy(), batch.values.float().cpu().numpy()

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Writes ``metrics.json`` and the reconstructions, logs them, prints the table."""
        data, tested = data_of(trainer), self._tested
        if self._files is not None:  # every process has added its blocks when all have said so
            filled = trainer.strategy.reduce_boolean_decision(self._files.filled, all=False)
            values = data.dataset.values if data is not None else None
            self._files.finish(filled, values if isinstance(values, FileValues) else None)
        if self.run_dir is None or not trainer.is_global_zero:
            return
        described = describe(pl_module, data)
        self.metrics = {
            **score(pl_module, described, tested),
            "fit_seconds": self.clock.seconds or None,
            "steps": trainer.global_step,
            **described,
            "baselines": {},
            **reports(trainer),
            "seed": self.hyper_parameters.get("seed_everything"),
            "versions": {
                "pe_lightning": pe_lightning.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "lightning": lightning.__version__,
                "numpy": np.__version__,
            },
        }
        _write_json(self.run_dir / runs.METRICS, self.metrics)  # before anything that could still fail
        self.metrics["baselines"], best = score_baselines(data, _metric_of(pl_module))
        pictures = []
        if tested is not None:
            mask = data.split.train_mask().numpy() if data is not None else None
            write = getattr(getattr(data, "source", None), "write", None)  # a source may have a format of its own
            folder, info = self.run_dir / runs.RECONSTRUCTIONS, getattr(pl_module, "info", None)
            pictures = write_reconstructions(folder, self.metrics, *tested, info, mask, write, best, self.pictures)
            self._tested = None
        _write_json(self.run_dir / runs.METRICS, self.metrics)
        choice = (described["solution"] or {}).get("choice")
        curve = plot_choice(self.run_dir / "choice.png", choice) if choice else None
        last = self.run_dir / runs.CHECKPOINTS / LAST if self.wandb.artifact else None
        log_scores(trainer.loggers, self.metrics, pictures, curve, trainer.global_step, last)
        if self.table:
            print_scores(self.metrics, self.run_dir)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the scores of a ``validate``; during a fit they are in the logs."""
        if self.run_dir is None or trainer.state.fn != TrainerFn.VALIDATING or not trainer.is_global_zero:
            return
        scores = {key: float(value) for key, value in trainer.callback_metrics.items()}
        plain = {key: value if math.isfinite(value) else None for key, value in scores.items()}
        _write_json(self.run_dir / runs.METRICS, {"schema": 1, **plain})

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Writes each predicted signal as a file."""
        info = getattr(pl_module, "info", None)
        if self.run_dir is None or not trainer.is_global_zero or info is None:
            return
        if self._writer is None:
            data = getattr(trainer, "datamodule", None)
            output = OutputGrid() if isinstance(data, SignalDataModule) else data if isinstance(data, OutputGrid) else None
            self._writer = PredictionWriter(self.run_dir, info, output)
        for path in self._writer.add(outputs):
            if self.table:
                print(path)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forgets what was predicted."""
        self._writer = None


def _write_json(path: Path, content: dict[str, Any]) -> None:
    runs.write_atomically(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


# -- what a module says of itself ---------------------------------------------------------------------------------------


def _metric_of(module: Describes) -> str:
    return module.monitor.rpartition("/")[2]


def _encoders(described: Mapping[str, Any]) -> str:
    entries = described["encoder"] if isinstance(described["encoder"], list) else [described["encoder"]]
    return "+".join(dict.fromkeys(entry["name"].rpartition(".")[2] for entry in entries if entry))


def name_of(signals: Sequence[str], data: SignalDataModule | None) -> str:
    """What signals are called together: like the file or folder that all are from, else like the only one, or by number."""
    paths = [] if data is None else data.source.describe().get("paths") or []
    if len(signals) > 1 and len(paths) == 1:
        return SourceFile(Path(paths[0]), paths[0]).stem
    return signals[0] if len(signals) == 1 else f"{len(signals)}-signals"


def describe(module: Describes, data: SignalDataModule | None) -> dict[str, Any]:
    """What was fitted with what, as plain values; a module that names no signals has one, called ``data``."""
    about = data.describe() if data is not None else {}
    known = {key: about.get(key) for key in ("protocol", "sampling", "paths")}
    known["data_fingerprint"] = about.get("fingerprint")
    described = {"signals": ["data"], "solution": None, **known, **module.describe()}
    return {**described, "num_signals": len(described["signals"])}


def reports(trainer: Trainer) -> dict[str, Any]:
    """What the callbacks of a Trainer add to ``metrics.json``: those that have ``report()``, in their order.

    A report is a dictionary of plain values, empty before a fit. One process may ask alone.
    """
    found: dict[str, Any] = {}
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if hasattr(callback, "report"):
            found |= callback.report()
    return found


def check_monitors(callbacks: Iterable[object], logged: Mapping[str, str], held_out: bool) -> None:
    """Refuses an ``EarlyStopping`` or ``ModelCheckpoint`` that would wait for what does not come, or for the worse.

    Args:
        callbacks: The callbacks of a Trainer.
        logged: What the module logs, and in which direction it improves.
        held_out: Whether samples are held out, so that there is a validation.

    Raises:
        InputError: If a callback monitors something else, or in the other direction.
    """
    known = {name: mode for name, mode in logged.items() if held_out or not name.startswith("val/")}
    for callback in callbacks:
        if not isinstance(callback, (EarlyStopping, ModelCheckpoint)) or callback.monitor is None:
            continue
        if known.get(callback.monitor) != callback.mode:
            allowed = ", ".join(f"{name} (mode: {mode})" for name, mode in known.items())
            reason = "" if held_out else "; no sample is held out (protocol none), so there is no validation"
            raise InputError(
                f"{type(callback).__name__} cannot monitor {callback.monitor} with mode: {callback.mode}. "
                f"There are: {allowed}{reason}"
            )


# -- scores -------------------------------------------------------------------------------------------------------------


def score(module: Describes, described: Mapping[str, Any], tested: tuple[Array, Array] | None) -> dict[str, Any]:
    """The scores of a tested module, per signal and on average, as plain values.

    Args:
        module: A module whose test has ended.
        described: What :func:`describe` returned.
        tested: Prediction and truth, ``(S, *grid, C)`` each; ``None`` if they are not in memory.

    Raises:
        InputError: If the module has no scores, or not one per signal.
    """
    metric, scores, signals = _metric_of(module), getattr(module, "scores", {}), len(described["signals"])
    shapes = {key: tuple(values.shape) for key, values in scores.items()}
    if f"test/{metric}" not in shapes or set(shapes.values()) != {(signals,)}:
        raise InputError(
            f"{type(module).__name__}: a test must leave scores['test/{metric}'], and every score has the shape "
            f"({signals},), as describe()['signals'] names {signals}; got {shapes}"
        )
    found: dict[str, Any] = {"schema": 1, "metric": metric}
    for key, per_signal in scores.items():
        nothing = "no sample was trained on" if key.startswith("train/") else "nothing is held out (protocol none)"
        found |= summary(per_signal, key, nothing)
    return found | summary(*_ssim(tested, signals)) if "grid" in described else found


def _ssim(tested: tuple[Array, Array] | None, signals: int) -> tuple[Tensor, str, str]:
    """SSIM of whole pictures, predictions clamped to [0, 1] as they are shown; NaN and a reason where there is none."""
    scores, why_not = torch.full((signals,), torch.nan, dtype=torch.float64), "a prediction is not finite"
    if tested is None:
        why_not = "SSIM needs the signals in memory"
    elif tested[1].ndim != 4 or min(tested[1].shape[1:3]) < SSIM_WINDOW:
        why_not = f"SSIM is for pictures of at least {SSIM_WINDOW} x {SSIM_WINDOW} samples"
    else:
        for index, (prediction, truth) in enumerate(zip(*tested, strict=True)):
            if np.isfinite(prediction).all():
                clamped = np.clip(prediction, 0, 1)
                scores[index] = float(structural_similarity(truth, clamped, channel_axis=-1, data_range=1.0))  # type: ignore[no-untyped-call]
    return scores, "test/ssim", why_not


Baselines = tuple[dict[str, dict[str, Any]], "tuple[str, Array] | None"]
_BASELINES: WeakKeyDictionary[SignalDataModule, dict[str, Baselines]] = WeakKeyDictionary()


def score_baselines(data: SignalDataModule | None, metric: str = "psnr") -> Baselines:
    """What interpolation of the same training samples reaches on the same held-out samples.

    Computed once per DataModule: the fits of a sweep share one. Nothing without a DataModule of ours, where nothing is held
    out, or for a metric that is not one of :data:`pe_lightning.metrics.metrics`.

    Returns:
        The scores per method; and the name of the best one with its prediction ``(S, *grid, C)``.
    """
    if data is None or data.effective_protocol == "none" or metric not in metrics:
        return {}, None
    key, sign = f"test/{metric}", 1 if metrics.get(metric).higher_is_better else -1
    if data.streamed:
        return {"linear": {key: None, f"{key}_reason": "interpolation needs the signals in memory"}}, None
    known = _BASELINES.setdefault(data, {})
    if metric in known:
        return known[metric]
    train, evaluation = data.train_batch(), data.evaluation_batch()
    on_grid = isinstance(train, GridBatch)
    found: dict[str, dict[str, Any]] = {}
    best: tuple[str, Array] | None = None
    for name in ("nearest", "linear", "bicubic", "spline") if on_grid else ("nearest", "delaunay"):
        if name == "delaunay" and (data.info.num_axes > 2 or train.values[..., 0].numel() > DELAUNAY_LIMIT):
            reason = f"left out: triangulating more than {DELAUNAY_LIMIT} points, or in more than 2 axes, takes minutes"
            found[name] = {key: None, f"{key}_reason": reason}
            continue
        scores = create(metric, data.info.num_signals, sync_on_compute=False)  # the other processes are not here
        try:
            prediction = interpolate(name, train, evaluation.axes)
            scores.update(prediction, evaluation.values, evaluation.mask)
        except Exception as error:  # a fit that has succeeded does not end with what it is compared with
            reason = str(error) if isinstance(error, InputError) else last_resort(error)[0]
            found[name] = {key: None, f"{key}_reason": f"left out: {reason}"}
            continue
        found[name] = summary(scores.per_signal(), key, "nothing is held out")
        mean = found[name][key]
        if mean is not None and (best is None or sign * mean > sign * found[best[0]][key]):
            best = name, prediction.float().numpy()
    known[metric] = found, best
    return known[metric]


def print_scores(report: Mapping[str, Any], run_dir: Path) -> None:
    """Prints the scores per signal beside interpolation, seconds and where the files are.

    Args:
        report: The content of ``metrics.json``.
        run_dir: The run directory.
    """
    console, metric = Console(), report["metric"]
    test, unit, word = f"test/{metric}", unit_of(metric), show_metric(metric) if metric in metrics else metric
    protocol = f"\n({report['protocol']})" * (report["protocol"] is not None)
    titles = {test: f"held-out {word}{protocol}", f"train/{metric}": f"train {word}", "test/ssim": "SSIM"}
    shown = [key for key in titles if key in report and (key == test or report[key] is not None)]
    units = {key: "" if key == "test/ssim" else unit for key in shown}
    per = " per signal" if "grid" in report else ""
    table = Table(title=f"{report['model']}, {_encoders(report)}, {report['num_params']:,} parameters{per}")
    table.add_column("signal")
    for key in units:
        table.add_column(titles[key], justify="right")
    if report["num_signals"] <= MOST_ROWS:
        for index, name in enumerate(report["signals"]):
            table.add_row(name, *[_shown(report[f"{key}_per_signal"][index], of) for key, of in units.items()])
    if report["num_signals"] > 1:
        table.add_section()
        table.add_row("mean ± std", *[_shown(report[key], of, report[f"{key}_std"]) for key, of in units.items()])
    baselines = {name: row for name, row in report["baselines"].items() if row[test] is not None}
    table.add_section()
    for name, row in sorted(baselines.items(), key=lambda item: item[1][test]):
        deviation = row[f"{test}_std"] if report["num_signals"] > 1 else None
        table.add_row(f"{name} interpolation", _shown(row[test], unit, deviation), style="dim")
    console.print(table)
    for name, row in report["baselines"].items():
        if name not in baselines:
            console.print(f"{name} interpolation: {row[f'{test}_reason']}", highlight=False, markup=False)
    for key in units:
        if reason := report.get(f"{key}_reason"):
            console.print(f"{key}: {reason}", highlight=False)
    folder = Path(os.path.relpath(run_dir)) if run_dir.is_relative_to(Path.cwd()) else run_dir
    if hint := advice(report, folder):
        console.print(hint, style="yellow", highlight=False, soft_wrap=True)
    if report["fit_seconds"] is not None:
        solved = report.get("solve_seconds") is not None
        parts = ["solved exactly"] * solved + [f"{report['steps']} steps"] * (report["steps"] > 0 or not solved)
        console.print(f"{', then '.join(parts)} in {report['fit_seconds']:.1f} s", highlight=False)
    # printed without wrapping, so that the path can be copied
    if (run_dir / runs.RECONSTRUCTIONS).is_dir():
        print(f"reconstructions: {folder / runs.RECONSTRUCTIONS}")
    print(f"metrics:         {folder / runs.METRICS}")


def advice(report: Mapping[str, Any], folder: Path) -> str:
    """A line where a result is below simple interpolation, with what to try; else nothing.

    Args:
        report: The content of ``metrics.json``.
        folder: The run directory.
    """
    test, baselines = f"test/{report['metric']}", report["baselines"]
    if report[test] is None or not baselines:  # which are there for registered metrics only
        return ""
    metric = metrics.get(report["metric"])
    sign = 1 if metric.higher_is_better else -1
    rivals = {name: baselines[name][test] for name in ("nearest", "linear", "delaunay") if name in baselines}
    ahead = {name: sign * (score - report[test]) for name, score in rivals.items() if score is not None}
    name = next((name for name in ahead if ahead[name] > 0), None)
    if name is None:
        return ""
    exact = "the exact fit (--model.warm_start true --trainer.max_steps 0), or "
    trained = report.get("solve_seconds") is None and report["model"] == "ComplexLinear"
    config = folder / runs.CONFIG
    other = f"pe-lightning suggest --config {shlex.quote(str(config))}" if config.is_file() else "another encoder or width"
    return f"{f'{ahead[name]:.2f} {metric.unit}'.rstrip()} below {name} interpolation. Try {exact * trained}{other}."


def _shown(value: float | None, unit: str, deviation: float | None = None) -> str:
    digits = 2 if unit else 4
    numbers = [f"{number:.{digits}f}" for number in (value, deviation) if number is not None]
    return f"{' ± '.join(numbers) or '-'} {unit if numbers else ''}".rstrip()
