"""Settings and results as one level of dotted keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["flatten"]


def flatten(tree: Mapping[Any, Any], prefix: str = "", entries: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields the dotted keys of a nested mapping with their values.

    Args:
        tree: Nested mappings.
        prefix: Put before every key.
        entries: Whether the entries of a list of mappings get keys too, by their numbers; else a list is a value.

    >>> dict(flatten({"encoder": {"name": "gau", "sigma": 0.1}, "grid": [4, 4]}))
    {'encoder.name': 'gau', 'encoder.sigma': 0.1, 'grid': [4, 4]}
    >>> dict(flatten({"encoder": [{"name": "tri"}, {"name": "rbf"}]}, entries=True))
    {'encoder.0.name': 'tri', 'encoder.1.name': 'rbf'}
    """
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if entries and isinstance(value, (list, tuple)) and value and all(isinstance(entry, Mapping) for entry in value):
            value = dict(enumerate(value))
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{key}.", entries)
        else:
            yield key, value
