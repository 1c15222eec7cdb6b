"""Recipes by name from any folder."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from pe_lightning.cli import recipes
from pe_lightning.errors import InputError

ROOT = Path(__file__).parents[2]
SMALL = ["--data.resize", "24", "--model.encoder.num_features", "8", "--trainer.logger", "false"]


pytestmark = pytest.mark.usefixtures("empty_folder")


def test_a_recipe_by_name_is_its_file(tmp_path):
    assert recipes.find("image/demo") == recipes.find("configs/image/demo.yaml")
    assert (
        yaml.safe_load(Path(recipes.find("image/demo")).read_text())["model"]["class_path"] == "pe_lightning.ComplexLinear"
    )
    Path("image").mkdir()
    Path("image/demo").write_text("own")
    assert recipes.find("image/demo") == "image/demo", "a file of the user's comes first"
    with pytest.raises(InputError, match=r"did you mean 'image/demo'.*row/closed_form"):
        recipes.find("image/demmo")


@pytest.mark.slow
def test_a_wheel_of_the_source_archive_holds_every_file_and_finds_its_recipes(tmp_path):
    source, installed = tmp_path / "source", tmp_path / "installed"  # a copy, since setuptools leaves a folder behind
    for name in (*(package.parent.name for package in ROOT.glob("pe_*/__init__.py")), "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    expected = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
    for step, folder in (("build_sdist", source), ("build_wheel", tmp_path / "unpacked")):
        subprocess.run([sys.executable, "-c", build, step, str(tmp_path)], cwd=folder, check=True, capture_output=True)
        if step == "build_sdist":
            with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
                archive.extractall(tmp_path, filter="data")
            next(tmp_path.glob("pe_lightning-*/")).rename(tmp_path / "unpacked")
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        wheel.extractall(installed)
    assert held == {re.sub("^configs/", "pe_lightning/configs/", name) for name in expected}
    program = "from pe_lightning.cli import recipes; print(recipes.find('image/demo'))"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert Path(found.stdout.strip()) == installed / "pe_lightning/configs/image/demo.yaml"
