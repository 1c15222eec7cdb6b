"""DataModules: loading once, batches, protocols, fingerprints, devices, and the command line's view of them."""

import doctest
import importlib
import json
import logging
import pkgutil
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

import pe_lightning.signals
from pe_lightning.errors import InputError
from pe_lightning.signals import Batching, GridSampling, RandomSampling, SignalInfo, Source, Storage, grid_axes
from pe_lightning.signals.distributed import Process
from pe_lightning.signals.raw import RawSignals, ValueRange
from pe_lightning.training import ComplexLinear, ImageDataModule, SignalDataModule, TensorDataModule, VideoDataModule
from pe_lightning.training.datamodule import OutputGrid
from pe_lightning.training.sharding import SignalsStrategy

CPU = torch.device("cpu")


def tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_examples_in_docstrings():
    names = [module.name for module in pkgutil.walk_packages(pe_lightning.signals.__path__, "pe_lightning.signals.")]
    assert len(names) > 25
    for name in ("pe_lightning.signals", *names):
        assert doctest.testmod(importlib.import_module(name)).failed == 0, name


# -- protocols --------------------------------------------------------------------------------------------------------


def test_nothing_held_out_is_protocol_none_with_one_notice(caplog):
    with caplog.at_level(logging.INFO):
        data = TensorDataModule(tensor(2, 8, 8, 1), sampling=RandomSampling(1.0))
        data.setup("fit")
        data.setup("test")
        TensorDataModule(tensor(2, 8, 8, 1)).setup()
        TensorDataModule(tensor(2, 8, 8, 1), eval_mask="all", sampling=GridSampling(1)).setup()
    assert data.eval_mask == "rest"
    assert data.signals.eval_mask == data.describe()["protocol"] == "none"
    assert not data.evaluation_batch().mask.any()
    (notice,) = [record.getMessage() for record in caplog.records]
    assert "scores nothing" in notice


def test_a_protocol_that_does_not_suit_fails_before_training():
    data = TensorDataModule(tensor(2, 8, 8, 1), sampling="random", eval_mask="odd")
    for call in (data.prepare_data, data.setup):  # and again, not a half-loaded success
        with pytest.raises(InputError, match="eval_mask 'odd' needs"):
            call()


# -- loading ----------------------------------------------------------------------------------------------------------


class Counting(Source):
    """Counts how often it is read."""

    metric = "snr"

    def __init__(self, size: int = 8) -> None:
        self.size = size
        self.reads = 0

    def read(self) -> RawSignals:
        self.reads += 1
        return RawSignals.in_memory(tensor(2, self.size, 8, 1).numpy(), ("a", "b"), ValueRange("float32"))


def test_data_is_loaded_once_whatever_is_called_how_often():
    source = Counting()
    data = SignalDataModule(source)
    assert source.reads == 0
    data.prepare_data()
    for stage in ("fit", "validate", "test", "predict", None):
        data.setup(stage)
    assert data.values.shape == (2, 8, 8, 1)
    assert source.reads == 1
    assert data.train_batch() is data.train_batch()
    assert data.evaluation_batch() is data.evaluation_batch()
    assert data.info.metric == "snr"
    assert data.describe()["size"] == 8
    with pytest.raises(InputError, match="at least 2 are needed"):
        SignalDataModule(Counting(1)).setup()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"sampling": "rnd"}, "unknown sampling 'rnd'"),
        ({"eval_mask": "rst"}, "eval_mask must be one of rest, odd, midpoints, all, none; got 'rst'; did you mean 'rest'"),
        ({"center_crop": -4}, "center_crop must be an integer >= 2"),
        ({"storage": {"cache": "on"}}, "cache must be auto or off; got 'on'"),
        ({"storage": {"in_memory": "no"}}, "in_memory must be one of auto, true, false; got 'no'"),
    ],
)
def test_arguments_are_checked_before_anything_is_read(arguments, match):
    with pytest.raises(InputError, match=match):
        ImageDataModule("no/such/file.png", **arguments)


def test_signals_that_stay_in_their_file(tmp_path, make_trainer):
    np.save(tmp_path / "v.npy", tensor(6, 8, 8).numpy())
    in_file = Storage(in_memory=False)
    data = VideoDataModule(str(tmp_path / "v.npy"), batching=Batching("points"), storage=in_file)
    assert data.signals.streamed
    assert data.fingerprint == VideoDataModule(str(tmp_path / "v.npy")).fingerprint
    for get in (data.train_batch, data.evaluation_batch, lambda: data.values):
        with pytest.raises(InputError, match="are read from their file and not loaded"):
            get()
    with pytest.raises(InputError, match="cannot be one full batch"):
        make_trainer(max_steps=1).fit(ComplexLinear("gau"), VideoDataModule(str(tmp_path / "v.npy"), storage=in_file))


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_a_file_that_is_replaced_while_it_is_streamed_is_refused(tmp_path, suffix):
    def write(path, seed):
        values = tensor(6, 8, 8, seed=seed).numpy()
        if suffix == "npy":
            np.save(path, values)
        else:
            with h5py.File(path, "w") as file:
                file["values"] = values

    path = tmp_path / f"v.{suffix}"
    write(path, 0)
    data = VideoDataModule(str(path), batching=Batching("points"), storage=Storage(in_memory=False))
    next(iter(data.train_dataloader()))
    write(tmp_path / f"other.{suffix}", 1)
    (tmp_path / f"other.{suffix}").replace(path)
    with pytest.raises(InputError, match="was changed while it was in use: run again"):
        next(iter(data.train_dataloader()))


# -- fingerprint and description --------------------------------------------------------------------------------------


def test_the_fingerprint_follows_values_shape_and_trained_samples():
    values = tensor(2, 8, 8, 1)
    changed = values.clone()
    changed[1, 7, 7, 0] += 2**-20
    others = (GridSampling(3), "random", RandomSampling(seed=1), RandomSampling(shared=True))
    variants = [
        *(TensorDataModule(v) for v in (values, changed, values.reshape(2, 4, 16, 1), values.reshape(1, 8, 8, 2))),
        *(TensorDataModule(values, sampling=sampling) for sampling in others),
    ]
    assert len({data.fingerprint for data in variants}) == len(variants)
    assert TensorDataModule(values.clone(), names=["x", "y"], eval_mask="odd").fingerprint == variants[0].fingerprint
    # the same in every version, so that runs can be compared
    ramp = torch.arange(128.0).reshape(2, 8, 8, 1) / 127
    prints = [TensorDataModule(ramp, sampling=s).fingerprint for s in ("grid", "random")]
    assert prints == ["6ec23d09f0b4a8db", "f2eb98ae5b147db0"]


def test_the_description_is_plain_and_complete(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    data = ImageDataModule(str(tmp_path), center_crop=[8, 6], sampling=RandomSampling(0.5))
    described = data.describe()
    assert json.loads(json.dumps(described)) == described
    assert described == {
        "paths": [str(tmp_path)], "center_crop": [8, 6], "resize": None, "color": "auto", "alpha": "composite",
        "key": None, "value_range": None, "missing": "nan", "names": ["a"], "grid": [8, 6], "channels": 3,
        "scaling": {"dtype": "uint8", "low": [0.0], "high": [255.0]}, "rate": None, "media": "image", "metric": "psnr",
        "batch": "full", "streamed": False, "protocol": "rest", "fingerprint": data.fingerprint,
        "sampling": {"name": "random", "fraction": 0.5, "seed": 0, "shared": False, "count": None},
    }  # fmt: skip


# -- devices and loaders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", ["grid", "random"])
def test_batches_move_to_a_device_once(sampling):
    data = TensorDataModule(tensor(2, 8, 8, 1), sampling=sampling)
    meta = torch.device("meta")
    for batch in (data.train_batch(), data.evaluation_batch()):
        assert data.transfer_batch_to_device(batch, CPU, 0) is batch
        moved = data.transfer_batch_to_device(batch, meta, 0)
        assert type(moved) is type(batch)
        assert moved.values.device == moved.axes[0].device == meta
        assert data.transfer_batch_to_device(batch, meta, 0) is moved


def test_under_the_strategy_signals_a_process_fits_signals_of_its_own():
    values = tensor(3, 8, 8, 1)
    data = TensorDataModule(values, sampling="random")
    assert data.shard() == (data.signals, Process())
    state = SimpleNamespace(fn="fit")
    strategy = SignalsStrategy()
    data.trainer = SimpleNamespace(strategy=strategy, state=state, global_rank=1, world_size=2)
    signals, process = data.shard()
    assert process == Process()
    assert signals.values.equal(values[1:])
    assert signals.train_batch().values.equal(data.train_batch().values[1:])
    state.fn = "test"
    assert data.shard() == (data.signals, Process(1, 2))


def test_the_grid_of_a_prediction(monkeypatch):
    assert [tuple(map(len, axes)) for axes in OutputGrid([6, 5]).predict_dataloader()] == [(6, 5)]
    monkeypatch.setattr("pe_lightning.training.datamodule.BLOCK_BYTES", 4 * 5 * 2)
    blocks = list(OutputGrid([6, 5]).predict_dataloader())
    assert [len(rows) for rows, _ in blocks] == [2, 2, 2]
    assert torch.cat([rows for rows, _ in blocks]).equal(grid_axes((6,))[0])
    info = SignalInfo(("a",), (4, 4), 1)
    assert OutputGrid().grid(info) == (4, 4)
    with pytest.raises(InputError, match="one size per axis of the signals, 2"):
        OutputGrid([1, 2, 3]).grid(info)
    with pytest.raises(InputError, match="a size >= 1 per axis"):
        OutputGrid([0])
