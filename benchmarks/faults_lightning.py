"""Every class that Lightning ships, named in a configuration of ``fit``: written as ``config.yaml`` and read back."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import yaml
from attempts import SHORT_FIT, TABLES, Row
from lightning.pytorch import callbacks, loggers, profilers, strategies
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import Strategy

from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.cli import parse, plain_values, prepare
from pe_lightning.errors import InputError

KINDS: dict[str, tuple[Any, type]] = {
    "trainer.callbacks": (callbacks, Callback),
    "trainer.logger": (loggers, Logger),
    "trainer.profiler": (profilers, Profiler),
    "trainer.strategy": (strategies, Strategy),
}
"""Where a configuration names the classes of a module, and their base."""
TAKES_FUNCTION = frozenset({"ThroughputMonitor"})
"""Classes with a function as a required argument, which no configuration names."""


def classes(module: Any, base: type) -> Iterator[type]:
    """The subclasses of a base that a module exports, and that can be made."""
    for name in sorted(module.__all__):
        found = getattr(module, name)
        if isinstance(found, type) and issubclass(found, base) and not inspect.isabstract(found) and found is not base:
            yield found


def written_and_read(key: str, cls: type) -> str | None:
    """What is wrong with the configuration that names a class; ``None`` if it is read back as it was written."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    part: Any = {"class_path": name, "init_args": TABLES["required"].get(cls.__name__, {})}
    section, _, argument = key.partition(".")
    config = {section: {argument: [part] if argument == "callbacks" else part}}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=r"[\s\S]*Unable to serialize")
            tree = plain_values("fit", parse("fit", [*rewrite("fit", SHORT_FIT[1:]), f"--config={yaml.safe_dump(config)}"]))
            again = plain_values("fit", parse("fit", yaml.safe_load(yaml.safe_dump(tree))))
    except InputError as error:
        return None if cls.__name__ in TAKES_FUNCTION else f"refused: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if again != tree:
        return "read back as another configuration"
    return None if cls.__name__ in str(tree[section][argument]) else "left out"


def lightning_classes() -> Iterator[Row]:
    """One row per kind of classes."""
    prepare()
    for key, (module, base) in KINDS.items():
        row = Row(f"{module.__name__}, written and read back")
        for cls in classes(module, base):
            problem = written_and_read(key, cls)
            row.add(problem is None, f"{cls.__name__}: {problem}")
        yield row
