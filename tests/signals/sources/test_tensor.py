"""Values in memory as signals."""

import logging

import numpy as np
import pytest
import torch
from source_checks import unit

from pe_lightning.signals.sources import TensorSource


@pytest.mark.parametrize("dtype", ["float16", ">f4", "longdouble"])
def test_floating_point_becomes_float32(dtype):
    array = np.random.default_rng(0).random((2, 6, 7, 3)).astype(dtype)
    raw = TensorSource(array).read()
    assert (raw.names, raw.media, raw.stored) == (("signal0", "signal1"), "image", "float32")
    np.testing.assert_array_equal(unit(raw), array.astype(np.float32))
    if dtype.startswith("float"):
        np.testing.assert_array_equal(unit(TensorSource(torch.from_numpy(array)).read()), array.astype(np.float32))


@pytest.mark.parametrize(("dtype", "peak"), [("uint8", 255), (">u2", 65535)])
def test_unsigned_integers_are_divided_by_their_peak(dtype, peak):
    array = np.random.default_rng(0).integers(0, peak, (1, 9, 2)).astype(dtype)
    raw = TensorSource(array).read()
    np.testing.assert_array_equal(unit(raw), array.astype(np.float32) / peak)
    assert (raw.media, raw.scaling.high) == ("array", (peak,))


def test_it_is_copied():
    values = torch.rand(1, 4, 6, 1).transpose(1, 2)
    source = TensorSource(values)
    before = values.clone()
    values.zero_()
    assert torch.from_numpy(unit(source.read())).equal(before)
    frozen = before.numpy()
    frozen.setflags(write=False)
    np.testing.assert_array_equal(unit(TensorSource(frozen).read()), frozen)


@pytest.mark.parametrize(
    ("shape", "full", "read_as"),
    [
        ((9,), (1, 9, 1), "one row of 9 samples"),
        ((6, 5), (1, 6, 5, 1), "one picture of 6x5 samples"),
        ((6, 5, 3), (1, 6, 5, 3), "one picture of 6x5 samples with 3 channels"),
        ((6, 5, 1), (6, 5, 1), "6 signal(s) of 5 samples with 1 channel(s)"),
        ((6, 5, 7), (6, 5, 7), "6 signal(s) of 5 samples with 7 channel(s)"),
        ((2, 6, 5, 7), (2, 6, 5, 7), "2 signal(s) of 6x5 samples with 7 channel(s)"),
        ((2, 9, 1), (2, 9, 1), ""),
        ((4, 6, 5, 3), (4, 6, 5, 3), ""),
    ],
)
def test_how_a_shape_is_read_is_said_where_it_is_not_certain(caplog, shape, full, read_as):
    values = np.random.default_rng(0).random(shape, np.float32)
    with caplog.at_level(logging.INFO):
        raw = TensorSource(values).read()
        assert raw.shape == full
        assert raw.media == ("image" if len(full) == 4 and full[-1] <= 4 else "array")
        np.testing.assert_array_equal(unit(raw), values.reshape(full))
    assert [f"is read as {read_as}" in message for message in caplog.messages] == [True] * bool(read_as)


def test_a_name_for_each_entry_makes_three_channels_rows(caplog):
    with caplog.at_level(logging.INFO):
        rows = TensorSource(np.zeros((6, 5, 3)), [f"row{number}" for number in range(6)]).read()
    assert rows.shape == (6, 5, 3)
    assert not caplog.messages
