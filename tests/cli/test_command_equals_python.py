"""What the command line fits is what Python fits with the same settings, and what a loop of a few lines fits."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray
import yaml
from lightning.pytorch import Trainer, seed_everything
from PIL import Image
from torch import Tensor
from torch.utils._pytree import tree_leaves

import pe_lightning
from pe_lightning import encoders
from pe_lightning.__main__ import main
from pe_lightning.cli import recipes
from pe_lightning.training import ComplexLinear

ROOT = Path(__file__).parents[2]
FITTED = ("image/varpro", "image/warm_head", "points/adaptive", "labelled/closed_form", "row/depth", "video/random_points")
"""Kinds of fits beside those that a stock LightningCLI repeats in ``test_stock_cli.py``; the other recipes are stress."""
RECIPES = [
    pytest.param(
        Path(recipes.find(name)).resolve(), id=name, marks=pytest.mark.slow if name in FITTED else pytest.mark.stress
    )
    for name in recipes.names()
    if not name.startswith("attention/")
]
STEPS = 12
SMALL: dict[str, list[str]] = {
    "image": ["--data.resize", "48", "--model.encoder.num_features", "16"],
    "row": ["--data.resize", "24", "--data.num_rows", "3", "--model.encoder.num_features", "16"],
    "video": ["--data.preset", "null", "--data.frames", "[0,8]", "--data.resize", "16", "--model.encoder.num_features", "8"],
    "volume": ["--model.encoder.num_features", "8"],
    "points": ["--data.paths", "stations.csv", "--model.encoder.num_features", "8"],
    "labelled": ["--data.paths", "sst.nc", "--model.encoder.num_features", "8"],
    "paper": ["--data.preset", "null", "--data.frames", "[0,8]", "--data.resize", "16", "--model.encoder.num_features", "8"],
}
"""What makes the recipes of a folder small."""
QUIET = ["--wandb.enabled", "false", "--trainer.logger", "false", "--trainer.enable_progress_bar", "false"]
QUIET += ["--trainer.accelerator", "cpu"]
PAPERS_ADAM = ["--model.optimizer", "Adam", "--model.optimizer.lr", "0.1", "--model.optimizer.weight_decay", "1e-8"]
TABLE_1 = {"linf": 3.0, "logf": 3.0, "rff": 6.0, "tri": 0.1, "gau": 0.05}
"""The encoders of the papers' Table 1, with widths for 16 features."""


def fitted_by_command(arguments: list[str], folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights in the last checkpoint of a command, and the configuration that its run keeps."""
    assert main(["fit", *arguments, *QUIET, "--trainer.default_root_dir", str(folder)]) == 0
    (checkpoint,) = folder.rglob("last.ckpt")
    config = yaml.safe_load((checkpoint.parents[1] / "config.yaml").read_text())
    saved = torch.load(checkpoint, weights_only=True)
    if "pe_lightning/sparse" in saved:  # in place of the weights
        return pe_lightning.load(checkpoint).state_dict(), config
    return saved["state_dict"], config


def made(plain: dict[str, Any]) -> Any:
    """The instance that a ``class_path`` and its ``init_args`` describe."""
    module, _, name = plain["class_path"].rpartition(".")
    arguments = dict(plain["init_args"])
    if isinstance(optimizer := arguments.pop("optimizer", None), dict):
        arguments["optimizer"] = lambda parameters: getattr(torch.optim, optimizer["class_path"].rpartition(".")[2])(
            parameters, **optimizer["init_args"]
        )
    return getattr(importlib.import_module(module), name)(**arguments)


def fitted_by_python(config: dict[str, Any], folder: Path) -> dict[str, Tensor]:
    """The weights that a Trainer reaches with the same settings."""
    seed_everything(config["seed_everything"], verbose=False)
    model, data = made(config["model"]), made(config["data"])
    trainer = Trainer(
        max_steps=config["trainer"]["max_steps"],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
    )
    trainer.fit(model, data)
    return model.state_dict()


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        for first, second in zip(tree_leaves(value), tree_leaves(other[name]), strict=True):
            assert first.equal(second) if isinstance(first, Tensor) else first == second, name


@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.choice.ChoiceWarning")  # small data
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_fits_the_same_by_command_and_by_python(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_measurements()
    given = yaml.safe_load(recipe.read_text())
    small, encoder = SMALL[recipe.parent.name], given["model"].get("init_args", {}).get("encoder")
    name = encoder["name"] if isinstance(encoder, dict) else encoder
    takes = () if name is None else encoders.registry.parameters(encoders.registry.get(name))
    if "num_features" not in takes or given["model"]["class_path"] == "Adaptive":
        small = small[: small.index("--model.encoder.num_features")]
    steps = str(min(given["trainer"]["max_steps"], STEPS))
    arguments = ["--config", str(recipe), *small, "--trainer.max_steps", steps]
    state, config = fitted_by_command(arguments, tmp_path)
    assert_same(state, fitted_by_python(config, tmp_path))


def write_measurements() -> None:
    """A table of 200 stations, and an array with coordinates."""
    rows = np.random.default_rng(5).random((200, 3))
    np.savetxt("stations.csv", rows, delimiter=",", header="lon,lat,temperature", comments="")
    axes = {"lat": np.arange(12.0), "lon": np.linspace(0, 3, 14) ** 2}
    values = np.sin(axes["lat"])[:, None] + np.cos(axes["lon"])
    xarray.DataArray(values, axes, name="sst").to_netcdf("sst.nc", engine="h5netcdf")


def write_picture(path: Path) -> Tensor:
    """A picture of smooth and rough parts whose mean is far from zero, saved as PNG; its values, ``(24, 24, 3)``."""
    y, x = torch.meshgrid(torch.arange(24) / 24, torch.arange(24) / 24, indexing="ij")
    noise = torch.rand(24, 24, generator=torch.Generator().manual_seed(1))
    values = torch.stack([0.6 + 0.3 * torch.sin(7 * x + 3 * y), 0.7 * x * y + 0.2, 0.5 + 0.2 * noise], -1)
    pixels = (255 * values).round().to(torch.uint8)
    Image.fromarray(pixels.numpy()).save(path)
    return pixels / 255


def features(name: str, width: float, x: Tensor, count: int) -> Tensor:
    """The papers' Eqs. 50-54 as they are printed, with the square that Eq. 54 lost."""
    shifts, steps = torch.arange(count) / count, count // 2
    if name == "gau":
        return torch.exp(-((x[:, None] - shifts) ** 2) / (2 * width**2))
    if name == "tri":
        return (1 - (x[:, None] - shifts).abs() / width).clamp_min(0)
    frequencies = {
        "linf": torch.linspace(1, 2**width, steps),
        "logf": 2 ** torch.linspace(0, width, steps),
        "rff": width * torch.randn(steps, 1, generator=torch.Generator().manual_seed(0))[:, 0],
    }[name]
    phase = 2 * math.pi * x[:, None] * frequencies
    return torch.cat([phase.cos(), phase.sin()], 1)


def independent_fit(name: str, width: float, values: Tensor, center: bool, normalize: bool, steps: int) -> Tensor:
    """The linear layer of a complex encoding in the fewest lines: the fit on the whole grid, ``(24, 24, 3)``.

    By the papers' Adam where the picture is fitted as it is, else by the default optimiser.
    """
    x = torch.arange(24) / 24
    psi = features(name, width, x, 16)
    if normalize:
        psi = psi / psi[::2].norm(dim=1).max()
    target = values[::2, ::2]
    mean = target.mean((0, 1)) if center else torch.zeros(3)
    weight = torch.zeros(16, 16, 3, requires_grad=True)
    curvature = 2 / target.numel() * float(torch.linalg.matrix_norm(psi[::2].double(), 2)) ** 4
    optimizer = torch.optim.Adam([weight], lr=0.1, weight_decay=1e-8)
    if center:
        optimizer = torch.optim.SGD([weight], lr=1 / curvature, momentum=0.9, nesterov=True)
    for step in range(steps):
        optimizer.zero_grad()
        if center:
            optimizer.param_groups[0]["lr"] = 1 / curvature / (1 + step / 500)
        prediction = torch.einsum("ik,jl,klc->ijc", psi[::2], psi[::2], weight)
        (prediction - (target - mean)).square().mean().backward()
        optimizer.step()
    return torch.einsum("ik,jl,klc->ijc", psi, psi, weight.detach()) + mean


@pytest.mark.filterwarnings("ignore:the frequencies that 'rff' drew")
@pytest.mark.parametrize(("name", "center"), [("linf", True), ("tri", True), ("gau", False), ("rff", False)])
def test_the_command_and_python_fit_what_an_independent_loop_fits(name: str, center: bool, tmp_path: Path) -> None:
    values, width = write_picture(tmp_path / "picture.png"), TABLE_1[name]
    argument = "half_width" if name == "tri" else "sigma"
    expected = independent_fit(name, width, values, center, normalize=True, steps=STEPS)
    if not center:
        unscaled = independent_fit(name, width, values, center, normalize=False, steps=STEPS)
        assert (expected - unscaled).abs().max() > 0.01, "the scales make a difference, so that this test can fail"

    state, config = fitted_by_command(
        ["--model", "ComplexLinear", "--model.encoder", name, f"--model.encoder.{argument}", str(width),
         "--model.encoder.num_features", "16", "--model.center", str(center).lower(), *([] if center else PAPERS_ADAM),
         "--data", "ImageDataModule", "--data.paths", str(tmp_path / "picture.png"),
         "--trainer.max_steps", str(STEPS)],
        tmp_path,
    )  # fmt: skip
    assert_same(state, fitted_by_python(config, tmp_path))

    (checkpoint,) = tmp_path.rglob("last.ckpt")
    found = ComplexLinear.load_from_checkpoint(checkpoint).predict_grid([torch.arange(24) / 24] * 2)[0]
    torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-3)


@pytest.mark.slow  # six fits
@pytest.mark.parametrize(
    "recipe", [["image/closed_form"], ["image/demo", "--trainer.max_steps", "3"]], ids=["exact", "trained"]
)
def test_an_encoder_without_a_seed_follows_the_run(recipe: list[str], tmp_path: Path) -> None:
    """A given seed stays; checkpoints hold the seed, so that loading and resuming do not depend on the run."""
    write_picture(tmp_path / "a.png")
    fit = ["--config", *recipe, "--data.paths", str(tmp_path / "a.png"), "--model.encoder", "rff"]
    fit += ["--model.encoder.num_features", "8"]
    states = {}
    for seed, given in (("0", None), ("1", None), ("2", "1")):
        folder = tmp_path / f"seed-{seed}"
        own = [] if given is None else ["--model.encoder.seed", given]
        states[seed], config = fitted_by_command([*fit, *own, "--seed_everything", seed], folder)
        assert_same(states[seed], fitted_by_python(config, tmp_path))
        (checkpoint,) = folder.rglob("last.ckpt")
        seed_everything(7, verbose=False)
        model = pe_lightning.load(checkpoint)
        assert model.encoder.spec()["seed"] == int(given or seed)
        assert_same(model.state_dict(), states[seed])
    assert_same(states["1"], states["2"])
    assert not all(torch.equal(value, states["1"][name]) for name, value in states["0"].items())
    if "--trainer.max_steps" in recipe:
        (checkpoint,) = (tmp_path / "seed-1").rglob("last.ckpt")
        assert main(["fit", *QUIET, "--ckpt_path", str(checkpoint), *fit, "--trainer.max_steps", "5"]) == 0
        assert torch.load(checkpoint, weights_only=True)["hyper_parameters"]["encoder"]["seed"] == 1
        assert main(["fit", *QUIET, "--ckpt_path", str(checkpoint), *fit, "--seed_everything", "2"]) == 2
