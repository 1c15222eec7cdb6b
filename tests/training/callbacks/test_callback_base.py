"""The clock of a fit, and when callbacks act."""

import contextlib

import pytest
import torch

from pe_lightning.training.callbacks.base import PeriodicCallback, TrainingClock

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


class Act(PeriodicCallback):
    """Keeps the steps at which it acted."""

    def __init__(self, every_n_steps):
        super().__init__(every_n_steps)
        self.acted = []

    def act(self, trainer, pl_module):
        self.acted.append(trainer.global_step)


@pytest.mark.parametrize(("start", "batches", "acted"), [(0, 2, [4]), (18, 1, [20, 24]), (4, 1, [8])])
def test_a_periodic_callback_acts_once_per_multiple(start, batches, acted):
    """In a new and in a resumed fit, also where gradients of several batches are accumulated."""
    callback, trainer = Act(4), Owner()
    trainer.global_step = start
    callback.on_train_start(trainer, None)
    for batch in range(1, 8 * batches):
        trainer.global_step = start + batch // batches
        callback.on_train_batch_end(trainer, None, None, None, batch)
    assert callback.acted == acted
