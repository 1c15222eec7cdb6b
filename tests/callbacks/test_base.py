"""The clock of a fit, and when callbacks act."""

import contextlib

import pytest
import torch

from pe_lightning.callbacks.base import Schedule, TrainingClock
from pe_lightning.errors import InputError

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


@pytest.mark.parametrize(
    ("every", "start", "steps", "acted"),
    [
        (10, 0, range(7, 60, 7), [14, 21, 35, 42, 56]),  # several steps per batch
        (2, 0, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [2, 4]),  # accumulated gradients: several batches per step
        (10, 17, range(18, 31), [20, 30]),  # a resumed fit
    ],
)
def test_a_schedule_acts_once_per_multiple(every, start, steps, acted):
    schedule = Schedule("Name", every)
    schedule.start(start)
    assert [step for step in steps if schedule.due(step)] == acted


def test_a_schedule_needs_a_positive_number():
    with pytest.raises(InputError, match=r"Name: every_n_steps must be an integer >= 1"):
        Schedule("Name", 0)
