"""The one exception that tells a user what to change.

Everything that can be wrong with a configuration, a file or an array is raised as :class:`InputError`; the command line
prints it as one paragraph and exits with status 2. Any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["InputError", "did_you_mean"]


class InputError(ValueError):
    """What was given, what is allowed, and what to type instead."""


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """The nearest of ``allowed`` as a clause of an error message, or an empty string.

    >>> did_you_mean("gua", ["gau", "tri"])
    "; did you mean 'gau'?"
    """
    by_folded = {name.lower(): name for name in allowed}
    near = [by_folded[match] for match in difflib.get_close_matches(word.lower(), by_folded, n=3, cutoff=0.6)]
    return f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
