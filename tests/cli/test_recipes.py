"""Recipes by name from any folder."""

import shutil
import subprocess
import sys
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
def test_a_wheel_holds_every_recipe_and_prior(tmp_path):
    source = tmp_path / "source"  # a copy, since setuptools leaves a folder behind
    for name in ("pe_lightning", "pe_papers", "configs"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*command, str(source)], check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = {name.partition("/configs/")[2] for name in wheel.namelist() if "/configs/" in name}
        definitions = [name for name in wheel.namelist() if name.startswith("pe_papers/reproduce/definitions/")]
        priors = {Path(name).name for name in wheel.namelist() if "/estimators/weights/" in name}
    folders = [ROOT / "configs", ROOT / "pe_papers/configs"]
    assert held == {path.relative_to(folder).as_posix() for folder in folders for path in folder.rglob("*.yaml")}
    assert len(definitions) == len(list((ROOT / "pe_papers/reproduce/definitions").glob("*.yaml"))) > 20
    assert priors == {path.name for path in (ROOT / "pe_lightning/estimators/weights").iterdir()} >= {"pictures.pt"}
