"""The clock of a fit."""

import contextlib

import torch

from pe_lightning.training.callbacks.base import TrainingClock

CPU = torch.device("cpu")


class Owner:
    """Takes the place of a Trainer."""


def test_the_clock_counts_what_is_not_paused(now):
    trainer = Owner()
    clock = TrainingClock.of(trainer)
    assert TrainingClock.of(trainer) is clock
    clock.start(7.0)
    clock.start(0.0)  # another callback of the same fit, which does not know of the earlier part
    now[0] += 2
    with contextlib.suppress(ValueError), clock.paused(CPU):
        now[0] += 50
        raise ValueError
    now[0] += 1
    clock.pause(CPU)
    with clock.paused(CPU):
        now[0] += 50
    now[0] += 50
    assert clock.seconds == 10, "what was stopped stays so"
    clock.resume()
    now[0] += 1
    assert clock.seconds == 11
    clock.pause(CPU)
    clock.start()
    assert clock.seconds == 0, "another fit"
