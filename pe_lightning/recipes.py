"""The recipes that come with the package, by name, and the one that suits files named without any."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pe_lightning.data.sources.kinds import UnclearKind, kind_of
from pe_lightning.data.sources.paths import ARRAYS, format_of
from pe_lightning.data.sources.samples import SCHEME, video_samples
from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.verbs import split

__all__ = ["find", "names", "with_recipe"]

FOLDER = Path(__file__).parent / "configs"
EXACT = "closed_form"
"""The recipe of every kind of signal that needs no training."""


def names() -> list[str]:
    """The recipes: ``image/demo`` and so on."""
    found = (path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/*.yaml"))
    return sorted(name for name in found if not name.startswith("sweeps/"))


def find(config: str) -> str:
    """The file that ``--config`` means: ``image/demo`` and ``configs/image/demo.yaml`` are recipes, wherever one is.

    Raises:
        InputError: If it is neither a file, nor JSON, nor the name of a recipe.
    """
    if config.startswith("{") or Path(config).is_file():
        return config
    name = config.removeprefix("configs/").removesuffix(".yaml")
    if name not in names():
        raise InputError(
            f"--config {config!r} is no file and no recipe{did_you_mean(name, names()) or '.'} Recipes: {', '.join(names())}"
        )
    return str(FOLDER / f"{name}.yaml")


def with_recipe(arguments: Sequence[str]) -> list[str]:
    """Options of ``fit`` for arguments that may hold files: ``my.jpg --encoder tri``.

    Unless a configuration is given, it is that of an exact fit for signals of their kind.

    Raises:
        InputError: If the kind of the files is not clear.
    """
    paths, _, options = split(arguments, set(), set(), {"h", "help", "print_config"})
    given = {option.partition("=")[0] for option in options if option.startswith("-")}
    chosen = given & {"-c", "--config"}
    if not paths and not (chosen or given & {"--model", "--data", "--ckpt_path", "-h"} or "help" in "".join(given)):
        raise InputError("fit needs signals, pe-lightning fit my.jpg, or a recipe, pe-lightning fit --config image/demo")
    if not paths:
        return list(arguments)
    config = [] if chosen else [f"--config={_recipe_for(paths, given, options)}"]
    return [*config, *options, f"--data.paths={json.dumps(paths)}"]


def _recipe_for(paths: Sequence[str], given: set[str], options: Sequence[str]) -> str:
    """For pictures the model that adapts to them, unless samples are scattered or another model or encoder is named."""
    try:
        kind = kind_of(*paths, key=_value_of("--data.key", options))
    except UnclearKind as error:
        raise InputError(f"{error}; or say what they hold: --config image/{EXACT}, row/{EXACT} or volume/{EXACT}") from error
    files = [video_samples().get(path.removeprefix(SCHEME), Path(path)) for path in paths]
    scattered = "--data.sampling" in given and "grid" not in " ".join(options)
    if kind == "images" and scattered:
        return "image/inpaint"
    if kind == "images" and not any(option.startswith(("--encoder", "--model")) for option in given - {"--model.noise"}):
        return "image/adaptive"
    volumes = all(format_of(file, by_content=False) in {"nifti", "tiff", *ARRAYS} for file in files)
    return f"{ {'images': 'image', 'rows': 'row', 'video': 'volume' if volumes else 'video'}[kind] }/{EXACT}"


def _value_of(name: str, options: Sequence[str]) -> str | None:
    """The last value of an option, ``--name value`` or ``--name=value``."""
    words = [word for option in options for word in option.split("=", 1)]
    places = [place for place, word in enumerate(words[:-1]) if word == name]
    return words[places[-1] + 1] if places else None
