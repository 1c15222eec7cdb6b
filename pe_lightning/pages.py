"""Pages of registered classes in Markdown: formula, arguments, output size, figure, scores, from the classes themselves."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

__all__ = ["markdown", "sections"]

HEADING = re.compile(r"^(Args|Example|Raises|Reference|Returns|Shape|When to use):", re.MULTILINE)


def sections(documented: type) -> dict[str, str]:
    """The parts of a docstring by heading, in Markdown; the text before the first heading is under an empty one."""
    lead, *rest = HEADING.split(inspect.getdoc(documented) or "")
    parts = dict(zip(rest[::2], rest[1::2], strict=True))
    return {heading: markdown(inspect.cleandoc(text)) for heading, text in {"": lead, **parts}.items()}


def markdown(docstring: str) -> str:
    """A docstring's roles, formulas and examples in Markdown.

    >>> markdown("The width of :class:`~pe_lightning.encoders.Gaussian` is ``sigma``: :math:`\\\\sigma`.")
    'The width of `Gaussian` is `sigma`: $\\\\sigma$.'
    """
    text = re.sub(r"^\.\. math::\s*\n?((?:.+\n?)+)", _display, docstring, flags=re.MULTILINE)
    text = re.sub(r":math:`([^`]*)`", lambda found: f"${' '.join(found[1].split())}$", text)
    text = re.sub(r":\w+:`~(?:\w+\.)*(\w+)`|:\w+:`([\w.]+)`", lambda found: f"`{found[1] or found[2]}`", text)
    text = re.sub(r"(?:^ *>>> .*\n(?:^ *\S.*\n?)*)", lambda found: f"\n```pycon\n{inspect.cleandoc(found[0])}\n```\n", text, flags=re.M)
    return text.replace("``", "`")
