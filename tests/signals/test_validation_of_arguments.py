"""Declared ranges: what is returned, and what the errors say."""

from typing import Literal

import numpy as np
import pytest

from pe_lightning.errors import InputError
from pe_lightning.signals import validation


def refused(call, message):
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value) == message


def test_integers_of_any_library_become_plain():
    for value in (3, np.int64(3), np.uint8(3)):
        assert type(validation.integer("n", value, 3, 3)) is int
    assert validation.integers("n", (np.int32(1), 2)) == [1, 2]


@pytest.mark.parametrize("value", [2, True, 3.0, "3", None, float("nan"), 10**30])
def test_integers_out_of_range_are_refused(value):
    refused(
        lambda: validation.integer("n", value, 3, hint=", or null"), f"n must be an integer >= 3, or null; got {value!r}"
    )
    if value != 10**30:
        refused(lambda: validation.integer("n", value, 3, 9), f"n must be an integer from 3 to 9; got {value!r}")


@pytest.mark.parametrize("value", [[], [3, 2], [3.0], "3"])
def test_lists_of_integers_are_checked(value):
    refused(
        lambda: validation.integers("n", value, 3), f"n must be an integer >= 3, or a list of one per axis; got {value!r}"
    )


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "words"),
    [
        ("(0, 1]", [1, 0.5, np.float32(1e-9)], [0, 1.01], "number in (0, 1]"),
        ("[0, 1)", [0, 0.99], [1, -1e-9], "number in [0, 1)"),
        ("[0, inf)", [0, 1e300], [-1e-300, float("inf")], "number >= 0"),
        ("(0, inf)", [1e-300], [0, float("inf")], "positive number"),
        ("(2, inf)", [3], [2], "number above 2"),
        ("[1e-6, 1e6]", [1e-6, 1e6], [0, 2e6], "positive number from 1e-6 to 1e6"),
        ("[-1, 1]", [-1, 1], [10**400, -2], "number from -1 to 1"),
    ],
)
def test_numbers_in_an_interval(interval, inside, outside, words):
    for value in inside:
        assert (type(found := validation.number("x", value, interval)), found) == (float, value)
    for value in (*outside, float("nan"), True, "1", None):
        refused(
            lambda value=value: validation.number("x", value, interval, ", say"), f"x must be a {words}, say; got {value!r}"
        )


def test_choices():
    assert validation.choice("c", "b", Literal["a", "b"]) == "b"
    assert validation.flag("f", False) is False
    refused(lambda: validation.choice("c", "c", ["a", "b"]), "c must be a or b; got 'c'")
    refused(lambda: validation.choice("c", "gray", Literal["auto", "rgb", "grey"]),
            "c must be one of auto, rgb, grey; got 'gray'; did you mean 'grey'?")  # fmt: skip
    refused(lambda: validation.flag("f", 1), "f must be true or false; got 1")
    refused(lambda: validation.choice("c", [], ["a"]), "c must be a; got []")
