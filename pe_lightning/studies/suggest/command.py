"""The verb ``pe-lightning suggest``."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse.typing import PositiveFloat

from pe_lightning.cli.arguments import read, rewrite
from pe_lightning.cli.messages import unknown_option
from pe_lightning.errors import InputError, console, say, show_protocol
from pe_lightning.registry import load_entry_points
from pe_lightning.signals.files import check_outputs, named_files, write_atomically

if TYPE_CHECKING:
    from pe_lightning.training.datamodule import SignalDataModule

SUGGESTIONS = "pe_lightning.suggestions"
"""Entry points of other packages. ``all_samples`` is tried where every sample is trained on: a function of the DataModule,
the names of encoders, the configuration without defaults and the file to write, which prints a table, returns its text."""


def suggest(
    paths: list[str] | None = None,
    /,
    *options: str,
    budget: PositiveFloat = 60.0,
    out: Path = Path("suggested.yaml"),
    force: bool = False,
    encoders: str | None = None,
    num_features: str | None = None,
    all: bool = False,
) -> int:
    """Tries every encoder on your signals and writes the best as a configuration.

    Every encoder is fitted exactly, with width and ridge chosen on held-out training samples, and compared with
    interpolation by the prediction of the held-out samples. pe-lightning fit --config suggested.yaml fits the best one.

    Where every sample is trained on (--data.sampling.stride 1), it compares how well few numbers of the exact fit represent
    all samples, and writes a sparse fit.

    Args:
        paths: Images, sound, tables, videos, volumes, folders of them, or samples://NAME.
        options: --data... and --config FILE as for pe-lightning fit; only the data and the seed of a configuration are used.
            --data NAME if the kind of a file is ambiguous.
        budget: Time limit in seconds; no trial but the first starts after it, and encoders without a trial are listed.
        out: The configuration file to write.
        force: Replace this file if it exists; files that are read are never replaced.
        encoders: A,B: encoders to try (default: all, see pe-lightning encoders).
        num_features: N,M: features per axis (default: as many as trained samples, and half as many).
        all: Show all rows and columns of the table (default: the best eight).
    """
    began = time.perf_counter()  # the budget includes the imports
    from pe_lightning import encoders as known
    from pe_lightning.estimators.base import suggested_estimators

    names = list(dict.fromkeys(_words(encoders)))
    for name in names:
        if name not in known.registry and name not in suggested_estimators():
            known.registry.get(name)  # raises InputError for an unknown name
    counts = list(dict.fromkeys(_words(num_features)))
    if any(not word.isdecimal() or int(word) < 1 for word in counts):
        raise InputError(f"--num_features takes integers >= 1, separated by commas; got {num_features!r}")
    arguments = _fit_options(paths or [], options)
    configs = [option.value for option in read(options)[1] if option.key == "config" and option.value is not None]
    check_outputs([out], named_files([*(paths or ()), *configs]), force)
    import torch  # these take seconds
    from lightning.pytorch import seed_everything
    from rich.status import Status

    from pe_lightning.cli.parser import instantiate, parse, plain_values, prepare
    from pe_lightning.studies.suggest.crop import scored_signals
    from pe_lightning.studies.suggest.report import configuration, print_result
    from pe_lightning.studies.suggest.search import encoder_candidates, search
    from pe_lightning.training.datamodule import SignalDataModule

    prepare()
    config = parse("fit", rewrite("fit", arguments))
    tree = plain_values("fit", config, defaults=False)
    if not isinstance(config.seed_everything, bool):
        seed_everything(config.seed_everything, verbose=False)  # which encoders without a seed follow, as in the fit
    data = instantiate("fit", config, ["data"]).data
    data.prepare_data()
    if not isinstance(data, SignalDataModule):
        raise InputError(f"suggest needs a DataModule of pe_lightning, got a {type(data).__name__}")
    # also files in folders, and files that a configuration names, such as a mask
    check_outputs([out], [*named_files(tree), *data.source.files()], force)
    if data.info.num_points is not None:
        raise InputError("suggest compares encoders on grids; for scattered points type pe-lightning fit FILE --data...")
    if data.signals.eval_mask == "none":
        suggestion = (
            None if data.signals.streamed else next(load_entry_points(SUGGESTIONS, "suggestion", "all_samples"), None)
        )
        if suggestion is None:
            raise InputError(
                f"nothing is held out ({data.sampling!r}): set --data.sampling.stride 2, or --data.sampling random"
            )
        write_atomically(out, suggestion(data, names, tree, out), force)
        say("every sample is trained on: to predict samples, hold some out with --data.sampling.stride 2")
        say(f"the best, ready to fit: pe-lightning fit --config {out}")
        return 0
    candidates, skipped = encoder_candidates(names, [int(word) for word in counts])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with Status("loading", console=console(None, stderr=True)) as status:
        result = search(candidates, scored_signals(data), began + budget, device, status.update)
    result.skipped = {**skipped, **result.skipped}
    _print_data(data)
    print_result(result, all)
    say(f"{time.perf_counter() - began:.1f} s of {budget:g} s")
    if not result.of(interpolation=False):
        reason = next((f": {label}: {reason}" for label, reason in result.skipped.items()), "")
        raise InputError(f"no encoder could be tried{reason}")
    write_atomically(out, configuration(result, tree, out), force)
    say(f"the best, ready to fit: pe-lightning fit --config {out}")
    return 0


def _words(text: str | None) -> list[str]:
    return [] if text is None else [word.strip() for word in text.strip("[] ").split(",")]


def _fit_options(paths: Sequence[str], options: Sequence[str]) -> list[str]:
    given = {option.key: option for option in read(options)[1]}
    for key, option in given.items():
        if key not in ("config", "data") and not key.startswith("data."):
            known = [f"--{name}" for name in inspect.signature(suggest).parameters]
            raise InputError(f"suggest: {unknown_option(option.name, [*known, '--data', '--config'])}")
    if not paths and not {"data.paths", "data", "config"} & given.keys():
        raise InputError("suggest needs signals: pe-lightning suggest my.jpg, or --data.paths my.jpg")
    model = ["--model=ComplexLinear", "--model.encoder=gau"]
    if not paths and not {"data", "config"} & given.keys():
        paths = [path.strip("'\"") for path in _words(given.pop("data.paths").value)]
    return [*paths, *(word for option in given.values() for word in option.words), *model]


def _print_data(data: SignalDataModule) -> None:
    info = data.info
    names = info.names[0] if info.num_signals == 1 else f"{info.num_signals} signals"
    sizes = "x".join(map(str, info.grid))
    sampling = ", ".join(str(value) if key == "name" else f"{key} {value}" for key, value in data.sampling.spec().items())
    say(
        f"{names}: {sizes}, {info.channels} channel(s); trained on {sampling}; held out: "
        f"{show_protocol(data.signals.eval_mask)}"
    )
