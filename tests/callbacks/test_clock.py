"""The clock of a fit."""

from types import SimpleNamespace

import pytest
import torch

from pe_lightning.callbacks.clock import TrainingClock, clocks_paused


def test_it_stands_still_while_paused_and_goes_on_from_given_seconds(now):
    clock = TrainingClock()
    assert clock.seconds == 0
    clock.start(7.0)
    now[0] += 2
    assert clock.pause() is True
    assert clock.pause() is False, "it stood still already"
    now[0] += 50
    assert clock.seconds == 9
    clock.resume()
    clock.resume()
    now[0] += 1
    assert clock.seconds == 10


def test_all_clocks_of_a_trainer_stop_and_only_those_that_ran_go_on(now):
    running, standing = TrainingClock(), TrainingClock()
    running.start()
    callbacks = [SimpleNamespace(clock=running), SimpleNamespace(clock=standing), SimpleNamespace(clock="noon"), object()]
    trainer = SimpleNamespace(callbacks=callbacks, strategy=SimpleNamespace(root_device=torch.device("cpu")))

    def look():
        with clocks_paused(trainer):
            now[0] += 5
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):  # they go on after an error too
        look()
    now[0] += 1
    assert running.seconds == 1
    assert standing.seconds == 0
