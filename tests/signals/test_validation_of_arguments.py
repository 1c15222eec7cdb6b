"""Declared ranges: what is returned, and what is refused with the value and what is allowed."""

from typing import Literal

import numpy as np
import pytest

from pe_lightning.errors import InputError
from pe_lightning.signals import validation


def test_integers_of_any_library_become_plain():
    for value in (3, np.int64(3), np.uint8(3)):
        assert type(validation.integer("n", value, 3, 3)) is int
    assert validation.integers("n", (np.int32(1), 2)) == [1, 2]


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("(0, 1]", [1, 0.5, np.float32(1e-9)], [0, 1.01]),
        ("[0, 1)", [0, 0.99], [1, -1e-9]),
        ("[0, inf)", [0, 1e300], [-1e-300, float("inf")]),
        ("(2, inf)", [3], [2]),
        ("[1e-6, 1e6]", [1e-6, 1e6], [0, 2e6]),
        ("[-1, 1]", [-1, 1], [10**400, -2]),
    ],
)
def test_numbers_in_an_interval(interval, inside, outside):
    for value in inside:
        assert (type(found := validation.number("x", value, interval)), found) == (float, value)
    for value in (*outside, float("nan"), True, "1", None):
        with pytest.raises(InputError, match="x must be a"):
            validation.number("x", value, interval)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *(
            (lambda value=value: validation.integer("n", value, 3, 9), "from 3 to 9; got")
            for value in (2, True, 3.0, "3", None)
        ),
        *(
            (lambda value=value: validation.integers("n", value, 3), "one per axis; got")
            for value in ([], [3, 2], [3.0], "3")
        ),
        (lambda: validation.choice("c", "gray", Literal["auto", "rgb", "grey"]), "got 'gray'; did you mean 'grey'"),
        (lambda: validation.choice("c", [], ["a"]), "c must be a; got"),
        (lambda: validation.choice("f", 1, (True, False)), "true or false; got 1"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()
