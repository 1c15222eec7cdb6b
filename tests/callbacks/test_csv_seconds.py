"""The column of the CSV log that has the seconds of the fit."""

import csv
import json
from pathlib import Path

from lightning.pytorch import Callback
from small_fits import signals

from pe_lightning.__main__ import main
from pe_lightning.experiments.compare.curves import read_curve
from pe_lightning.experiments.compare.reading import find_runs

ROOT = Path(__file__).parents[2]


class Pass(Callback):
    """Lets a step take a second and a validation a thousand."""

    def __init__(self, now):
        self.now = now

    def on_train_batch_end(self, *_):
        self.now[0] += 1

    def on_validation_end(self, *_):
        self.now[0] += 1000


def rows(run: Path, version: int = 0) -> list[dict[str, str]]:
    with (run / f"logs/version_{version}/metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_rows_have_the_seconds_of_training_and_a_resumed_fit_goes_on(fit, now):
    run = fit("simple", signals(2, 16, 12), [Pass(now)], steps=12)  # validated every 6 steps
    found = rows(run.folder)
    assert any(row["train/loss"] for row in found)
    assert [float(row["seconds"]) for row in found if row["val/psnr"]] == [6, 12]
    assert {row["seconds"] for row in found} <= {str(float(row["step"])) for row in found} | {"12.0"}
    checkpoint = run.folder / "checkpoints/last.ckpt"
    run.trainer.save_checkpoint(checkpoint)
    fit("simple", signals(2, 16, 12), [Pass(now)], steps=24, ckpt_path=checkpoint)
    assert [float(row["seconds"]) for row in rows(run.folder, 1) if row["val/psnr"]][-2:] == [18, 24]


def test_a_run_and_its_continuation_make_one_measured_curve(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = [
        "fit",
        "--config",
        str(ROOT / "configs/image/demo.yaml"),
        "--data.resize",
        "32",
        "--data.steps_per_epoch",
        "10",
    ]
    command += ["--model.encoder.num_features", "16", "--trainer.accelerator", "cpu", "--wandb.enabled", "false"]
    command += ["--trainer.log_every_n_steps", "5"]
    assert main([*command, "--trainer.max_steps", "20"]) == 0
    (run,) = Path("runs").glob("*/1")
    first = json.loads((run / "metrics.json").read_text())["fit_seconds"]
    assert float(rows(run)[-1]["seconds"]) == first, "the scores of the end"
    assert main([*command, "--trainer.max_steps", "40", "--ckpt_path", str(run / "checkpoints/last.ckpt")]) == 0
    total = json.loads((run / "metrics.json").read_text())["fit_seconds"]
    for version, low, high in ((0, 0, first), (1, first, total)):
        seconds = [float(row["seconds"]) for row in rows(run, version)]
        assert seconds == sorted(seconds)
        assert low < seconds[0] <= seconds[-1] == high
    curve = read_curve(find_runs([run]).runs[0])
    assert curve.measured
    assert len(curve.steps) == 4
    assert list(curve.seconds) == sorted(set(curve.seconds))
    assert curve.seconds[1] <= first < curve.seconds[2] < total
