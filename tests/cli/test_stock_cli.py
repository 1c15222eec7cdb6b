"""A LightningCLI of Lightning, without anything of ours, takes every recipe and every saved configuration, and fits them."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from commands import NO_WANDB, error_of, fit, metrics
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningCLI
from stopping import run_command
from torch.utils._pytree import tree_leaves

import pe_lightning
from pe_lightning.__main__ import main
from pe_lightning.cli import recipes
from pe_lightning.errors import InputError

ROOT = Path(__file__).parents[2]
PICTURE = ["--data.paths=samples://astronaut", "--data.resize=24", "--trainer.accelerator=cpu"]
QUIET = ["--trainer.logger=false", "--trainer.enable_checkpointing=false", "--trainer.enable_progress_bar=false"]

pytestmark = pytest.mark.usefixtures("empty_folder")


class Parsed(LightningCLI):
    """The configuration alone."""

    def instantiate_classes(self) -> None:
        """Makes nothing."""


def stock(*args: str, cls: type[LightningCLI] = LightningCLI, run: bool = False) -> LightningCLI:
    """As a user writes it."""
    options: dict[str, Any] = {"subclass_mode_model": True, "subclass_mode_data": True, "save_config_callback": None}
    options["seed_everything_default"] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["main.py"])
        return cls(LightningModule, LightningDataModule, args=list(args), run=run, **options)


def fitted(*args: str) -> tuple[LightningModule, Trainer]:
    made = stock(*args)
    made.trainer.fit(made.model, datamodule=made.datamodule)
    return made.model, made.trainer


def weights(run: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    return found


KINDS = {
    "image/demo": [*PICTURE, "--trainer.max_steps=7"],
    "image/closed_form": PICTURE,
    "image/adaptive": PICTURE,
    "image/sparse": PICTURE,
    "image/siren": [*PICTURE, "--data.batching.size=99", "--trainer.max_steps=7"],
    "row/adaptive": ["--data.rows=[100, 101]"],
    "attention/layout": ["--data.num_train=77", "--trainer.max_steps=2", "--trainer.log_every_n_steps=1"],
}


def same(one: object, other: object) -> bool:
    """Whether tensors, or plain values beside them, are equal."""
    return torch.equal(one.cpu(), other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.slow  # three fits of each
@pytest.mark.parametrize("recipe", [name for name in KINDS if name in recipes.names()])
def test_a_fit_has_the_weights_of_the_command_and_its_saved_configuration_repeats_it(recipe):
    given = [f"--config={recipes.find(recipe)}", *KINDS[recipe], "--trainer.accelerator=cpu"]
    run = fit(*given, *NO_WANDB)
    expected = weights(run)
    for args in (given, [f"--config={run}/config.yaml", "--trainer.callbacks=null"]):
        fitted(*args, *QUIET)[1].save_checkpoint("stock.ckpt")
        found = torch.load("stock.ckpt", weights_only=True)["state_dict"]
        assert found.keys() == expected.keys()
        assert all(map(same, tree_leaves(found), tree_leaves(expected)))


ENCODERS: dict[str, Any] = {
    "word": "gau",
    "name": {"name": "gau", "sigma": 0.1},
    "path": {"class_path": "pe_lightning.encoders.Gaussian", "init_args": {"sigma": 0.1}},
    "list": ["gau", {"class_path": "pe_lightning.encoders.Triangle"}],
}


@pytest.mark.parametrize("one", ENCODERS)
def test_an_encoder_replaces_another_however_both_are_written(one):
    recipe = f"--config={ROOT}/configs/image/demo.yaml"
    for name, encoder in ENCODERS.items():
        Path(f"{name}.json").write_text(json.dumps({"model": {"init_args": {"encoder": encoder}}}))
    for other, encoder in ENCODERS.items():
        config = stock(recipe, f"--config={one}.json", f"--config={other}.json", cls=Parsed).config
        assert config.model.init_args.encoder == encoder
    assert stock(recipe, "--config=path.json", "--model.encoder.sigma=0.3", *PICTURE).model.encoder.sigma == 0.3


def test_the_rate_of_the_default_optimiser():
    assert stock(f"--config={ROOT}/configs/image/demo.yaml", "--model.lr=1e-2").model.lr == 0.01


def test_a_run_directory_is_no_signal(capsys):
    run = fit(f"--config={ROOT}/configs/image/closed_form.yaml", *PICTURE, *NO_WANDB)
    for arguments in (["fit", f"{run}/"], ["suggest", str(run)]):
        assert f"repeat the run with pe-lightning fit --config {run}/config.yaml" in error_of(capsys, arguments)
    with pytest.raises(InputError, match="is a run directory"):
        pe_lightning.fit(str(run))


@pytest.mark.slow
def test_checkpoints_are_validated_tested_and_resumed():
    args = [f"--config={ROOT}/configs/image/demo.yaml", *PICTURE, "--trainer.logger=false"]
    whole = stock("fit", *args, "--trainer.max_steps=6", run=True).model.state_dict()
    stock("fit", *args, "--trainer.max_steps=3", run=True)
    (checkpoint,) = Path().rglob("*step=3.ckpt")
    resumed = stock("fit", *args, "--trainer.max_steps=6", f"--ckpt_path={checkpoint}", run=True).model.state_dict()
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items())
    validated, tested = (
        stock(verb, *args, f"--ckpt_path={checkpoint}", run=True).trainer.callback_metrics for verb in ("validate", "test")
    )
    assert float(validated["val/psnr"]) == pytest.approx(float(tested["test/psnr"]), abs=1e-4)


@pytest.mark.parametrize(("steps", "epochs"), [(0, []), (13, [10, 13]), (20, [10, 20])])
def test_the_score_of_the_final_weights_reaches_the_loggers(steps, epochs):
    recipe = "closed_form" if steps == 0 else "demo"
    args = [f"--config={ROOT}/configs/image/{recipe}.yaml", *PICTURE, f"--trainer.max_steps={steps}"]
    args += ["--trainer.log_every_n_steps=5", "--data.batching.steps_per_epoch=10"]
    args += ["--trainer.logger=CSVLogger", "--trainer.logger.save_dir=logs"]
    model, trainer = fitted(*args, "--trainer.enable_progress_bar=false", "--trainer.enable_checkpointing=false")
    rows = list(csv.DictReader((Path(str(trainer.log_dir)) / "metrics.csv").read_text().splitlines()))
    logged = {int(row["step"]): float(row["val/psnr"]) for row in rows if row.get("val/psnr")}
    assert list(logged) == (epochs or [0])
    batch = stock(*args).datamodule.evaluation_batch()
    with torch.no_grad():
        errors = ((model.predicted(batch) - batch.values) ** 2)[batch.mask.expand(batch.values.shape[:-1])]
    assert logged[steps] == pytest.approx(float(-10 * errors.mean().log10()), abs=1e-3)


def test_a_saved_configuration_records_again_and_does_not_resume():
    first = fit("--config", "image/demo", *PICTURE, "--trainer.max_steps", "3", *NO_WANDB, "--wandb.project", "mine")
    fit_again = ["--config", str(first / "config.yaml"), "--trainer.max_steps", "5"]
    resumed = ["--ckpt_path", str(first / "checkpoints/last.ckpt")]
    assert main(["fit", *fit_again, *resumed]) == 0
    assert (list(Path("runs").glob("*/*")), metrics(first)["steps"]) == ([first], 5), "in its directory"
    saved = yaml.safe_load((first / "config.yaml").read_text())
    assert "ckpt_path" not in saved
    assert saved["trainer"]["max_steps"] == 5
    assert saved.keys() == {"seed_everything", "model", "data", "trainer"}
    assert saved["trainer"]["callbacks"][0]["init_args"]["wandb"]["project"] == "mine"
    again = fit("--config", str(first / "config.yaml"))
    assert (again, metrics(again)["test/psnr"]) == (first.parent / "2", metrics(first)["test/psnr"])
    made = stock("--config", str(first / "config.yaml"), "--trainer.default_root_dir=own")
    made.trainer.fit(made.model, datamodule=made.datamodule)
    made.trainer.test(made.model, datamodule=made.datamodule, verbose=False)
    (run,) = Path("own").glob("runs/*/*")
    assert (run / "metrics.json").is_file(), "the recorder is a callback of the configuration"
    assert all(torch.equal(weights(run)[key], value) for key, value in weights(first).items()), "as the run that was resumed"


@pytest.mark.slow
def test_two_processes_have_the_weights_of_one():
    program = (ROOT / "docs/lightning_cli.md").read_text().partition("```python\n")[2].partition("```")[0]
    Path("main.py").write_text(program)
    args = ["main.py", "fit", f"--config={ROOT}/configs/image/demo.yaml", *PICTURE, "--trainer.max_steps=7"]
    for name, more in (("one", []), ("two", ["--trainer.devices", "2", "--trainer.strategy=ddp"])):
        done = run_command(Path(), *args, *more, f"--trainer.default_root_dir={name}")
        assert done.returncode == 0, done.stderr
    files = (next(Path(name).rglob("*.ckpt")) for name in ("one", "two"))
    one, two = (torch.load(path, weights_only=True)["state_dict"] for path in files)
    assert all(torch.allclose(one[key], two[key], atol=1e-6) for key in one)
