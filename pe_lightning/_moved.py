"""Modules that have moved: configurations, checkpoints and programs that name them by an old path keep working."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "pe_lightning.analysis": "pe_papers.analysis",
    "pe_lightning.analysis.ranks": "pe_lightning.encodings.ranks",
    "pe_lightning.analysis.sparsity": "pe_lightning.estimators.sparsity",
    "pe_lightning.experiments.reproduce": "pe_papers.reproduce",
    "pe_lightning.tasks": "pe_papers.tasks",
}
"""Old path of a module or package -> new path; the modules below a package move with it."""


def current(path: str) -> str:
    """The present import path of a module, class or function."""
    parts = path.split(".")
    for end in range(len(parts), 1, -1):
        if (new := MOVED.get(".".join(parts[:end]))) is not None:
            return ".".join([new, *parts[end:]])
    return path


def current_paths(tree: Any) -> Any:
    """Nested plain values with every ``class_path`` as it is now."""
    if isinstance(tree, dict):
        return {
            key: current(value) if key in ("class_path", "_class_path") and isinstance(value, str) else current_paths(value)
            for key, value in tree.items()
        }
    return [current_paths(value) for value in tree] if isinstance(tree, list) else tree


class _Moved(MetaPathFinder, Loader):
    """Imports a moved module under its old path as the same object."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return None if current(fullname) == fullname else ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(current(module.__name__))


if not any(type(finder).__name__ == _Moved.__name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, _Moved())
