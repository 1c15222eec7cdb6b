"""The configuration that is written: short, commented, ready for ``pe-lightning fit``."""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path
from typing import Any

import yaml

from pe_lightning.data.sampling import samplings
from pe_lightning.data.sources.samples import SCHEME
from pe_lightning.encoders import Encoder
from pe_lightning.experiments.suggest.attempts import Score
from pe_lightning.experiments.suggest.candidates import Candidate
from pe_lightning.experiments.suggest.parts import Part
from pe_lightning.experiments.suggest.search import Row
from pe_lightning.solvers.scaling import tunable

__all__ = ["write_text"]


def write_text(row: Row, part: Part, data: dict[str, Any], seed: object, said: str, out: Path) -> str:
    """The configuration of an encoder that was tried.

    Args:
        row: The encoder.
        part: What it is fitted to: all samples, or where those stay in a file the windows it was judged on.
        data: The data's class path and arguments, complete.
        seed: ``seed_everything``.
        said: What the table says.
        out: Where the text goes.
    """
    assert isinstance(row.what, Candidate)
    if row.whole is not None:
        encoder, ridge = _found(row.whole), _plain(row.whole.ridge)
        again = "sigma and ridge were" if any(tunable(e) for e in row.whole.encoders) else "ridge was"
        how = f"{again} chosen on trained samples that were held out; auto chooses anew, for other data"
    else:
        encoder, ridge = row.what.describe(part, full=True), "auto"
        how = "sigma and ridge are chosen when the fit sees all samples; the encoder was judged on windows of them"
    lines = [
        f"# Written by pe-lightning suggest. {said}",
        f"# Run it: pe-lightning fit --config {out}",
        "model:",
        "  class_path: ComplexLinear",
        "  init_args:",
        f"    # {how}",
        f"    encoder: {_flow(encoder)}",
        f"    ridge: {_flow(ridge)}",
        "    warm_start: true # the exact fit, no training",
        "data:",
        f"  class_path: {data['class_path'].rpartition('.')[2]}",
        "  init_args:",
        *(f"    {key}: {_flow(value)}" for key, value in _given(data).items()),
        "trainer:",
        "  max_steps: 0 # more, to train on from the exact fit",
    ]
    if seed not in (0, None):
        lines.append(f"seed_everything: {_flow(seed)}")
    return "\n".join(lines) + "\n"


def _found(score: Score) -> Any:
    described = [_describe(encoder) for encoder in score.encoders]
    return described[0] if all(entry == described[0] for entry in described) else described


def _describe(encoder: Encoder) -> dict[str, Any]:
    return {key: _plain(value) for key, value in encoder.spec().items()}


def _plain(value: Any) -> Any:
    """Numbers of ten digits: a change in the seventh shows, at 80 dB, and one in the eleventh does not."""
    return float(f"{value:.10g}") if isinstance(value, float) else value


def _given(data: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a DataModule that are not their defaults; local paths absolute, to work from anywhere."""
    cls: Any = pydoc.locate(data["class_path"])
    defaults = {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}
    given = {key: value for key, value in data["init_args"].items() if value != defaults.get(key, inspect.Parameter.empty)}
    if "paths" in given:
        paths = given["paths"]
        paths = [_absolute(path) for path in ([paths] if isinstance(paths, str) else paths)]
        given["paths"] = paths[0] if len(paths) == 1 else paths
    sampling = given.get("sampling")
    if isinstance(sampling, dict):
        sampled: Any = pydoc.locate(sampling["class_path"])
        arguments = {key: value for key, value in (sampling.get("init_args") or {}).items() if value is not None}
        given["sampling"] = {"name": samplings.name_of(sampled), **arguments}
        if given["sampling"] == samplings.create(str(defaults["sampling"])).spec():
            del given["sampling"]
        elif isinstance(arguments.get("path"), str):
            given["sampling"]["path"] = _absolute(arguments["path"])
    return given


def _absolute(path: str) -> str:
    return path if path.startswith(SCHEME) else str(Path(path).expanduser().absolute())


def _flow(value: Any) -> str:
    """YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
