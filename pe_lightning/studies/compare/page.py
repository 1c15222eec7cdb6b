"""The page of ``pe-lightning compare`` and ``pe-lightning demo``: tables, plots and a viewer of reconstructions.

The page is one file, which loads nothing and is readable without scripts. The template escapes all text, and a content
security policy allows only the script and the style of the page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pe_lightning import __version__


def draw_page(
    title: str,
    sections: Sequence[Mapping[str, Any]],
    contents: Mapping[str, str],
    *,
    heading: str = "run",
    by: str | None = None,
    why_several: str | None = None,
    configured: Sequence[str] = (),
    differences: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The HTML of a page.

    Args:
        title: Title of the page.
        sections: Each a ``table`` (title, fingerprint, metric, notes), its ``rows`` (row, cells, interval), ``plots`` by
            title as base64, the ``viewer`` of its reconstructions, and a ``text`` and ``commands`` shown above them.
        contents: Pictures and arrays that the viewers name.
        heading: Heading of the first column of the tables.
        by: The key by which runs are grouped, in place of the heading.
        why_several: Why there are several tables.
        configured: Labels of the runs that have a configuration.
        differences: Settings in which these differ, with one value per run.
    """
    template, style, script = (
        files(__package__).joinpath(f"page.{end}").read_text("utf-8") for end in ("html", "css", "js")
    )
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return page.from_string(template).render(
        title=title,
        heading=heading,
        sections=sections,
        by=by,
        why_several=why_several,
        configured=configured,
        differences=differences or {},
        signals=[list(section["viewer"].signals.items()) for section in sections],
        contents=contents,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}",
        version=__version__,
        now=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
