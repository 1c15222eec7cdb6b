"""Recipes: the configurations of this package and of others, and the one that suits given files."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS
from pe_lightning.signals.sources.kinds import UnclearKind, kind_of
from pe_lightning.signals.sources.paths import SCHEME, SourceFile, format_of, video_samples
from pe_lightning.signals.sources.points import place_columns, points_options
from pe_lightning.signals.sources.tables import header_of
from pe_lightning.training.datamodules import MODULES_BY_KIND, LabelledDataModule, PointsDataModule

_INSTALLED, _CHECKOUT = (Path(__file__).parents[level] / "configs" for level in (1, 2))
FOLDER = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
"""The recipes of this package: ``configs/`` of the repository, which is installed as ``pe_lightning/configs``."""
GROUP = "pe_lightning.recipes"
"""Entry-point group of folders of recipes, ``KIND/NAME.yaml``, of other packages: each entry is a ``Path``."""
EXACT_FIT = "closed_form"
"""The recipe of the exact fit of a linear layer, which every kind of signal has."""
ADAPTIVE_FIT = "adaptive"
"""The recipe of the adaptive fit, which every kind of signal has."""


def names() -> list[str]:
    """The names of the recipes: ``image/demo`` and so on."""
    return sorted(_paths())


@functools.cache
def _paths() -> dict[str, Path]:
    """The file of each recipe by name. A recipe of this package keeps its name; the others do not replace it."""
    folders = [*(Path(point.load()) for point in entry_points(group=GROUP)), FOLDER]
    found = {
        path.relative_to(folder).with_suffix("").as_posix(): path for folder in folders for path in folder.glob("*/*.yaml")
    }
    return {name: path for name, path in found.items() if not name.startswith("sweeps/")}


def find(config: str) -> str:
    """The configuration that ``--config`` means: a file, JSON, or a recipe by name.

    ``image/demo`` and ``configs/image/demo.yaml`` name a recipe in any working directory. A file of the user comes first.
    """
    if os.path.isfile(config):
        return f"./{config}" if config.startswith("{") else config
    if config.startswith("{"):
        return config
    name = config.removeprefix("configs/").removesuffix(".yaml")
    if name not in _paths():
        near = did_you_mean(name, names()) or "."
        raise InputError(f"--config {config!r} is neither a file nor a recipe{near} Recipes: {', '.join(names())}")
    return str(_paths()[name])


def recipe_for(paths: Sequence[str], given: Mapping[str, str | None]) -> str:
    """The name of the recipe for ``fit FILE ...``: the adaptive fit of signals of their kind.

    The kind is that of a named DataModule, or of the files; with ``data.coordinates`` they hold scattered points,
    with ``data.variable`` or ``data.dims``, or as NetCDF or Zarr, a labelled array.
    The recipe is an exact fit of a linear layer if another model or encoder is named.

    Args:
        paths: Files, folders or ``samples://NAME``.
        given: The options by key (:attr:`pe_lightning.cli.arguments.Option.key`), with their values.
    """
    linear = any(key.startswith("model") for key in given.keys() - {"model.noise", "model.pretrained"})
    module_name = (given.get("data") or "").rpartition(".")[2]
    if "data.coordinates" in given or module_name == PointsDataModule.__name__:
        return f"points/{EXACT_FIT if linear else ADAPTIVE_FIT}"
    labelled = any(Path(path).suffix.lower() in (".nc", ".nc4", ".zarr") for path in paths) and "data.key" not in given
    if labelled or given.keys() & {"data.variable", "data.dims"} or module_name == LabelledDataModule.__name__:
        return f"labelled/{EXACT_FIT if linear else ADAPTIVE_FIT}"
    of_module = {module.__name__: kind for kind, module in MODULES_BY_KIND.items()}
    try:
        named = of_module.get(module_name)
        kind = named or kind_of(*paths, key=given.get("data.key"))
    except UnclearKind as error:
        choices = ", ".join(module.__name__ for module in MODULES_BY_KIND.values())
        raise InputError(f"{error}; or say which with --data {choices}") from error
    files = [video_samples().get(path.removeprefix(SCHEME), Path(path)) for path in paths]
    volumes = all(format_of(file, by_content=False) in {"nifti", "tiff", *ARRAYS} for file in files)
    if kind == "rows" and "data.select" not in given:
        _notice_places(files)
    folder = {"images": "image", "rows": "row", "video": "volume" if volumes else "video"}[kind]
    if not linear:
        return f"{folder}/{ADAPTIVE_FIT}"
    sampling = given.get("data.sampling")
    scattered = sampling is not None and "grid" not in sampling
    return "image/inpaint" if scattered and folder == "image" else f"{folder}/{EXACT_FIT}"


def _notice_places(files: Sequence[Path]) -> None:
    for path in files:
        if not path.is_file() or format_of(path, by_content=False) != "table":
            continue
        names = header_of(SourceFile(path, str(path)))
        if places := place_columns(names):
            rank_zero_info(
                f"{str(path)!r} has the columns {' and '.join(places)}, and every column is read as a signal along its "
                f"rows: if the rows are scattered points, add {points_options(names, '--data.')}"
            )
