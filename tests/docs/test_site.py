"""The site builds without a warning, needs no network to be read, and has a page for every registered encoder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pe_lightning import encoders
from pe_lightning.__main__ import main
from pe_papers.pages import markdown, sections

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|audio|video)\b[^>]*\ssrc=["']?(?:https?:)?//"""
    r"""|<link\b[^>]*\shref=["']?(?:https?:)?//"""
)
LIMIT = 3_000_000


class Ripple(encoders.Encoder):
    r"""Cosines: :math:`\cos(\pi i x)`.

    When to use:
        Of smooth signals | without a period.

    Args:
        num_features: Number :math:`|K|` of features.
        mode: One of ``a | b``.
    """

    formula = "cos(π i x)"

    def __init__(self, num_features: int = 4, mode: str = "a") -> None:
        super().__init__(num_features)

    def forward(self, x):
        return (x[..., None] * x.new_tensor(range(self.num_features)) * 3.141592653589793).cos()


@pytest.mark.slow
def test_a_page_of_a_plugin_with_its_scores(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(encoders, "names", lambda: ["ripple"])
    monkeypatch.setattr(encoders.registry, "get", lambda name: Ripple)
    (tmp_path / "overview.csv").write_text('method,"rows, all",clips,gain\nripple exact,12.345,,1.0\nripples MLP,3,4,1.0\n')
    assert main(["pages", str(tmp_path / "pages"), "--scores", str(tmp_path / "overview.csv")]) == 0
    page = (tmp_path / "pages/encoders/ripple.md").read_text()
    for part in (
        r"Cosines: $\cos(\pi i x)$.",
        "## When to use it\n\nOf smooth signals | without a period.",
        r"| `num_features` | `4` | Number $\vert K\vert $ of features. |",
        r"| `mode` | `a` | One of <code>a &#124; b</code>. |",
        "4 features for 256 trained samples",
        "their numerical rank 4",
        "| held-out PSNR (dB) | ripple exact |\n|---|---|\n| rows, all | 12.35 |\n| clips | – |",
    ):
        assert part in page
    assert (tmp_path / "pages/encoders/ripple.png").read_bytes().startswith(b"\x89PNG")
    assert "`ridge`" in (tmp_path / "pages/networks/ComplexLinear.md").read_text()


@pytest.mark.parametrize("name", encoders.names())
def test_every_encoder_says_when_to_use_it(name):
    assert len(sections(encoders.registry.get(name)).get("When to use", "")) > 40


def test_examples_and_displayed_formulas_of_docstrings():
    text = "Sum:\n\n.. math::\n    a + b,\n    c\n\n>>> 1 + 1\n2\n\nEnd of ``x``."
    assert markdown(text) == "Sum:\n\n$$\n    a + b,\n    c\n$$\n\n```pycon\n>>> 1 + 1\n2\n```\n\nEnd of `x`."


def test_the_home_page_links_every_page_in_the_order_of_the_navigation():
    """Pages of each package are together, the framework's before those of the packages built on it."""

    def pages(entry):
        below = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else None
        return [entry] if below is None else [page for each in below for page in pages(each)]

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    kinds = {kind: pages(entries) for entry in nav for kind, entries in entry.items()}
    assert list(kinds) == ["Start", "Framework (pe_lightning)", "Tools (pe_fill)", "Papers (pe_papers)", "Reference"]
    every = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))
    assert sorted(page for found in kinds.values() for page in found) == every
    listed = (ROOT / "docs/index.md").read_text().partition("## All pages")[2]
    _, *parts = re.split(r"^\*\*(.+?)\.?\*\*", listed, flags=re.MULTILINE)
    linked = {kind: re.findall(r"\]\(([\w/]+\.md)\)", text) for kind, text in zip(parts[::2], parts[1::2], strict=True)}
    assert {**linked, "Start": ["index.md", *linked["Start"]]} == kinds


def test_pictures_of_the_documents_are_small():
    listed = subprocess.run(["git", "ls-files", "docs"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    pictures = [ROOT / name for name in listed if Path(name).suffix in (".png", ".jpg", ".gif", ".svg", ".webp", ".pdf")]
    assert 0 < sum(path.stat().st_size for path in pictures) < LIMIT


@pytest.mark.slow
def test_the_site_needs_no_network(tmp_path):
    pytest.importorskip("mkdocs", reason="pip install pe-lightning[docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.html")}
    for name, page in pages.items():
        assert not FETCHED.findall(page), f"{name} fetches something when it is read"
        prose = re.sub(r"<(pre|code)\b.*?</\1>", "", page, flags=re.DOTALL)
        left = re.search(r":(math|class|func|meth):|\\\(|arithmatex", prose)
        assert not left, f"{name}: a formula or a role is left as text: {prose[left.start() - 40 : left.end() + 40]}"
    for path in tmp_path.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", path.read_text()), path
    assert {f"encoders/{name}.html" for name in encoders.names()} <= pages.keys()
    assert "<math " in pages["encoders/gau.html"]
    assert "<math " in pages["reference/encoders.html"]
