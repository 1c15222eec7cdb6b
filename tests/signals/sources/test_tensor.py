"""Values in memory as signals."""

import json
import logging

import numpy as np
import pytest
import torch
from source_checks import unit

from pe_lightning import SimpleMLP, TensorDataModule, fit
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


LOST = np.zeros((2, 6, 5), bool)
LOST[0, 2], LOST[1, 2, :3] = True, True


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float64"])
def test_a_range_and_missing_samples_are_as_of_files(dtype):
    array = np.random.default_rng(0).integers(0, 200, (2, 6, 5, 3)).astype(dtype)
    expected = np.where(LOST[..., None], np.nan, (array - 0.0) / 250).astype(np.float32)
    raw = TensorSource(array, missing=torch.from_numpy(LOST), value_range=(0, 250)).read()
    np.testing.assert_allclose(unit(raw), expected, rtol=1e-6)
    marked = np.where(LOST[..., None], 255, array).astype(dtype)  # outside of the range
    np.testing.assert_array_equal(unit(TensorSource(marked, missing=255, value_range=(0, 250)).read()), unit(raw))
    np.testing.assert_array_equal(
        unit(TensorSource(np.ma.array(array, mask=np.repeat(LOST[..., None], 3, -1)), value_range=(0, 250)).read()),
        unit(raw),
    )
    stored = {"float64": "float32"}.get(dtype, dtype)
    assert (raw.scaling.dtype, raw.scaling.limits(0)) == (stored, (0, 250))
    rows = TensorSource(array, missing=LOST[0], value_range=[-50, 250]).read()
    assert np.isnan(unit(rows)).sum() == 2 * 5 * 3
    assert np.nanmin(unit(rows)) >= 50 / 300


def test_an_array_chooses_the_trained_samples():
    values, trained = torch.rand(1, 32, 32, 1), torch.rand(32, 32, generator=torch.Generator().manual_seed(0)) < 0.5
    lost = torch.zeros(32, 32, dtype=torch.bool)
    lost[:, 4] = True
    fitted = fit(values, "gau", sampling=trained.numpy(), missing=lost)
    model = fit(values, model=SimpleMLP("rff", hidden_size=4), max_steps=1, sampling=trained, missing=lost)
    assert fitted.psnr > 0
    assert model.psnr > 0
    data = TensorDataModule(values, sampling=trained, missing=lost)
    assert torch.equal(data.signals.split.train_mask()[0], trained & ~lost)
    assert torch.equal(data.signals.split.test_mask("rest")[0], ~trained & ~lost)
    assert data.sampling != TensorDataModule(values, sampling=~trained).sampling
    json.dumps(data.describe())
