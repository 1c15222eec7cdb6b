"""Modules that have moved are found by their old paths, by programs and by configurations."""

import importlib
import pkgutil

import pytest
from golden.make import FOLDER

from pe_lightning import ComplexLinear, linalg, networks, signals, training
from pe_lightning.cli import recipes
from pe_lightning.cli.cli import parse
from pe_lightning.results.old_names import MOVED, current, current_settings
from pe_papers.tasks import LayoutDataModule, LayoutRelations

WITH_MOVED_CLASSES = {old.rpartition(".")[0] for old in MOVED if not old.islower()}


@pytest.mark.parametrize("old", [old for old in MOVED if old.islower() and old not in WITH_MOVED_CLASSES])
def test_an_old_path_is_the_same_module(old):
    assert importlib.import_module(old) is importlib.import_module(MOVED[old])


@pytest.mark.parametrize("new", MOVED.values())
def test_new_paths_exist(new):
    pkgutil.resolve_name(new)


def test_modules_below_a_package_move_with_it_and_their_classes_are_the_same():
    old = importlib.import_module("pe_lightning.tasks.layout")
    assert (old.LayoutRelations, old.LayoutDataModule) == (LayoutRelations, LayoutDataModule)
    assert current("pe_lightning.tasks.layout.LayoutRelations") == "pe_papers.tasks.layout.LayoutRelations"


def test_a_configuration_with_old_paths_is_parsed(tmp_path):
    with open(recipes.find("attention/layout")) as file:
        text = file.read().replace("pe_papers.tasks", "pe_lightning.tasks")
    (tmp_path / "old.yaml").write_text(text)
    config = parse("fit", [f"--config={tmp_path}/old.yaml"])
    assert config.model.class_path.endswith(".LayoutRelations")
    assert config.data.class_path.endswith(".LayoutDataModule")


def test_a_checkpoint_with_old_names_of_arguments_is_loaded():
    """Configurations with old names are in ``golden``."""
    head, sparse = (ComplexLinear.load_from_checkpoint(FOLDER / f"{name}.ckpt") for name in ("trained-head", "sparse"))
    assert (head.hidden_size, head.solves, sparse.sparse.num_coefficients) == (6, True, 0.3)


def test_arguments_of_other_packages_keep_their_names():
    other = {"class_path": "mine.SimpleMLP", "init_args": {"width": 3}}
    assert current_settings(other) == other
    assert current_settings({**other, "class_path": "pe_lightning.SimpleMLP"})["init_args"] == {"hidden_size": 3}


def test_classes_of_one_package_that_are_in_two_now():
    from pe_lightning.data import GridSampling, ImageDataModule

    assert (GridSampling, ImageDataModule) == (signals.GridSampling, training.ImageDataModule)
    assert importlib.import_module("pe_lightning.data.sampling") is importlib.import_module("pe_lightning.signals.sampling")
    with pytest.raises(ImportError, match="Nothing"):
        from pe_lightning.data import Nothing  # noqa: F401


def test_classes_that_have_other_names_now():
    from pe_lightning.linalg.local import Local
    from pe_lightning.networks.stack import Stack

    assert (Local, Stack) == (linalg.RowBanded, networks.VmapEnsemble)
