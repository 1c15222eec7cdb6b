"""One fit of a sweep and what became of it: plain values, so that both can go to another process and back."""

from __future__ import annotations

import logging
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pe_lightning.errors import InputError

if TYPE_CHECKING:
    from pe_lightning.experiments.sweep.fits import Fits

__all__ = ["Job", "Outcome", "attempt"]


@dataclass(frozen=True)
class Job:
    """A fit that is to be run.

    Args:
        name: Of its cell.
        tree: The complete configuration.
        folder: The run directory, absolute.
        checkpoint: Where an earlier attempt is taken up again.
    """

    name: str
    tree: dict[str, Any]
    folder: Path
    checkpoint: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a fit.

    Args:
        seconds: From its start to its end, data included.
        metrics: The content of ``metrics.json``; empty if it failed.
        error: Why it failed; ``None`` if it did not.
        trace: The traceback of an error that is not the user's.
    """

    seconds: float
    metrics: dict[str, Any]
    error: str | None = None
    trace: str | None = None


def attempt(fits: Fits, job: Job, warn: Callable[[str], None]) -> Outcome:
    """Runs a fit; whatever it dies of becomes its outcome.

    Args:
        fits: Runs it.
        job: The fit.
        warn: Is told every warning, each once.

    Raises:
        KeyboardInterrupt: If the user ends it.
    """
    began = time.perf_counter()

    def failed(error: str, trace: str | None = None) -> Outcome:
        return Outcome(time.perf_counter() - began, {}, error, trace)

    try:
        with _warnings_to(warn), _quiet():
            metrics = fits.fit(job.tree, job.folder, job.checkpoint)
    except InputError as error:
        return failed(str(error))
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning makes it the status of a failure
            raise KeyboardInterrupt from None
        return failed(f"the fit ended the process with status {error.code}", traceback.format_exc())
    except Exception as error:  # the other fits are run all the same
        message = " ".join(str(error).split())[:500]
        return failed(f"{type(error).__name__}: {message}".rstrip(": "), traceback.format_exc())
    return Outcome(time.perf_counter() - began, metrics)


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's notes on every fit stay out of the terminal; its warnings do not."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(max(logger.level, logging.WARNING))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _warnings_to(warn: Callable[[str], None]) -> Iterator[None]:
    """Hands on the text of warnings, each once."""
    with warnings.catch_warnings():
        seen: set[str] = set()

        def show(message: Warning | str, *_: Any) -> None:
            text = " ".join(str(message).split())
            if text not in seen:
                seen.add(text)
                warn(text)

        warnings.showwarning = show  # type: ignore[assignment]
        yield
