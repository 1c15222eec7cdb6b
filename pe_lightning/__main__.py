"""The command ``pe-lightning``, also ``python -m pe_lightning``.

What needs no training answers without importing Lightning.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence

from pe_lightning import __version__
from pe_lightning.errors import InputError, did_you_mean, last_resort
from pe_lightning.interrupts import Interrupted, StopSignals, exit_status, raise_interrupted

LONG_WORD = r"(\S{150})\S{150,}(\S{50})"

FUNCTIONS = {
    "list": "pe_lightning.commands.list_registered",
    "encoders": "pe_lightning.commands.list_encoders",
    "networks": "pe_lightning.commands.list_networks",
    "suggest": "pe_lightning.experiments.suggest.command.suggest",
    "sweep": "pe_lightning.experiments.sweep.command.sweep",
    "compare": "pe_lightning.experiments.compare.command.compare_runs",
    "analyze": "pe_lightning.analysis.command.analyze",
    "reproduce": "pe_lightning.experiments.reproduce.command.reproduce_command",
    "cache": "pe_lightning.commands.cache",
}
"""Verbs that are a typed function. The others are the Trainer's."""

VERBS = {
    "fit": "fit signals, score the held-out samples, write reconstructions",
    "validate": "score the held-out samples of a checkpoint",
    "test": "score a checkpoint and write its reconstructions",
    "predict": "write reconstructions of a checkpoint at any size",
    "list": "list what can be named: encoders, models, samplings, recipes, ...",
    "encoders": "list the registered encoders",
    "networks": "list the models, and the activations of SimpleMLP",
    "suggest": "try all encoders on signals of your own and write the best as a configuration",
    "sweep": "fit every combination of some settings, each a run of its own",
    "compare": "tables, plots and pictures of runs side by side",
    "analyze": "measure encoders beside theory: rank, similarity, distance preservation",
    "reproduce": "regenerate a table or figure of the papers, their values beside ours",
    "cache": "list or clear the decoded signals that are kept for the next run",
}

HELP = f"""\
usage: pe-lightning VERB [options]

Which positional encoding represents this signal best, how fast, and why.

{chr(10).join(f"  {verb:<10} {text}" for verb, text in VERBS.items())}

  pe-lightning fit my.jpg --encoder tri        fit signals of your own exactly: pictures, sound, tables, videos, volumes
  pe-lightning fit --config image/demo         train on a sample photograph, by one of the recipes that come with it
  pe-lightning predict --ckpt_path RUN/checkpoints/last.ckpt --output_shape 1024 1024
  pe-lightning VERB --help                     all options of a verb
"""


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    It is 0, 1 after a fault of the program, 2 for input that has to be changed; after a signal 128 + its number: 130 for
    Ctrl-C, 143 for SIGTERM, 129 for SIGHUP.

    Args:
        args: The arguments; ``None`` takes those of the process.
    """
    if args is None:  # torch is not imported yet. Threads that wait in a loop would take the cores of other programs
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    verb, *arguments = (sys.argv[1:] if args is None else args) or ["--help"]
    if verb in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if verb == "--version":
        print(f"pe-lightning {__version__}")
        return 0
    try:
        with StopSignals(raise_interrupted):
            return _run(verb, arguments)
    except InputError as error:
        return _fail(str(error), 2)
    except (KeyboardInterrupt, SystemExit) as end:
        # Lightning makes an interrupt the status of a failure
        interrupt = end if isinstance(end, KeyboardInterrupt) else end.__context__
        if isinstance(interrupt, KeyboardInterrupt):
            stopped = interrupt if isinstance(interrupt, Interrupted) else Interrupted(signal.SIGINT)
            print(f"pe-lightning: {stopped}", file=sys.stderr)
            return exit_status(stopped.signum)
        if isinstance(end, SystemExit) and end.code in (
            None,
            0,
        ):  # the parser has printed what --help or --print_config ask for
            return 0
        raise
    except Exception as error:
        return _fail(*last_resort(error))


def _fail(message: str, status: int) -> int:
    """Prints an error with long words, such as paths of thousands of characters, cut in the middle."""
    print("pe-lightning: error:", re.sub(LONG_WORD, r"\1...\2", message), file=sys.stderr)
    return status


def _run(verb: str, arguments: Sequence[str]) -> int:
    if verb not in VERBS:
        raise InputError(f"unknown verb {verb!r}{did_you_mean(verb, VERBS) or '.'} Verbs: {', '.join(VERBS)}")
    if verb in FUNCTIONS:
        from pe_lightning.verbs import call

        module, _, name = FUNCTIONS[verb].rpartition(".")
        return call(verb, getattr(importlib.import_module(module), name), arguments)
    from pe_lightning.cli import run

    return run(verb, arguments)


if __name__ == "__main__":
    sys.exit(main())
