"""A run that has ended: its scores and settings, read from its directory."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pe_lightning.errors import paragraph, printable, show_metric
from pe_lightning.results import runs

WITHOUT_EFFECT = ("trainer.logger", "trainer.enable_", "trainer.default_root_dir", "trainer.log_every_n_steps")
"""Settings that change no weights."""
TRAINING_OPTIONS = ("data.batching", "data.validation")
"""Settings of the data that change how a model is trained, and not what it is trained on."""
MISSING = "–"
"""Text of a missing value."""
NETWORKS = {"relu": "MLP", "sine": "SIREN", "gabor": "WIRE", "finer": "FINER", "gauss": "Gauss", "staf": "STAF"}
"""Names of perceptrons with these activations."""


class Metric(NamedTuple):
    """The metric of a run: its name in the keys of ``metrics.json``, its unit and its direction."""

    name: str
    unit: str
    higher_is_better: bool

    @classmethod
    def of(cls, name: str) -> Metric:
        """The metric with this name; raises InputError if it is not registered."""
        if name == "psnr":  # known without importing torch
            return cls("psnr", "dB", True)
        from pe_lightning.evaluation.metrics import metrics as registered

        found = registered.get(name)
        return cls(name, found.unit, found.higher_is_better)

    @property
    def title(self) -> str:
        return f"{show_metric(self.name)} ({self.unit})" if self.unit else show_metric(self.name)

    def text(self, value: float, sign: str = "", unit: bool = False) -> str:
        """A value as text, with or without the unit."""
        text = format(value, f"{sign}.2f" if self.unit == "dB" else f"{sign}.4f")
        return MISSING if math.isnan(value) else f"{text} {self.unit if unit else ''}".rstrip()


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory.

    Args:
        path: The directory, resolved.
        label: End of the path by which the run differs from others: ``3-signals-ComplexLinear-gau/2``.
        metrics: The content of ``metrics.json``, checked.
        config: The content of ``config.yaml``; ``None`` if it cannot be read.
        varied: The settings that a sweep varied, as typed.
    """

    path: Path
    label: str
    metrics: dict[str, Any]
    config: dict[str, Any] | None = None
    varied: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """The run in a folder, without its configuration; ValueError says in a sentence why it cannot be read."""
        try:
            metrics = {"metric": "psnr"} | runs.read_metrics(folder / runs.METRICS)
            test, baselines = f"test/{Metric.of(metrics['metric']).name}_per_signal", metrics.get("baselines") or {}
            for key, values in (entry for scores in (metrics, *baselines.values()) for entry in scores.items()):
                if key.endswith("_per_signal") and values is not None and len(values) != (count := len(metrics["signals"])):
                    raise ValueError(f"{key} has {len(values)} values for {count} signals; it must have one per signal")
        except FileNotFoundError:
            raise ValueError(f"no {runs.METRICS}: the run did not reach its end") from None
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            raise ValueError(f"{runs.METRICS} cannot be read: {paragraph(reason, 300)}") from error
        if "signals" not in metrics or metrics.get(test) is None:
            raise ValueError(f"{runs.METRICS} has no {test!r}, one per signal; compare reads the scores of a fit or a test")
        return cls(folder, folder.name, metrics)

    @cached_property
    def metric(self) -> Metric:
        return Metric.of(self.metrics["metric"])

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.metrics.get("grid") or ())

    @cached_property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals, in the order of all lists in ``metrics``; equal names are numbered: ``x``, ``x (2)``."""
        seen: Counter[str] = Counter()
        found = []
        for name in map(printable, self.metrics["signals"]):
            seen[name] += 1
            found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
        return tuple(found)

    @cached_property
    def test(self) -> dict[str, float]:
        return self.scores(f"test/{self.metric.name}")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings of the configuration that the result depends on, with the value that the fit chose for ``auto``."""
        found = {}
        for key, value in runs.result_settings(self.config or {}).items():
            if value in (None, "auto") and key.startswith(("model.encoder.", "model.ridge")):
                resolved = look_up(self.metrics, key.removeprefix("model."))
                each = resolved if isinstance(resolved, list) else [resolved]  # one per axis
                if not {None, MISSING} & {*each}:
                    value = as_text([f"{entry:.4g}" if isinstance(entry, float) else entry for entry in each])
            if key.endswith(".class_path"):
                key, value = key.removesuffix(".class_path"), str(value).rpartition(".")[2]
            found["model.encoder.name" if key == "model.encoder" and isinstance(value, str) else key] = value
        return found

    @property
    def seed(self) -> int | None:
        """The seed of the fit; ``None`` if it is not recorded."""
        return seed if isinstance(seed := self.metrics.get("seed"), int) else None

    @property
    def described(self) -> dict[str, Any]:
        """The description of the fit in ``metrics.json``, by dotted keys."""
        names = ("model", "encoding", "encoder", "network", "optimizer", "steps", "seed")
        return dict(runs.flatten({name: self.metrics.get(name) for name in names}))

    @property
    def conditions(self) -> dict[str, Any]:
        """The settings that decide the result besides data and sampling."""
        ignored = (*WITHOUT_EFFECT, "data")
        return {
            key: value
            for key, value in self.settings.items()
            if not key.startswith(ignored) or key.startswith(TRAINING_OPTIONS)
        }

    def metrics_key(self, key: str) -> str:
        """The key in ``metrics.json`` of a setting, such as ``encoder.name``; the setting itself if it has none."""
        short = "seed" if key == "seed_everything" else key.removeprefix("model.")
        return key if look_up(self.metrics, short) is MISSING else short

    def value(self, key: str) -> Any:
        """The value of a setting that a sweep varied, at a dotted key of ``metrics.json``, or of a setting of the run."""
        if key in self.varied:
            return self.varied[key]
        if (found := look_up(self.metrics, key)) is not MISSING:
            return found
        return self.method if key == "method" else self.settings.get(key, MISSING)

    @property
    def is_exact(self) -> bool:
        """Whether the fit was solved, without training steps."""
        return self.metrics.get("solve_seconds") is not None and not self.metrics.get("steps")

    @property
    def method(self) -> str:
        """A short name of the model with its encoder: ``SIREN``, ``rff MLP``, ``gau exact``, ``gau complex``."""
        found = (look_up(self.metrics, key) for key in ("model", "network.name", "encoder.name"))
        model, network, encoder = ("" if value in (None, MISSING) else as_text(value) for value in found)
        if model == "ComplexLinear" and not network:
            return f"{encoder} {'exact' if self.is_exact else 'complex'}"
        if model == "SimpleMLP":
            short = NETWORKS.get(network, f"{network} MLP")
            return short if encoder == "identity" else f"{encoder} {short}"
        return network if model == "NetworkModule" else " ".join(filter(None, [model, network, encoder]))

    def scores(self, key: str) -> dict[str, float]:
        """A metric per signal; NaN where it is not finite or was not recorded."""
        values = self.metrics.get(f"{key}_per_signal") or [None] * len(self.signals)
        return {s: math.nan if value is None else float(value) for s, value in zip(self.signals, values, strict=True)}


def look_up(tree: Any, key: str) -> Any:
    """The value at a dotted key, or :data:`MISSING`; a list if it goes through a list, such as an encoder per axis."""
    if isinstance(tree, list):
        found = [look_up(entry, key) for entry in tree]
        return MISSING if all(value is MISSING for value in found) else found
    name, _, rest = key.partition(".")
    if not isinstance(tree, Mapping) or name not in tree:
        return MISSING
    return look_up(tree[name], rest) if rest else tree[name]


def as_text(value: Any) -> str:
    """A value as text in a table: strings unchanged, lists joined by ``+`` without duplicates, all else as JSON."""
    if isinstance(value, list) and value and not any(isinstance(entry, (list, Mapping)) for entry in value):
        return "+".join(dict.fromkeys(map(as_text, value)))
    return printable(value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str))
