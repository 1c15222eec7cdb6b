"""The verb ``pe-lightning suggest``."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from rich.status import Status

from pe_lightning import runs
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.errors import InputError
from pe_lightning.experiments.compare.reading import printable
from pe_lightning.experiments.suggest.candidates import make_candidates
from pe_lightning.experiments.suggest.config import write_text
from pe_lightning.experiments.suggest.kinds import data_module_for
from pe_lightning.experiments.suggest.options import Options, parse
from pe_lightning.experiments.suggest.parts import make_windows, whole
from pe_lightning.experiments.suggest.search import search
from pe_lightning.experiments.suggest.table import print_found, verdict
from pe_lightning.experiments.sweep.fits import Fits

__all__ = ["suggest"]

RESERVE = 0.1
"""Share of the budget that an attempt may run over, as expectations go wrong on a busy machine."""

HELP = """\
usage: pe-lightning suggest [PATH ...] [--budget SECONDS] [--out FILE] [options]

Tries every encoder on signals of your own, each with an exact fit and automatic settings, and interpolation beside them:
which predicts the samples best that are held out? Prints the table and writes the best as a configuration.

  pe-lightning suggest my.jpg
  pe-lightning suggest recording.wav --data.seconds "[0, 1]"
  pe-lightning suggest my.jpg --data.sampling random --data.sampling.fraction 0.1
  pe-lightning fit --config suggested.yaml

  PATH                 images, sound, tables, videos, volumes, folders of them, samples://NAME
  --budget SECONDS     how long to try (default: 60); what did not fit is listed
  --out FILE           the configuration to write (default: suggested.yaml)
  --force              replace that file if it exists
  --encoders A,B       try these only (default: all, see pe-lightning encoders)
  --num_features N,M   features per axis (default: as many as trained samples, and half as many)
  --data...            data options of fit; --data NAME where the kind of a file is not clear
  --config FILE        take the data options of a configuration; its model and trainer do not count
"""


def suggest(arguments: Sequence[str], began: float | None = None) -> int:
    """Tries the encoders, prints the table, writes the configuration and returns the exit status, 0.

    Args:
        arguments: The command line.
        began: When the command was given, in seconds of :func:`time.perf_counter`; by default now.

    Raises:
        InputError: If the arguments or the data have to be changed, or no encoder can be tried.
    """
    if any(argument in ("-h", "--help") for argument in arguments):
        print(HELP, end="")
        return 0
    began = time.perf_counter() if began is None else began
    options = parse(arguments)
    if options.out.exists() and (options.out.is_dir() or not options.force):
        what = "is a folder" if options.out.is_dir() else "exists; --force replaces it"
        raise InputError(f"--out {str(options.out)!r} {what}, or name another file")
    fits = Fits()
    tree = fits.resolve(_fit_options(options))
    data = fits.load(tree)
    if not isinstance(data, SignalDataModule):
        raise InputError(f"suggest reads the DataModules of pe_lightning, got a {type(data).__name__}")
    if data.effective_protocol == "none":
        raise InputError(
            f"nothing is held out ({data.sampling!r}), so nothing can be compared; set --data.sampling.stride 2, or "
            "--data.sampling random"
        )
    candidates, skipped = make_candidates(options.encoders, options.num_features)
    everything, windows = whole(data), make_windows(data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with Status("loading", console=Console(stderr=True)) as status:
        deadline = began + (1 - RESERVE) * options.budget
        found = search(candidates, everything, windows, deadline, device, lambda text: status.update(printable(text)))
    found.skipped[:0] = skipped
    _print_data(data)
    print_found(found, everything, windows)
    print(f"{time.perf_counter() - began:.1f} s of {options.budget:g} s")
    if not found.encoders():
        raise InputError(_why_none(found.skipped))
    best = found.encoders()[0]
    text = write_text(best, found.shown, tree["data"], tree["seed_everything"], verdict(found), options.out)
    runs.write_atomically(options.out, text)
    print(f"best encoder, ready to fit: pe-lightning fit --config {options.out}")
    return 0


def _fit_options(options: Options) -> list[str]:
    """The options of ``fit`` that stand for the data; the model is one that any data is good for."""
    arguments = list(options.data)
    configured = any(argument in ("--config", "-c") or argument.startswith("--config=") for argument in arguments)
    given = [argument.partition("=")[2] for argument in arguments if argument.startswith("--data.paths=")]
    if not options.names_data:
        arguments.insert(0, f"--data={data_module_for(options.paths or _as_list(given[-1]))}")
    if options.paths:
        arguments.append(f"--data.paths={json.dumps(list(options.paths))}")
    model = ["--model=ComplexLinear", "--model.encoder=gau"]
    return [*arguments, *model] if configured else [*model, *arguments]


def _as_list(text: str) -> list[str]:
    words = text.strip()
    return [word.strip(" '\"") for word in words[1:-1].split(",")] if words.startswith("[") else [words]


def _print_data(data: SignalDataModule) -> None:
    info = data.info
    names = printable(info.names[0]) if info.num_signals == 1 else f"{info.num_signals} signals"
    sizes = "x".join(map(str, info.grid))
    spec: dict[str, Any] = data.sampling.spec()
    sampling = ", ".join(f"{key} {value}" if key != "name" else str(value) for key, value in spec.items())
    print(
        f"{names}: {sizes}, {info.channels} channel(s); trained on {sampling}; held out: protocol {data.effective_protocol}"
    )


def _why_none(skipped: Sequence[Any]) -> str:
    first = f": {skipped[0].label}: {skipped[0].reason}" if skipped else ""
    return f"no encoder could be tried{first}"
