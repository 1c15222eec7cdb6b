"""Descriptions of runs: plain values from the LightningModule and its DataModule, and the names made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.training.datamodule import SignalDataModule


@runtime_checkable
class Describes(Protocol):
    """A LightningModule that can be recorded.

    After a test it also has ``scores``, a dictionary of values per signal ``(S,)`` by name, such as ``test/psnr`` and
    ``train/psnr``. If its ``test_step`` returns a dictionary with ``prediction``, that becomes the run's reconstructions.
    """

    monitor: str
    """Logged value by which fits are compared: ``val/<metric>``."""
    monitor_mode: Literal["max", "min"]

    def describe(self) -> dict[str, Any]:
        """Plain values for ``metrics.json``: at least ``model``, ``num_params`` and ``encoder`` (with ``name``, or None).

        ``data_name`` names run directories. Where the DataModule is not one of signals, ``data_fingerprint``, ``protocol``
        and ``sampling`` say which runs can be compared.
        """
        ...


def metric_of(module: Describes) -> str:
    """The metric by which the fits of a module are compared."""
    return module.monitor.rpartition("/")[2]


def encoder_names(described: Mapping[str, Any]) -> str:
    """The distinct encoders of a description, joined by ``+``; empty for none."""
    entries = described["encoder"] if isinstance(described["encoder"], list) else [described["encoder"]]
    return "+".join(dict.fromkeys(entry["name"].rpartition(".")[2] for entry in entries if entry))


def run_name(described: Mapping[str, Any], data: SignalDataModule | None) -> str:
    """The name of a run: data, model, network and encoder, joined by dashes: ``camera-SimpleMLP-sine-identity``."""
    first = described.get("data_name") or data_name(described.get("signals", ["data"]), data)
    network = (described.get("network") or {}).get("name", "")
    return "-".join(filter(None, [first, described["model"], network, encoder_names(described)]))


def data_name(signals: Sequence[str], data: SignalDataModule | None) -> str:
    """One name for all signals: of the file or folder that holds several, else of the only signal, else their number."""
    paths = [] if data is None else data.source.describe().get("paths") or []
    if len(signals) > 1 and len(paths) == 1:
        return SourceFile(Path(paths[0]), paths[0]).stem
    return signals[0] if len(signals) == 1 else f"{len(signals)}-signals"


def describe(module: Describes, data: SignalDataModule | None) -> dict[str, Any]:
    """Description of data and module as plain values; a module that names no signals has one, called ``data``."""
    about = data.describe() if data is not None else {}
    known = {key: about.get(key) for key in ("protocol", "sampling", "paths")}
    known["data_fingerprint"] = about.get("fingerprint")
    known |= {key: about[key] for key in ("num_missing", "num_validation") if key in about}
    described = {"signals": ["data"], "solution": None, **known, **module.describe()}
    return {**described, "num_signals": len(described["signals"])}
