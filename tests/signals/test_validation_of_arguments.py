"""Declared ranges: what is returned, and what is refused with the value and what is allowed."""

from typing import Literal

import numpy as np
import pytest

from pe_lightning.errors import InputError
from pe_lightning.signals.validation import choice, integer, integers, number


@pytest.mark.parametrize(
    ("check", "arguments", "inside", "outside", "words"),
    [
        (integer, (3, 9), [3, np.int64(9), np.uint8(3)], [2, True, 3.0, "3", None], "an integer from 3 to 9; got"),
        (integers, (3,), [3, np.int64(4)], [[], [3, 2], [3.0], "3"], "one per axis; got"),
        (number, ("(0, 1]",), [1, 0.5, np.float32(1e-9)], [0, 1.01, float("nan"), True, "1", None], "a number in"),
        (number, ("[0, inf)",), [0, 1e300], [-1e-300, float("inf")], "a number >= 0; got"),
        (number, ("(2, inf)",), [3], [2], "a number above 2; got"),
        (number, ("[-1, 1]",), [-1, 1], [10**400, -2], "a number from -1 to 1; got"),
        (choice, (Literal["auto", "grey"],), ["auto"], ["gray", []], "auto or grey; got"),
        (choice, ((True, False),), [True], [1], "true or false; got 1"),
    ],
)
def test_ranges(check, arguments, inside, outside, words):
    for value in inside:
        assert check("x", value, *arguments) == value
        assert type(check("x", value, *arguments)) in (int, float, str, bool)
    for value in outside:
        with pytest.raises(InputError) as error:
            check("x", value, *arguments)
        assert words in str(error.value)
