"""Hooks of MkDocs for this site: generated pages, formulas as MathML, docstrings in Markdown."""

from __future__ import annotations

import html
import re
import tempfile
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pe_papers.pages import markdown as to_markdown
from pe_papers.pages import write_pages

ROOT = Path(__file__).parents[1]
GENERATED = tempfile.TemporaryDirectory(prefix="pe_lightning_pages_")
DATASETS = "datasets.md"
"""The page of ``datasets/README.md``, which documents link to as it lies in the repository."""

ARITHMATEX = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
NAMED_FUNCTION = re.compile(r"(<mi>(?:cos|sin|tan|tanh|exp|log|ln|min|max)</mi>)(?!<mo[^>]*>(?:\(|&#x00028;))")
OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)\)")
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(~?)([\w.]+)`")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Writes the pages of encoders and networks, and adds them to the navigation, without what does not exist."""
    assert config.nav is not None
    write_pages(Path(GENERATED.name), ROOT / "configs/studies/encodings.csv")
    config.nav = _existing(config.nav, Path(config.docs_dir))
    framework = _section(config.nav, "Framework (pe_lightning)")
    for title, folder in (("Encoders", "encoders"), ("Networks", "networks")):
        pages = _section(framework, title)
        pages.extend(f"{folder}/{page.name}" for page in _generated(f"{folder}/*.md"))
    _section(framework, "Data").append({"Signals to try": DATASETS})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages, and the signals to try."""
    files.append(File.generated(config, DATASETS, abs_src_path=str(ROOT / "datasets/README.md")))
    for path in _generated("*/*"):
        files.append(File.generated(config, f"{path.parent.name}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to files outside of the site become links to their page, or their text alone."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def inside(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target == ROOT / "datasets/README.md":
            return f"[{link[1]}]({'../' * page.file.src_uri.count('/')}{DATASETS})"
        return link[0] if target.is_relative_to(ROOT / "docs") else link[1]

    return OUTSIDE.sub(inside, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML, which browsers draw without a script."""
    return ARITHMATEX.sub(lambda found: _mathml(found[2], "block" if found[1] == "div" else "inline"), content)


class Docstrings(griffe.Extension):
    """The package's docstrings in Markdown for mkdocstrings, their roles as links where the target has a place."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(ROLE.sub(_link, obj.docstring.value))


def _mathml(latex: str, display: str) -> str:
    """MathML with a space after the name of a function that is applied without brackets: cos X, not cosX."""
    return NAMED_FUNCTION.sub(r'\1<mspace width="0.17em"/>', str(convert(html.unescape(latex), display=display)))


def _link(role: re.Match[str]) -> str:
    short, path = role.groups()
    name = f"`{path.rpartition('.')[2] if short else path}`"
    return f'<autoref optional identifier="{path}">{name}</autoref>' if "." in path else name


def _generated(pattern: str) -> list[Path]:
    return sorted(Path(GENERATED.name).glob(pattern))


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
