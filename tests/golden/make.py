"""Writes the files of ``test_golden.py``: checkpoints, predictions and runs by the code of the day.

Run it (``python tests/golden/make.py``) only for a new kind of model, and for a version that reads no older checkpoints:
old files stand for the files that users have.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from PIL import Image

from pe_fill import Adaptive, Local, PointsDataModule, SparseLinear
from pe_fill.estimators.priors import PRIOR_KEY
from pe_fill.networks.local import LocalPrior
from pe_lightning import ComplexLinear, SimpleMLP
from pe_lightning.__main__ import main
from pe_lightning.signals.sampling import GridSampling, RandomSampling
from pe_lightning.training import TensorDataModule
from pe_papers.tasks import LayoutDataModule, LayoutRelations

FOLDER = Path(__file__).parent
EXPECTED, PRIOR, PICTURE, STATIONS = map(FOLDER.joinpath, ("expected.json", "prior.ckpt", "picture.png", "stations.csv"))
GAU = {"name": "gau", "num_features": 6, "sigma": 0.12}
CHOSEN = {"num_features": 8, "sigma": 0.16, "padding": "edge"}
"""By 0.3; later versions choose others."""
LEARNED = {"name": "gau", "num_features": 6, "trainable": True}
HASH = {"name": "hash", "num_levels": 2, "table_size": 32}
POINTS: dict[str, Any] = {"paths": STATIONS.name, "coordinates": ["lon", "lat"], "values": ["temperature"]}
HEAD = {"depth": 1, "hidden_size": 6}


def picture(size: int = 16) -> torch.Tensor:
    """Two smooth signals ``(2, size, size, 2)``."""
    y, x = torch.meshgrid(*[torch.arange(size) / size] * 2, indexing="ij")
    waves = [torch.sin(6 * x + 3 * y + c) * torch.cos(c * y) for c in range(4)]
    return 0.5 + 0.4 * torch.stack(waves).reshape(2, 2, size, size).movedim(1, -1)


def rows() -> TensorDataModule:
    return TensorDataModule(picture()[:, 3, :, :1])


def image(sampling: Any = "grid") -> TensorDataModule:
    return TensorDataModule(picture()[:1], sampling=sampling)


def cube() -> TensorDataModule:
    return TensorDataModule(torch.stack([picture(8)[0] ** (1 + t / 4) for t in range(8)])[None])


def blocks() -> TensorDataModule:
    """Large enough for a weight of the prior, which is positive here."""
    bits = (torch.rand(1, 10, 10, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    large = bits.repeat_interleave(4, 1).repeat_interleave(4, 2)[:, :36, :36]
    return TensorDataModule(torch.nn.functional.avg_pool2d(large, 3, 1, 1)[..., None])


CASES: dict[str, tuple[Any, Any, int]] = {
    "exact": (lambda: ComplexLinear({**GAU, **CHOSEN}, solver="exact", ridge=1.7782794100389226e-09), image, 0),
    "exact-row-rff": (lambda: ComplexLinear({"name": "rff", "num_features": 12, "sigma": 2.0}, solver="exact"), rows, 0),
    "exact-cube-tri": (lambda: ComplexLinear({"name": "tri", "num_features": 4}, solver="exact", ridge=1e-4), cube, 0),
    "exact-random": (lambda: ComplexLinear(GAU, solver="exact"), lambda: image(RandomSampling(0.5)), 0),
    "exact-points": (lambda: ComplexLinear.exact("laplace"), lambda: PointsDataModule(**POINTS), 0),
    "exact-learned": (lambda: ComplexLinear(LEARNED, solver="exact"), image, 0),
    "exact-lff": (lambda: ComplexLinear({"name": "lff", "num_features": 8}, **HEAD), image, 5),
    "trained": (lambda: ComplexLinear(GAU), lambda: TensorDataModule(picture()), 5),
    "trained-per-axis": (lambda: ComplexLinear(["bspline", {"name": "linf", "num_features": 6}]), image, 5),
    "trained-head": (lambda: ComplexLinear(GAU, solver="exact", ridge=1e-8, **HEAD), image, 3),
    "sparse": (lambda: SparseLinear("keys", ridge=0, num_coefficients=0.3), lambda: image(GridSampling(1)), 0),
    "hash": (lambda: SimpleMLP(HASH, **HEAD), image, 5),
    "siren": (lambda: SimpleMLP("identity", activation="sine", lr=1e-3, **HEAD), image, 5),
    "mlp-gau": (lambda: SimpleMLP({"name": "gau", "num_features": 16}, **HEAD), lambda: TensorDataModule(picture()), 5),
    "adaptive": (Adaptive, image, 0),
    "adaptive-row": (Adaptive, rows, 0),
    "adaptive-prior": (lambda: Adaptive(pretrained=PRIOR.name), blocks, 0),
    "adaptive-points": (Adaptive, lambda: PointsDataModule(**POINTS), 0),
    "local": (lambda: Local(PRIOR.name), image, 0),
    "layout": (lambda: LayoutRelations({"name": "lff"}, width=8, depth=1, heads=2), lambda: LayoutDataModule(16, 8, 8), 3),
}
"""Model, data and optimiser steps by the name of the checkpoint."""
FEW = ["--model.encoder.num_features", "12"]
RECIPES: dict[str, list[str]] = {
    "closed_form": [PICTURE.name, "--config", "image/closed_form"],
    "adaptive": [PICTURE.name, "--config", "image/adaptive", "--model.pretrained", PRIOR.name],
    "sparse": [PICTURE.name, "--config", "image/sparse"],
    "row": [PICTURE.name, "--config", "row/closed_form", "--data.rows", "[3, 7]"],
    "random_points": [PICTURE.name, "--config", "image/random_points", *FEW, "--trainer.max_steps", "20"],
    "points": [STATIONS.name, "--config", "points/adaptive"],
    "points_exact": [STATIONS.name, "--config", "points/closed_form"],
}
"""Arguments of ``fit``, in a folder with the inputs."""


def predictions(module: LightningModule) -> list[torch.Tensor]:
    """Values at points and on a grid, and standard deviations where the model has them; of the task its answers."""
    with torch.no_grad():
        if isinstance(module, LayoutRelations):
            data = LayoutDataModule(16, 8, 8)
            return [module({name: tensor[:2] for name, tensor in data.examples[data.info["subsets"][0]].items()})]
        axes = module.require_info().num_axes
        points = torch.rand(5, axes, generator=torch.Generator().manual_seed(1))
        grid = [torch.arange(n) / n for n in (5, 4, 3)[:axes]]
        low, high = module.require_info().scaling.limits(0)  # in the units of the source
        values = [module(points), module.predict_grid(grid)]
        deviations = [module.std(points)] if module.has_std else []
        return [*(low + (high - low) * found for found in values), *((high - low) * found for found in deviations)]


def fitted(name: str, path: Path | None = None) -> LightningModule:
    """The model of a case, fitted by the present code, and its checkpoint."""
    torch.manual_seed(0)
    os.chdir(FOLDER)
    make, data, steps = CASES[name]
    module = make()
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(accelerator="cpu", max_steps=steps, limit_val_batches=0, **dict.fromkeys(off, False))
    trainer.fit(module, data())
    if path is not None:
        trainer.save_checkpoint(path)
    return module.eval()


def run(folder: Path, *arguments: str) -> tuple[dict[str, Any], Path]:
    """The metrics of a fit of the inputs by the command, and its run directory."""
    os.chdir(folder)
    for path in (PICTURE, STATIONS, PRIOR):
        shutil.copy(path, folder)
    before = set(Path().glob("runs/*/*"))
    assert main(["fit", *arguments, "--wandb.enabled", "false"]) == 0
    (made,) = set(Path().glob("runs/*/*")) - before
    return json.loads((made / "metrics.json").read_text()), made


def scores(metrics: dict[str, Any]) -> dict[str, float]:
    """Held-out PSNR, where samples are held out, and PSNR of trained samples."""
    return {name: metrics[name] for name in ("test/psnr", "train/psnr") if metrics.get(name) is not None}


def keys(content: Any, prefix: str = "") -> list[str]:
    """Dotted names of all fields of nested mappings."""
    if not isinstance(content, dict):
        return [prefix]
    return sorted(found for key, value in content.items() for found in keys(value, f"{prefix}.{key}".lstrip(".")))


def make_inputs() -> None:
    """The picture, the table of points, and a small network for pictures that improves on interpolation a little."""
    Image.fromarray((picture()[0] * 255).round().byte().repeat(1, 1, 2)[..., :3].numpy()).save(PICTURE)
    places = np.random.default_rng(0).uniform(0, 10, (60, 2))
    table = np.c_[places, np.sin(places[:, 0] / 3) + places[:, 1] / 5]
    np.savetxt(STATIONS, table, "%.4f", ",", header="lon,lat,temperature", comments="")
    torch.manual_seed(0)
    prior = LocalPrior(width=4, depth=1)
    torch.nn.init.normal_(prior.trunk.layers[-1].weight, std=0.01)
    state = {f"prior.{key}": value for key, value in prior.state_dict().items()}
    torch.save({"state_dict": state, PRIOR_KEY: prior.spec()}, PRIOR)


def write() -> None:
    """Writes everything."""
    make_inputs()
    expected: dict[str, Any] = {"predictions": {}, "psnr": {}, "keys": {}}
    for name in CASES:
        module = fitted(name, FOLDER / f"{name}.ckpt")
        expected["predictions"][name] = [[round(v, 7) for v in tensor.flatten().tolist()] for tensor in predictions(module)]
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in RECIPES.items():
            metrics, made = run(Path(folder), *arguments)
            expected["psnr"][name], expected["keys"][name] = scores(metrics), keys(metrics)
            (FOLDER / f"{name}.yaml").write_bytes((made / "config.yaml").read_bytes())
    EXPECTED.write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    write()
