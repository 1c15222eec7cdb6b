"""What one use after another imports: nothing heavy before it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest
from commands import DEMO, NO_WANDB, fit
from PIL import Image

PROGRAM = """
import sys, warnings

def absent(*packages):
    found = {name.partition(".")[0] for name in sys.modules}.intersection(packages)
    assert not found, found

import pe_lightning
assert "fit" in dir(pe_lightning) and pe_lightning.__version__
absent("torch", "lightning", "numpy")

from pe_lightning.__main__ import main
for command in ("--help", "--version", "list --help", "encoders --help", "cache --help", "cache list", "compare --help"):
    assert main(command.split()) == 0
    absent("torch", "lightning", "wandb")
assert main("compare runs --out report".split()) == 0
absent("torch", "lightning", "pytorch_lightning", "wandb", "skimage", "selenium")
assert main("fill a.png --missing no.png --out b.png".split()) == 2, "a refusal"
absent("torch")

pe_lightning.create_encoder
assert "torch" in sys.modules
for command in ("encoders", "list activations"):
    assert main(command.split()) == 0
    absent("lightning", "wandb")

import numpy as np, pe_fill
from pe_lightning.evaluation.totals import totals
warnings.simplefilter("ignore")
y, x = np.mgrid[:20, :20] / 20
picture = np.sin(4 * x * y)
picture[5:7] = np.nan
for options in ({}, {"smooth": True}):
    assert np.isfinite(pe_fill.fill(picture, folds="none", **options).values).all()
pe_lightning.fit(np.nan_to_num(picture)[None, ..., None] ** 2, "gau")
assert pe_fill.fit_points(np.random.default_rng(0).random((60, 2)), np.arange(60.0)).std([[0.5, 0.5]]) > 0
assert [totals(name, 1) for name in ("psnr", "snr", "iou")]
np.save("picture.npy", picture)
assert main("fill picture.npy --out filled.npy --folds none --model exact".split()) == 0
absent("lightning", "torchmetrics", "wandb")
"""


@pytest.mark.slow  # starts a process
@pytest.mark.usefixtures("empty_folder")
def test_heavy_packages_are_imported_where_they_are_used(tmp_path: Path) -> None:
    """PyTorch by encoders and fits, Lightning by training; commands that need none answer without."""
    fit(*DEMO, *NO_WANDB)
    Image.new("L", (9, 9)).save("a.png")
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1, "the refusal is one line"
