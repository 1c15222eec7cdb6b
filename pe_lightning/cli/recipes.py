"""Recipes: configurations of this package and of others, and the choice for given files."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.hints import hint
from pe_lightning.registry import load_entry_points
from pe_lightning.results.config_files import as_yaml
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.sources.base import sources
from pe_lightning.signals.sources.kinds import BY_SHAPE, UnclearKind, kind_of
from pe_lightning.signals.sources.paths import SCHEME, format_of, video_samples
from pe_lightning.training.datamodule import COMMON_ARGUMENTS, SignalDataModule

_INSTALLED, _CHECKOUT = (Path(__file__).parents[level] / "configs" for level in (1, 2))
FOLDER = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
"""The recipes of this package: ``configs/`` of the repository, which is installed as ``pe_lightning/configs``."""
NO_RECIPES = ("studies/", "sweeps/")
"""Folders of what ``sweep`` reads, beside the recipes."""
GROUP = "pe_lightning.recipes"
"""Entry-point group of folders of recipes, ``KIND/NAME.yaml``, of other packages: each entry is a ``Path``."""
EXACT_FIT, ADAPTIVE_FIT = "closed_form", "adaptive"
SCATTERED_FIT = "inpaint"
"""The recipe of a linear layer where the trained samples are no grid."""
KIND_BY_AXES: dict[int | None, str] = {1: "row", 2: "image", 3: "volume"}
"""The kind whose exact fit suits signals of a kind that has no recipe, by their number of axes."""


def names() -> list[str]:
    """The names of the recipes: ``image/demo`` and so on."""
    return sorted(_paths())


@functools.cache
def _paths() -> dict[str, Path]:
    folders = [*load_entry_points(GROUP, "recipes", kind=Path), FOLDER]  # the last of a name counts
    found = {
        path.relative_to(folder).with_suffix("").as_posix(): path for folder in folders for path in folder.glob("*/*.yaml")
    }
    return {name: path for name, path in found.items() if not name.startswith(NO_RECIPES)}


def find(config: str) -> str:
    """The configuration that ``--config`` means: a file, JSON, or a recipe by name.

    ``image/demo`` and ``configs/image/demo.yaml`` name a recipe in any working directory. A file of the user comes first.
    """
    if os.path.isfile(config):
        return f"./{config}" if config.startswith("{") else config
    if config.startswith("{"):
        return config
    name = config.removeprefix("configs/").removesuffix(".yaml")
    if (own := FOLDER / f"{name}.yaml").is_file() and not name.startswith(NO_RECIPES):
        return str(own)  # without asking other packages, which are imported for it
    if name not in _paths():
        if typed := hint(name):
            raise InputError(f"--config {config!r} is neither a file nor a recipe; type {typed}")
        near = did_you_mean(name, names()) or "."
        raise InputError(f"--config {config!r} is neither a file nor a recipe{near} Recipes: {', '.join(names())}")
    return str(_paths()[name])


def words_for(paths: Sequence[str], given: Mapping[str, str | None]) -> list[str]:
    """The options that ``fit FILE ...`` stands for: a recipe for signals of their kind, unless one is given, and the paths.

    The recipe is the first installed one of the adaptive and the exact fit, or the exact fit if a model or encoder is named.
    A kind without recipes takes an exact fit of its number of axes, with its own DataModule or source. ``given`` has the
    values of the options by :attr:`~pe_lightning.cli.arguments.Option.key`.
    """
    own_paths = f"--data.paths={as_yaml(list(paths))}"
    if "config" in given:
        return [own_paths]
    kind = _kind(paths, given)
    source = sources.get(kind)
    files = [video_samples().get(path.removeprefix(SCHEME), Path(path)) for path in paths]
    if kind == "rows" and "data.select" not in given:
        _notice_alternatives(files)
    linear = any(key.startswith("model") for key in given.keys() - {"model.noise", "model.pretrained"})
    sampling = given.get("data.sampling")
    scattered = linear and sampling is not None and "grid" not in sampling
    wanted = [*([SCATTERED_FIT] if scattered else []), *([] if linear else [ADAPTIVE_FIT]), EXACT_FIT]
    recipes = [f"{source.recipe_group(files) or kind}/{name}" for name in wanted]
    if recipe := next((name for name in recipes if name in _paths()), None):
        return [f"--config={recipe}", own_paths]
    config = f"--config={KIND_BY_AXES.get(source.num_axes, 'image')}/{EXACT_FIT}"
    if "data" in given:
        return [config, own_paths]
    if source.datamodule != SignalDataModule.__name__:
        return [config, f"--data={source.datamodule}", own_paths]
    return [config, f"--data={source.datamodule}", f"--data.source={kind}", own_paths.replace("data", "data.source", 1)]


def _kind(paths: Sequence[str], given: Mapping[str, str | None]) -> str:
    if module := (given.get("data") or "").rpartition(".")[2]:
        for kind in chain(BY_SHAPE, sources):  # imports sources of other packages if it is none of the first
            if sources.get(kind).datamodule == module != SignalDataModule.__name__:
                return str(kind)
    keys = {key.split(".")[1]: value for key, value in given.items() if key.startswith("data.")}
    try:
        return kind_of(*paths, **{name: value for name, value in keys.items() if name not in COMMON_ARGUMENTS})
    except UnclearKind as error:
        choices = ", ".join(sources.get(kind).datamodule for kind in BY_SHAPE)
        raise InputError(f"{error}; or say which with --data {choices}") from error


def _notice_alternatives(files: Sequence[Path]) -> None:
    for path in files:
        if path.is_file() and format_of(path, by_content=False) == "table":
            for notice in filter(None, (sources.get(kind).alternative(path) for kind in sources)):
                rank_zero_info(notice)
