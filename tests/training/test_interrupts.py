"""Signals that ask a command to stop."""

import os
import signal

import pytest

from pe_lightning.__main__ import main
from pe_lightning.training.interrupts import Interrupted, StopSignals, raise_interrupted


def send(signum: int) -> None:
    os.kill(os.getpid(), signum)


def test_the_first_signal_is_passed_on_and_only_ctrl_c_is_counted_again():
    handlers = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    received = []
    with StopSignals(raise_interrupted) as outer:
        with StopSignals(received.append) as inner:
            for signum in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
                send(signum)
            assert (received, inner.signum) == ([signal.SIGTERM], signal.SIGTERM)
            with pytest.raises(Interrupted):
                send(signal.SIGINT)
        send(signal.SIGTERM)  # a repeated one
        assert outer.signum == signal.SIGTERM
        with pytest.raises(Interrupted, match="interrupted"):
            send(signal.SIGINT)
    assert handlers == [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


def test_sigterm_after_ctrl_c_is_passed_on_and_nohup_is_respected():
    received = []
    with StopSignals(received.append) as signals:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
            send(signum)
    assert (received, signals.signum) == ([signal.SIGINT, signal.SIGTERM], signal.SIGTERM)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals(raise_interrupted) as signals:
            send(signal.SIGHUP)
        assert signals.signum is None
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("signum", "status", "text"), [(2, 130, "interrupted"), (15, 143, "stopped by SIGTERM"), (1, 129, "stopped by SIGHUP")]
)
def test_a_signal_outside_of_training_is_one_line_and_its_status(monkeypatch, capsys, signum, status, text):
    monkeypatch.setattr("pe_lightning.cli.main.run", lambda *_: send(signum))
    before = signal.signal(signum, signal.SIG_DFL)  # under nohup SIGHUP is ignored
    try:
        assert main(["fit"]) == status
    finally:
        signal.signal(signum, before)
    assert capsys.readouterr().err == f"pe-lightning: {text}\n"
