"""Modules by other paths, and arguments by their old names: old configurations, checkpoints and imports keep working."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "pe_lightning.analysis": "pe_papers.analysis",
    "pe_lightning.analysis.ranks": "pe_lightning.encodings.ranks",
    "pe_lightning.analysis.sparsity": "pe_lightning.studies.suggest.sparse",
    "pe_lightning.baselines": "pe_lightning.evaluation.baselines",
    "pe_lightning.callbacks": "pe_lightning.training.callbacks",
    "pe_lightning.callbacks.StableRank": "pe_papers.analysis.StableRank",
    "pe_lightning.callbacks.descriptions": "pe_lightning.training.callbacks.scores",
    "pe_lightning.callbacks.memory": "pe_lightning.training.callbacks.devices",
    "pe_lightning.callbacks.precision": "pe_lightning.training.callbacks.devices",
    "pe_lightning.data": "pe_lightning.signals",
    "pe_lightning.data.ImageDataModule": "pe_lightning.training.ImageDataModule",
    "pe_lightning.data.LabelledDataModule": "pe_lightning.training.LabelledDataModule",
    "pe_lightning.data.PointsDataModule": "pe_lightning.training.PointsDataModule",
    "pe_lightning.data.RowDataModule": "pe_lightning.training.RowDataModule",
    "pe_lightning.data.TensorDataModule": "pe_lightning.training.TensorDataModule",
    "pe_lightning.data.VideoDataModule": "pe_lightning.training.VideoDataModule",
    "pe_lightning.data.datamodule": "pe_lightning.training.datamodule",
    "pe_lightning.data.datamodules": "pe_lightning.training.datamodules",
    "pe_lightning.data.output": "pe_lightning.training.datamodule",
    "pe_lightning.data.signals": "pe_lightning.signals.raw",
    "pe_lightning.experiments": "pe_lightning.studies",
    "pe_lightning.experiments.reproduce": "pe_papers.reproduce",
    "pe_lightning.export": "pe_lightning.training.export",
    "pe_lightning.encodings.bank.Bank": "pe_lightning.encodings.bank.AnisotropicKernels",
    "pe_lightning.interface": "pe_lightning.training.fit",
    "pe_lightning.linalg.BlockBanded": "pe_lightning.linalg.RowBanded",
    "pe_lightning.linalg.Local": "pe_lightning.linalg.RowBanded",
    "pe_lightning.linalg.block_banded": "pe_lightning.linalg.row_banded",
    "pe_lightning.linalg.block_banded.BlockBanded": "pe_lightning.linalg.row_banded.RowBanded",
    "pe_lightning.linalg.local": "pe_lightning.linalg.row_banded",
    "pe_lightning.linalg.local.Local": "pe_lightning.linalg.row_banded.RowBanded",
    "pe_lightning.metrics": "pe_lightning.evaluation.metrics",
    "pe_lightning.modules": "pe_lightning.training",
    "pe_lightning.networks.ComplexStack": "pe_lightning.networks.ComplexEnsemble",
    "pe_lightning.networks.Stack": "pe_lightning.networks.VmapEnsemble",
    "pe_lightning.networks.complex_stack": "pe_lightning.networks.complex_ensemble",
    "pe_lightning.networks.complex_stack.ComplexStack": "pe_lightning.networks.complex_ensemble.ComplexEnsemble",
    "pe_lightning.networks.stack": "pe_lightning.networks.ensemble",
    "pe_lightning.networks.stack.Stack": "pe_lightning.networks.ensemble.VmapEnsemble",
    "pe_lightning.signals.options": "pe_lightning.signals.loaders",
    "pe_lightning.signals.options.Storage": "pe_lightning.signals.cache.Storage",
    "pe_lightning.signals.sources.samples": "pe_lightning.signals.sources.paths",
    "pe_lightning.solvers.spread": "pe_lightning.solvers.uncertainty",
    "pe_lightning.tasks": "pe_papers.tasks",
    "pe_lightning.training.callbacks.StableRank": "pe_papers.analysis.StableRank",
    "pe_lightning.training.kronecker": "pe_lightning.training.complex_linear",
    "pe_lightning.training.local": "pe_lightning.training.adaptive",
    "pe_lightning.training.output": "pe_lightning.training.datamodule",
    "pe_lightning.xarray": "pe_lightning.estimators.labelled",
}
"""Path of version 0.2 of a module, package or class -> new path; the modules below a package move with it."""


def current(path: str) -> str:
    """The present import path of a module, class or function."""
    parts = path.split(".")
    for end in range(len(parts), 1, -1):
        if (new := MOVED.get(".".join(parts[:end]))) is not None:
            return current(".".join([new, *parts[end:]]))
    return path


RENAMED: dict[str, dict[str, str]] = {
    "Adaptive": {"prior": "pretrained"},
    "ComplexLinear": {
        "warm_start": "solver",
        "width": "hidden_size",
        "keep": "num_coefficients",
        "kept_as": "storage_dtype",
    },
    "Local": {"prior": "pretrained"},
    "SimpleMLP": {"width": "hidden_size"},
    **{f"{kind}DataModule": {"protocol": "eval_mask"} for kind in ("Image", "Labelled", "Points", "Row", "Tensor", "Video")},
}
"""Class -> its constructor's arguments of version 0.2 that have another name now."""


def current_settings(tree: Any) -> Any:
    """Nested plain values of a configuration or a checkpoint, with every class path and argument as it is named now."""
    if isinstance(tree, list):
        return [current_settings(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    tree = {key: current_settings(value) for key, value in tree.items()}
    for key in ("class_path", "_class_path"):
        if isinstance(path := tree.get(key), str):
            tree[key] = current(path)
            package, _, name = tree[key].rpartition(".")
            renamed = RENAMED.get(name, {}) if package.partition(".")[0] in ("", "pe_lightning") else {}
            if key == "_class_path":
                tree = _renamed(tree, renamed)
            elif isinstance(tree.get("init_args"), dict):
                tree["init_args"] = _renamed(tree["init_args"], renamed)
    return tree


def _renamed(arguments: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Arguments by their present names; ``warm_start: true`` is ``solver: exact``."""
    found = {names.get(key, key): value for key, value in arguments.items()}
    if "warm_start" in names.keys() & arguments.keys():
        found["solver"] = "exact" if arguments["warm_start"] is True else None
    return found


class _Moved(MetaPathFinder, Loader):
    """Imports a moved module under its old path as the same object."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        new = current(fullname)
        if new == fullname or importlib.util.find_spec(new) is None:  # such as the name of a class
            return None
        return ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        if not any(name.rpartition(".")[0] == old and not name.islower() for name in MOVED):
            sys.modules[old] = importlib.import_module(current(old))
            return
        # some classes of this package have moved elsewhere
        module.__path__ = []
        module.__getattr__ = lambda name: _attribute(f"{old}.{name}")  # type: ignore[method-assign]


def _attribute(path: str) -> Any:
    """The object of an old path."""
    module, _, name = current(path).rpartition(".")
    return getattr(importlib.import_module(module), name)


if not any(type(finder).__name__ == _Moved.__name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, _Moved())
