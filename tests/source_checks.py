"""What the tests of all sources ask."""

import numpy as np
import png
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


def noise(dtype, *shape):
    """Random integers over the whole range of a dtype."""
    info = np.iinfo(dtype)
    return np.random.default_rng(0).integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def write_png16(path, array, **options):
    """Writes ``(H, W, C)`` as PNG of 16 bits."""
    height, width, channels = array.shape
    writer = png.Writer(width, height, bitdepth=16, greyscale=channels < 3, alpha=channels in (2, 4), **options)
    with path.open("wb") as file:
        writer.write(file, array.reshape(height, -1).tolist())
