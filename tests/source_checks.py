"""What the tests of all sources ask."""

import numpy as np
import pytest

from pe_lightning.errors import InputError
from pe_lightning.signals.blocks import load


def unit(raw):
    """All values in [0, 1], as training sees them."""
    return load(raw).numpy()


def stored(raw):
    """``(S, *grid, C)`` as the source stores them, after the checks that every caller relies on."""
    blocks = list(raw.blocks())
    assert all(block.dtype == np.dtype(raw.stored) and block.shape[1:] == raw.shape[2:] for block in blocks)
    return np.concatenate(blocks).reshape(raw.shape)


def refused(call, *parts):
    """The call ends with an error of one paragraph that has these parts."""
    with pytest.raises(InputError) as error:
        call()
    message = str(error.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message
