"""Every class that Lightning ships, named in a configuration of ``fit``: written as ``config.yaml`` and read back."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import yaml
from attempts import SHORT_FIT, TABLES, Row, Size
from lightning.pytorch import callbacks, loggers, profilers, strategies

from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.parser import parse, plain_values, prepare
from pe_lightning.errors import InputError

KINDS = {
    "callbacks": (callbacks, callbacks.Callback),
    "logger": (loggers, loggers.Logger),
    "profiler": (profilers, profilers.Profiler),
    "strategy": (strategies, strategies.Strategy),
}
"""Arguments of the Trainer, the module with their classes, and the base of these."""


def lightning_classes(_: Size) -> Iterator[Row]:
    """One row per kind of classes; those with a function as a required argument are refused."""
    prepare()
    for key, (module, base) in KINDS.items():
        row = Row(f"{module.__name__}, written and read back")
        for name in sorted(module.__all__):
            cls = getattr(module, name)
            if isinstance(cls, type) and issubclass(cls, base) and cls is not base and not inspect.isabstract(cls):
                problem = written_and_read(key, cls)
                row.add(problem == ("refused" if name == "ThroughputMonitor" else ""), f"{name}: {problem}")
        yield row


def written_and_read(key: str, cls: type) -> str:
    """What is wrong with the configuration that names a class; empty if it is read back as it was written."""
    part: Any = {"class_path": f"{cls.__module__}.{cls.__qualname__}", "init_args": TABLES["required"].get(cls.__name__, {})}
    config = {"trainer": {key: [part] if key == "callbacks" else part}}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=r"[\s\S]*Unable to serialize")
            tree = plain_values("fit", parse("fit", [*rewrite("fit", SHORT_FIT[1:]), f"--config={yaml.safe_dump(config)}"]))
            again = plain_values("fit", parse("fit", yaml.safe_load(yaml.safe_dump(tree))))
    except InputError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if again != tree:
        return "read back as another configuration"
    return "" if cls.__name__ in str(tree["trainer"][key]) else "left out"
