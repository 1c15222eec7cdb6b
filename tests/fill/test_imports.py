"""What fills and what trains: neither imports the other's packages, but for baselines, which say whether they apply."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow  # starts a process
def test_fills_do_not_import_lightning(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np, pe_fill, pe_lightning\n"
        "y, x = np.mgrid[:20, :20] / 20\n"
        "picture = np.sin(4 * x * y)\n"
        "picture[5:7] = np.nan\n"
        "for options in ({}, {'smooth': True}):\n"
        "    assert np.isfinite(pe_fill.fill(picture, folds='none', **options).values).all()\n"
        "pe_lightning.fit(np.nan_to_num(picture)[None, ..., None] ** 2, 'gau')\n"
        "fit = pe_fill.fit_points(np.random.default_rng(0).random((60, 2)), np.arange(60.0))\n"
        "assert fit.std([[0.5, 0.5]]) > 0\n"
        "import pe_lightning.__main__ as command\n"
        "from pe_lightning.evaluation.totals import totals\n"
        "assert [totals(name, 1) for name in ('psnr', 'snr', 'iou')]\n"
        "np.save('picture.npy', picture)\n"
        "assert command.main(['fill', 'picture.npy', '--out', 'filled.npy', '--folds', 'none', '--model', 'exact']) == 0\n"
        "found = [name for name in sys.modules if name.split('.')[0] in ('lightning', 'torchmetrics', 'wandb')]\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120, cwd=tmp_path)


@pytest.mark.slow  # starts a process
def test_a_trained_fit_imports_baselines_of_this_package_alone(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pe_lightning.__main__ import main\n"
        "quick = ['--data.resize=16', '--model.encoder.num_features=4', '--trainer.max_steps=3', '--wandb.enabled=false']\n"
        "assert main(['fit', '--config', 'image/demo', *quick]) == 0\n"
        "found = [name for name in sys.modules if name.split('.')[0] in ('pe_fill', 'pe_papers')]\n"
        "assert set(found) <= {'pe_fill', 'pe_fill.baselines'}, found\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120, cwd=tmp_path)
