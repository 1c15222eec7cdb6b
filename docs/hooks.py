"""Hooks of MkDocs for this site: generated pages, formulas as MathML, roles of docstrings as links."""

from __future__ import annotations

import html
import re
import tempfile
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DATASETS = "datasets.md"
"""The page of ``datasets/README.md``, which documents link to as it lies in the repository."""

ARITHMATEX = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
MATH_ROLE = re.compile(r":math:<code>(.*?)</code>", re.DOTALL)
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>(~?)([\w.]+)</code>")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leaves pages that do not exist out of the navigation, and adds the signals to try."""
    assert config.nav is not None
    config.nav = _existing(config.nav, Path(config.docs_dir))
    _section(config.nav, "Guides").append({"Signals to try": DATASETS})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    files.append(File.generated(config, DATASETS, abs_src_path=str(ROOT / "datasets/README.md")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files outside of the site are links to their pages."""
    return markdown.replace("../datasets/README.md", DATASETS)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas of pages (``$...$``) and of docstrings (``:math:``) as MathML; other roles of docstrings as links."""
    content = ARITHMATEX.sub(lambda found: _mathml(found[2], "block" if found[1] == "div" else "inline"), content)
    content = MATH_ROLE.sub(lambda found: _mathml(found[1], "inline"), content)
    return ROLE.sub(_link, content)


def _mathml(latex: str, display: str) -> str:
    return str(convert(html.unescape(latex), display=display))


def _link(role: re.Match[str]) -> str:
    short, path = role.groups()
    name = f"<code>{path.rpartition('.')[2] if short else path}</code>"
    return f'<autoref optional identifier="{path}">{name}</autoref>' if "." in path else name


def _existing(nav: list[Any], folder: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in nav:
        title, target = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(target, list):
            kept.append({title: _existing(target, folder)})
        elif (folder / target).exists():
            kept.append(entry)
    return kept


def _section(nav: list[Any], title: str) -> list[Any]:
    return next(entry[title] for entry in nav if isinstance(entry, dict) and title in entry)
