"""What the command fits is what Python fits, and, of a sparse fit, what a few lines of NumPy keep."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli.test_command_equals_python import assert_same, fitted_by_command, fitted_by_python, write_picture
from PIL import Image

import pe_fill
import pe_lightning
from pe_fill import SparseLinear
from pe_lightning.__main__ import main
from pe_lightning.signals.sources.paths import sample_path
from pe_lightning.training import ComplexLinear


@pytest.mark.slow
def test_a_file_has_one_default_model_however_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Image.open(sample_path("samples://coffee", "image")) as image:
        image.resize((150, 100)).save("a.jpg", quality=90)
    assert main(["suggest", "a.jpg", "--encoders", "Adaptive"]) == 0
    scores = []
    for name, arguments in (("file", ["a.jpg"]), ("suggested", ["--config", "suggested.yaml"])):
        _, config = fitted_by_command(arguments, tmp_path / name)
        (found,) = (tmp_path / name).rglob("metrics.json")
        scores.append(json.loads(found.read_text())["test/psnr"])
        assert config["model"]["init_args"]["pretrained"] == inspect.signature(pe_fill.fill).parameters["pretrained"].default
    array = np.asarray(Image.open("a.jpg"), dtype=np.float32) / 255
    scores += [pe_lightning.fit(given).psnr for given in ("a.jpg", array)]
    assert scores == pytest.approx([scores[0]] * 4, abs=1e-3)


def split(x: np.ndarray) -> np.ndarray:
    """The 5/3 transform of the first axis, ends mirrored."""
    if len(x) <= 4:
        return x
    even, odd = x[::2], x[1::2]
    odd = odd - (even[: len(odd)] + np.concatenate([even[1:], even[-1:]])[: len(odd)]) / 2
    even = even + (np.concatenate([odd[:1], odd])[: len(even)] + np.concatenate([odd, odd[-1:]])[: len(even)]) / 4
    return np.concatenate([split(even * 2**0.5), odd / 2**0.5])


def joined(y: np.ndarray) -> np.ndarray:
    """Its inverse, from the columns that unit vectors have."""
    return np.linalg.solve(split(np.eye(len(y))), y.reshape(len(y), -1)).reshape(y.shape)


def along_both(function: Any, x: np.ndarray) -> np.ndarray:
    return function(function(x).swapaxes(0, 1)).swapaxes(0, 1)


def test_the_command_and_python_keep_what_a_few_lines_of_numpy_keep(tmp_path: Path) -> None:
    values = write_picture(tmp_path / "picture.png").double().numpy()
    mean = values.mean((0, 1))
    rotation = np.linalg.eigh(np.einsum("ijc,ijd->cd", values - mean, values - mean))[1]
    coefficients = along_both(split, (values - mean) @ rotation)
    norms = np.linalg.norm(np.linalg.inv(split(np.eye(24))), axis=0)
    size = np.abs(coefficients) * (norms[:, None] * norms)[..., None]
    kept = np.where(size >= np.sort(size.ravel())[-300], coefficients, 0)
    expected = along_both(joined, kept) @ rotation.T + mean

    state, config = fitted_by_command(
        ["--config", "image/sparse", "--model.encoder", "tri", "--model.num_coefficients", "300", "--model.transform", "5/3",
         "--data.paths", str(tmp_path / "picture.png")],
        tmp_path,
    )  # fmt: skip
    assert_same(state, fitted_by_python(config, tmp_path))
    (checkpoint,) = tmp_path.rglob("last.ckpt")
    metrics = json.loads((checkpoint.parents[1] / "metrics.json").read_text())
    assert metrics["checkpoint_bytes"] == checkpoint.stat().st_size < 24 * 24 * 3 * 4 + 8000
    model = SparseLinear.load_from_checkpoint(checkpoint)
    assert model.num_params == metrics["num_params"] == 300 + 9 + 3
    found = model.predict_grid([torch.arange(24) / 24] * 2)[0].detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    assert np.abs(expected - values).max() > 0.05


@pytest.mark.slow
def test_standard_deviations_beside_a_prediction(tmp_path, monkeypatch, capsys):
    """In the unit of the source, of models that have them from a checkpoint."""
    monkeypatch.chdir(tmp_path)
    y, x = np.mgrid[:16, :18] / 16
    np.save("a.npy", 1000 + 100 * np.sin(4 * x * y + x))
    options = ["--trainer.default_root_dir", ".", "--trainer.logger", "false"]
    assert main(["fit", "a.npy", *options]) == 0
    run = next(Path("runs").glob("*/*"))
    checkpoint = str(run / "checkpoints/last.ckpt")
    assert main(["predict", "--ckpt_path", checkpoint, "--scale", "2", "--output_std", "true"]) == 0
    found = np.load(run / "predict/32x36/a_std.npy")[..., 0]
    model = pe_lightning.load(checkpoint)
    low, high = model.info.scaling.limits(0)
    coords = torch.cartesian_prod(torch.arange(32) / 32, torch.arange(36) / 36)
    np.testing.assert_allclose(found.ravel(), (high - low) * model.std(coords)[:, 0].numpy(), rtol=1e-4)
    assert (found[::4, ::4] == 0).all()
    shutil.rmtree("runs")
    assert main(["fit", "a.npy", "--encoder", "gau", *options]) == 0
    run = next(Path("runs").glob("*/*"))
    predicted = []
    monkeypatch.setattr(ComplexLinear, "predict_step", lambda *_: predicted.append(1))
    assert main(["predict", "--ckpt_path", str(run / "checkpoints/last.ckpt"), "--output_std", "true"]) == 2
    assert "ComplexLinear has no standard deviations" in capsys.readouterr().err
    assert not predicted, "refused before anything is predicted"
    assert not (run / "predict").exists() or not list((run / "predict").rglob("*.npy"))
