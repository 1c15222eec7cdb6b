"""What the project is asked to be, clause by clause: a test is named after its clause, and none is deleted.

A Lightning-based training framework with a plugin registry: LightningDataModules stream 1-D rows, 2-D images and 3-D video
cubes (grid or random sampling, cached in HDF5), a registry maps encoder names to implementations, and LightningModules pair
simple encoding with MLPs or complex encoding with a single linear layer (with a closed-form warm start), logging PSNR to W&B
across multi-GPU runs. It is used by ``LightningCLI fit --config``, multi-GPU training runs, and W&B experiment comparison.
"""

from __future__ import annotations

import ast
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
import torchmetrics
from commands import DEMO, NO_WANDB, fit, metrics
from fits import Losses, smooth
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from stopping import run_command
from wandb_files import logged

from pe_lightning import ComplexLinear, SimpleMLP
from pe_lightning.cli import recipes
from pe_lightning.encoders import Encoder, registry
from pe_lightning.evaluation.metrics import metrics as scores
from pe_lightning.training import ImageDataModule, RowDataModule, TensorDataModule, VideoDataModule

ROOT = Path(__file__).parents[1]
CPU = ["--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"]

pytestmark = pytest.mark.usefixtures("empty_folder")

# -- packages, and the top level ------------------------------------------------------------------------------

PARTS = {
    "lightning": "training",
    "torch": "encoders",
    "torchmetrics": "evaluation",
    "jsonargparse": "cli",
    "wandb": "training/callbacks",
    "h5py": "signals",
}
"""Which part of the package each required package does the work of."""


@pytest.mark.parametrize("package", PARTS)
def test_packages_lightning_torch_torchmetrics_jsonargparse_wandb_h5py(package: str) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    required = text[text.index("\ndependencies = [") : text.index("[project.optional-dependencies]")]
    assert re.search(rf'"{package}(\[\w+\])?>=[\d.]+"', required)
    imported = set()
    for path in (ROOT / "pe_lightning" / PARTS[package]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).partition(".")[0])
    assert package in imported


def test_top_level_pyproject_pe_lightning_configs_datasets_tests_readme() -> None:
    for name in ("pyproject.toml", "README.md"):
        assert (ROOT / name).is_file()
    for name in ("pe_lightning", "configs", "datasets", "tests"):
        assert (ROOT / name).is_dir()
        assert not (ROOT / name).is_symlink()
    assert (ROOT / "configs/image/demo.yaml").is_file()


# -- LightningDataModules -------------------------------------------------------------------------------------

KINDS: dict[str, tuple[type[LightningDataModule], list[str]]] = {
    "row/depth": (RowDataModule, ["--data.rows=[100, 101]", "--model.hidden_size=8", "--model.encoder.num_features=8"]),
    "image/demo": (ImageDataModule, ["--data.resize=24", "--model.encoder.num_features=8"]),
    "video/complex_gau": (VideoDataModule, ["--data.frames=[0, 8]", "--data.resize=16", "--model.encoder.num_features=8"]),
}
SAMPLINGS = {"grid": "grid", "random": "{name: random, fraction: 0.25, shared: true}"}


@pytest.mark.parametrize("streamed", [False, True], ids=["in memory", "streamed"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("recipe", KINDS)
def test_data_modules_stream_rows_images_and_video_cubes_of_grid_or_random_samples(
    recipe: str, sampling: str, streamed: bool
) -> None:
    module, small = KINDS[recipe]
    assert issubclass(module, LightningDataModule)
    options = [f"--data.sampling={SAMPLINGS[sampling]}", f"--data.storage.in_memory={str(not streamed).lower()}"]
    batches = ["--data.batching.kind=points", "--data.batching.size=64"] if streamed else []
    batches += ["--trainer.log_every_n_steps=1"]
    run = fit(f"--config={recipe}", *small, *options, *batches, "--trainer.max_steps=2", *CPU, *NO_WANDB)
    found = metrics(run)
    assert (found["steps"], len(found["grid"])) == (2, {"row": 1, "image": 2, "video": 3}[recipe.partition("/")[0]])
    assert math.isfinite(found["test/psnr"])
    assert math.isfinite(found["train/psnr"])


def test_decoded_signals_are_cached_in_hdf5(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PE_LIGHTNING_CACHE", str(tmp_path / "cache"))
    data = VideoDataModule("samples://bigbuckbunny", frames=[0, 8], resize=16)
    assert data.values.shape == (1, 8, 16, 28, 3)
    (entry,) = (tmp_path / "cache").glob("*.h5")
    with h5py.File(entry) as file:
        assert file["values"].chunks is not None
        assert file["values"].fletcher32
        assert torch.equal(torch.from_numpy(file["values"][()]) / 255, data.values)


# -- the registry, simple and complex encoding ----------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["simple", "complex"])
@pytest.mark.parametrize("name", sorted(registry))
def test_a_registry_maps_encoder_names_to_implementations_for_simple_and_complex_encoding(
    name: str, encoding: str, make_trainer: Any
) -> None:
    assert issubclass(registry.get(name), Encoder)
    module = SimpleMLP if encoding == "simple" else ComplexLinear
    more = {"depth": 2, "hidden_size": 8} if encoding == "simple" else {}
    model = module({"name": name}, **more)
    make_trainer(max_steps=2).fit(model, TensorDataModule(smooth(1, (12, 10))))
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_complex_encoding_pairs_with_one_linear_layer_and_simple_encoding_with_an_mlp(make_trainer: Any) -> None:
    data = TensorDataModule(smooth(1, (12, 10)))
    linear, mlp = ComplexLinear({"name": "gau", "num_features": 4}), SimpleMLP({"name": "gau", "num_features": 4}, depth=2)
    for model in (linear, mlp):
        make_trainer(max_steps=1).fit(model, data)
    assert next(tuple(parameter.shape) for parameter in linear.parameters() if parameter.requires_grad) == (1, 3, 4, 4)
    assert sum(isinstance(layer, torch.nn.Linear) for layer in mlp.modules()) >= 3


def test_a_closed_form_warm_start_begins_at_the_score_of_the_exact_solution(make_trainer: Any) -> None:
    data, encoder = TensorDataModule(smooth(1, (24, 20))), {"name": "gau", "num_features": 8}
    exact = ComplexLinear(encoder, solver="exact")
    trainer = make_trainer(max_steps=0)
    trainer.fit(exact, data)
    batch = data.train_batch()
    error = (exact.predict_grid(batch.axes) - batch.values).square().mean().item()
    losses = Losses()
    make_trainer(max_steps=5, callbacks=[losses]).fit(ComplexLinear(encoder, solver="exact"), data)
    assert losses.values[0] == pytest.approx(error, rel=1e-4)
    assert losses.values[-1] <= losses.values[0] * (1 + 1e-3)


def test_scores_are_torchmetrics() -> None:
    assert "psnr" in scores
    assert all(isinstance(scores.create(name, num_signals=2), torchmetrics.Metric) for name in scores)


# -- PSNR in W&B, on several devices --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_psnr_is_logged_to_wandb_across_devices(devices: int, tmp_path: Path) -> None:
    several = ["--trainer.devices", "2", "--trainer.strategy", "ddp"] if devices == 2 else []
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), "WANDB_MODE": "offline"}
    done = run_command(tmp_path, "fit", *DEMO, *several, environment=environment)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.rglob("*.wandb")
    found, (run,) = logged(file), tmp_path.glob("runs/*/1")
    assert found["val/psnr"] == sorted(found["val/psnr"])
    assert len(found["val/psnr"]) == 2
    assert found["test/psnr"] == [pytest.approx(metrics(run)["test/psnr"], abs=1e-4)]


# -- LightningCLI fit --config --------------------------------------------------------------------------------


class Parsed(LightningCLI):
    """The configuration alone."""

    def instantiate_classes(self) -> None:
        """Makes nothing."""


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_is_a_configuration_of_lightning_cli(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["main.py"])
    arguments = [f"--config={recipes.find(name)}"]
    options: dict[str, Any] = {"subclass_mode_model": True, "subclass_mode_data": True, "save_config_callback": None}
    config = Parsed(LightningModule, LightningDataModule, args=arguments, run=False, **options).config
    assert config.model.class_path
    assert config.data.class_path
