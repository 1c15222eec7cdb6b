"""A page in Markdown for each encoder and network, made from the class: docstring, signature, analysis, measured scores."""

from __future__ import annotations

import html
import inspect
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from docstring_parser import DocstringStyle, parse

from pe_lightning import encoders, networks, training
from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.registry import find_registry
from pe_lightning.signals.files import check_results, replacing_results, save_figure, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_POSITIONS = 256
"""Positions at which ranks are measured and curves are drawn."""
NUM_UNITS = 8
"""Units of a layer in a figure."""
FIGURE_SAMPLES = 16
"""Trained samples in a figure of features; few enough to distinguish single features."""
HEADING = re.compile(r"^(Args|Example|Raises|Reference|Returns|Shape|When to use):", re.MULTILINE)


def write_pages(folder: Path, scores: Path | None = None) -> list[Path]:
    """Writes ``encoders/NAME.md`` for every registered encoder, plugins included, and ``networks/NAME.md``.

    Args:
        folder: The output folder, created if necessary. Only files that this function wrote before are replaced.
        scores: The ``overview.csv`` of ``pe-lightning compare --by method --across KEYS``, for the scores on the pages.

    Returns:
        The written pages.
    """
    measured = _read_scores(scores)
    check_results(folder, "pages", [*(f"encoders/{name}.md" for name in encoders.names()), "networks/relu.md"])
    with replacing_results(folder, "pages") as temporary:
        return [folder / page.relative_to(temporary) for page in _write_pages(temporary, measured)]


def _write_pages(folder: Path, measured: pd.DataFrame) -> list[Path]:
    pages = {}
    for name in encoders.names():
        cls = encoders.registry.get(name)
        parts = [*_features(name, folder / "encoders"), *_scores(name, measured)]
        pages[folder / f"encoders/{name}.md"] = _page(f"`{name}`: {cls.__name__}", cls, parts)
    models = find_registry("models")
    for name in models:
        if issubclass(models.get(name), training.FunctionModule):
            pages[folder / f"networks/{name}.md"] = _page(f"`{name}`", models.get(name))
    for name in networks.activations:
        activation = networks.activations.get(name)
        parts = _options(name, activation, folder / "networks")
        pages[folder / f"networks/{name}.md"] = _page(f"`{name}`: an activation of SimpleMLP", activation, parts)
    for path, text in pages.items():
        write_atomically(path, text)
    return list(pages)


def _page(title: str, cls: type, more: Iterable[str] = ()) -> str:
    text = sections(cls)
    parts = [f"# {title}", text[""]]
    if "When to use" in text:
        parts += ["## When to use it", text["When to use"]]
    parts += [*([] if issubclass(cls, networks.Activation) else _arguments(cls)), *more]
    if "Reference" in text:
        parts += ["## Reference", " ".join(text["Reference"].split())]
    return "\n\n".join([*parts, f"Class: `{cls.__module__}.{cls.__qualname__}`"]) + "\n"


def sections(cls: type) -> dict[str, str]:
    """The sections of a docstring by heading, in Markdown; the text before the first heading has the key ``""``."""
    lead, *rest = HEADING.split(inspect.getdoc(cls) or "")
    parts = {"": lead, **dict(zip(rest[::2], rest[1::2], strict=True))}
    return {heading: markdown(inspect.cleandoc(text).strip()) for heading, text in parts.items()}


def markdown(text: str) -> str:
    r"""Converts the roles, formulas and examples of a docstring to Markdown.

    >>> markdown(r"Of :class:`~pe_lightning.encoders.Gaussian`, ``sigma`` is :math:`\sigma`.")
    'Of `Gaussian`, `sigma` is $\\sigma$.'
    """
    text = re.sub(r"(?<!`)``(?!`)", "`", text)
    text = re.sub(r"^( *)\.\. math::\s((?:[^\n]+\n)*[^\n]+)", r"\1$$\n\2\n\1$$", text, flags=re.MULTILINE)
    text = re.sub(r":math:`([^`]*)`", lambda role: f"${' '.join(role[1].split())}$", text)
    text = re.sub(r":[a-z]+:`(?:~(?:\w+\.)*)?([\w.]+)`", r"`\1`", text)
    return re.sub(r"((?:^ *(?:>>>|\.\.\. ).*\n(?:(?! *>>>) *\S.*\n?)*)+)", _fenced, text, flags=re.MULTILINE)


def _fenced(example: re.Match[str]) -> str:
    indent = " " * (len(example[1]) - len(example[1].lstrip(" ")))
    return f"{indent}```pycon\n{example[1].rstrip()}\n{indent}```\n"


def _arguments(cls: type) -> list[str]:
    documents = [
        parse(base.__doc__ or "", DocstringStyle.GOOGLE) for base in reversed(cls.__mro__)
    ]  # a base documents what its subclasses share
    described = {entry.arg_name: entry.description or "" for document in documents for entry in document.params}
    width = cls.width if issubclass(cls, Encoder) else None
    rows = []
    initialiser = inspect.signature(cls.__init__)  # type: ignore[misc]  # cls is a class, not an instance
    for key, parameter in list(initialiser.parameters.items())[1:]:
        default = width.text if width is not None and key == width.argument else parameter.default
        if callable(default):
            default = "a rule"
        shown = "required" if default is parameter.empty else f"`{default}`"
        text = _in_cell(" ".join(markdown(described.get(key, "")).split()))
        rows.append(f"| `{key}` | {shown} | {text} |")
    return ["## Arguments", "\n".join(["| argument | default | meaning |", "|---|---|---|", *rows])] if rows else []


def _in_cell(text: str) -> str:
    """Escapes the bars in the text of a table cell, those in code as HTML entities."""
    text = re.sub(r"\$[^$]+\$", lambda formula: formula[0].replace("|", r"\vert "), text)
    text = re.sub(r"`([^`]*\|[^`]*)`", lambda code: f"<code>{html.escape(code[1]).replace('|', '&#124;')}</code>", text)
    return text.replace("|", r"\|")


def _features(name: str, folder: Path) -> list[str]:
    from pe_papers.analysis import analyze

    cls = encoders.registry.get(name)
    report = analyze(name, NUM_POSITIONS)
    shown = encoders.for_data(encoders.create(name), encoders.Samples((FIGURE_SAMPLES,)))
    save_figure(folder / f"{name}.png", _draw(analyze(shown, NUM_POSITIONS)), dpi=80)
    rank = report["stable_rank"]
    theory = "no closed form" if rank["theory"] is None else f"{rank['theory']:.4g} in theory"
    encoder = encoders.create(name)
    start = " at initialisation" if any(True for _ in encoder.parameters()) else ""
    shape = sections(cls).get("Shape") or sections(Encoder)["Shape"]
    size = f"{report['num_features']} features for {NUM_POSITIONS} trained samples on an axis"
    if cls.joint:
        two = encoders.for_data(encoder.copy(num_axes=2), encoders.Samples((NUM_POSITIONS, NUM_POSITIONS), use="perceptron"))
        size += f", {two.num_features} for two axes at once"
    return [
        "## Features",
        f"Output: {shape}",
        f"By default {size}. Their stable rank is {rank['measured']:.4g} ({theory}), their numerical rank "
        f"{report['numerical_rank']}. The figure shows, for {FIGURE_SAMPLES} trained samples, some of the features{start}, "
        "the similarity D(Δ) of positions around the middle, and its Fourier transform; theory is dashed.",
        f"![features, similarity and spectrum of {name}]({name}.png)",
    ]


def _options(name: str, activation: type[networks.Activation], folder: Path) -> list[str]:
    import torch
    from matplotlib.figure import Figure

    rows = [("formula", f"`{activation.formula}`"), ("Adam's learning rate by default", f"{activation.rate:g}")]
    if activation.default_omega is not None:
        rows.append(("`omega` (ω)", f"{activation.default_omega:g}"))
    if activation.default_scale is not None:
        rows.append((f"`activation_scale` ({activation.scale_text})", f"{activation.default_scale:g}"))
    x = torch.linspace(-1, 1, NUM_POSITIONS)[:, None]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        unit = activation(first=True)
        units = unit(unit.layer(1, NUM_UNITS)(x))[:, :NUM_UNITS]
    drawn = Figure(figsize=(11, 2.7))
    panel = drawn.add_axes((0.04, 0.19, 0.95, 0.7))
    panel.plot(x[:, 0].tolist(), units.tolist(), linewidth=1)
    panel.set(
        title=f"{NUM_UNITS} units of a first layer at initialisation, of one coordinate", xlabel="coordinate in [-1, 1]"
    )
    save_figure(folder / f"{name}.png", drawn, dpi=80)
    return [
        "## Options",
        "\n".join(["| | |", "|---|---|", *(f"| {title} | {_in_cell(value)} |" for title, value in rows)]),
        f"Usage: `--model SimpleMLP --model.activation {name}`.",
        f"![units of a first layer with {name}]({name}.png)",
        *(["## Reference", activation.reference] if activation.reference else []),
    ]


def _draw(report: Mapping[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11, 2.7))
    drawn.subplots_adjust(left=0.04, right=0.99, bottom=0.19, top=0.88, wspace=0.15)
    features, distance, spectrum = drawn.subplots(1, 3)
    features.plot(report["positions"], list(zip(*report["features"], strict=True)), linewidth=1)
    for panel, x, key in ((distance, "delta", "distance"), (spectrum, "frequencies", "spectrum")):
        panel.plot(report[x], report[key]["measured"], linewidth=2)
        if report[key]["theory"] is not None:
            panel.plot(report[x], report[key]["theory"], color="black", linestyle="--", linewidth=1)
    features.set(title=f"{len(report['features'])} of {report['num_features']} features", xlabel="x")
    reach = min(0.5, max(4 * report["interval"]["measured"], 2 / FIGURE_SAMPLES))
    distance.set(title="similarity D(Δ) / D(0)", xlabel="Δ", xlim=(-reach, reach))
    spectrum.set(title="spectrum", xlabel="periods per unit length")
    return drawn


def _read_scores(path: Path | None) -> pd.DataFrame:
    try:
        return pd.DataFrame() if path is None else pd.read_csv(path, index_col="method")
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} is not the overview.csv of pe-lightning compare --by method: {error}") from error


def _scores(name: str, measured: pd.DataFrame) -> list[str]:
    own = measured[[method.split()[0] == name for method in measured.index]]
    if own.empty:
        return []
    lines = [f"| held-out PSNR (dB) | {' | '.join(own.index)} |", "|---" * (len(own) + 1) + "|"]
    lines += [f"| {column} | {' | '.join(map(_decibels, own[column]))} |" for column in own.columns.drop("gain")]
    return ["## Scores", "\n".join(lines)]


def _decibels(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
