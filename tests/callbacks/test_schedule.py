"""When a callback acts."""

import pytest

from pe_lightning.callbacks.schedule import Schedule
from pe_lightning.errors import InputError


def acted(every: int, steps, start: int = 0) -> list[int]:
    schedule = Schedule("Name", every)
    schedule.start(start)
    return [step for step in steps if schedule.due(step)]


def test_every_multiple_once():
    assert acted(5, range(1, 17)) == [5, 10, 15]


def test_batches_of_several_steps_pass_multiples_without_hitting_them():
    assert acted(10, range(7, 60, 7)) == [14, 21, 35, 42, 56]


def test_batches_without_a_step_do_not_act_again():
    """Accumulated gradients: several batches at one number of steps."""
    assert acted(2, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]) == [2, 4]


def test_a_resumed_fit_goes_on_with_the_same_multiples():
    assert acted(10, range(18, 31), start=17) == [20, 30]


@pytest.mark.parametrize("every", [0, -1, 2.5, True, None])
def test_only_positive_integers(every):
    with pytest.raises(InputError, match=r"Name: every_n_steps must be an integer >= 1"):
        Schedule("Name", every)
