"""DataModules: loading once, batches, protocols, fingerprints, devices, and the command line's view of them."""

import json
import logging
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser
from PIL import Image

from pe_lightning.data import (
    GridBatch,
    GridSampling,
    ImageDataModule,
    PointBatch,
    RandomSampling,
    SignalDataModule,
    TensorDataModule,
    grid_axes,
)
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.errors import InputError

CPU = torch.device("cpu")


def tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def save(path, *shape: int) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)).save(path)


# -- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(9,), (6, 7), (4, 5, 6), (3, 4, 2, 3)])
@pytest.mark.parametrize("channels", [1, 3])
def test_grid_batches_for_any_number_of_axes(grid, channels):
    values = tensor(2, *grid, channels)
    data = TensorDataModule(values, sampling=GridSampling(1) if 2 in grid else "grid")
    stride = data.sampling.stride
    batch, evaluation = data.train_batch(), data.evaluation_batch()
    assert isinstance(batch, GridBatch)
    assert batch.values.equal(values[(slice(None), *(slice(None, None, stride) for _ in grid))])
    assert batch.values.is_contiguous()
    assert all(axis.is_contiguous() for axis in batch.axes)
    assert batch.mask is None
    for axis, full in zip(batch.axes, grid_axes(grid), strict=True):
        assert axis.equal(full[::stride])
    assert isinstance(evaluation, GridBatch)
    assert evaluation.values.equal(values)
    assert all(a.equal(b) for a, b in zip(evaluation.axes, grid_axes(grid), strict=True))
    assert evaluation.train_mask.shape == (1, *grid)
    assert evaluation.mask.equal(~evaluation.train_mask)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("grid", [(9,), (6, 7), (4, 5, 6)])
def test_point_batches(grid, shared):
    values = tensor(2, *grid, 3)
    data = TensorDataModule(values, sampling=RandomSampling(0.5, shared=shared))
    batch, evaluation = data.train_batch(), data.evaluation_batch()
    assert isinstance(batch, PointBatch)
    count = round(0.5 * int(np.prod(grid)))
    assert batch.coords.shape == (1 if shared else 2, count, len(grid))
    assert batch.values.shape == (2, count, 3)
    assert batch.values.is_contiguous()
    assert batch.index.equal(data.split.index)
    for signal in range(2):
        own = 0 if shared else signal
        for point in range(count):
            position = np.unravel_index(int(batch.index[own, point]), grid)
            assert batch.values[signal, point].equal(values[(signal, *position)])
            expected = [axis[i] for axis, i in zip(batch.axes, position, strict=True)]
            assert batch.coords[own, point].tolist() == expected
            assert evaluation.train_mask[(own, *position)]
    assert evaluation.mask.equal(~evaluation.train_mask)


def test_info_and_defaults():
    data = TensorDataModule(tensor(3, 6, 7, 2))
    scaling = {"dtype": "float32", "low": [0.0], "high": [1.0]}
    assert data.info.to_dict() == {
        "names": ["signal0", "signal1", "signal2"], "grid": [6, 7], "channels": 2,
        "scaling": scaling, "rate": None, "media": "image",
    }  # fmt: skip
    assert SignalInfo.from_dict(data.info.to_dict()) == data.info
    assert data.sampling == GridSampling(2)
    assert (data.protocol, data.effective_protocol, len(data.train_dataloader())) == ("rest", "rest", 100)


# -- protocols --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "scored"), [("rest", 48), ("odd", 16), ("all", 64), ("none", 0)])
def test_protocols(protocol, scored):
    data = TensorDataModule(tensor(2, 8, 8, 1), protocol=protocol)
    assert data.evaluation_batch().mask.sum() == scored
    assert data.effective_protocol == protocol


@pytest.mark.parametrize("sampling", [GridSampling(1), RandomSampling(1.0)])
def test_nothing_held_out_is_protocol_none_with_a_notice(sampling, caplog):
    with caplog.at_level(logging.INFO):
        data = TensorDataModule(tensor(2, 8, 8, 1), sampling=sampling)
        data.setup("fit")
        data.setup("test")
    assert data.protocol == "rest"
    assert data.effective_protocol == data.describe()["protocol"] == "none"
    assert not data.evaluation_batch().mask.any()
    notices = [record.getMessage() for record in caplog.records if "nothing to score" in record.getMessage()]
    assert len(notices) == 1
    assert "protocol: all" in notices[0]


def test_no_notice_where_something_is_held_out_or_none_was_asked_for(caplog):
    with caplog.at_level(logging.INFO):
        TensorDataModule(tensor(2, 8, 8, 1)).setup()
        TensorDataModule(tensor(2, 8, 8, 1), protocol="none", sampling=GridSampling(1)).setup()
        TensorDataModule(tensor(2, 8, 8, 1), protocol="all", sampling=GridSampling(1)).setup()
    assert not caplog.records


def test_a_protocol_that_does_not_suit_fails_before_training():
    data = TensorDataModule(tensor(2, 8, 8, 1), sampling="random", protocol="odd")
    with pytest.raises(InputError, match="protocol 'odd' needs"):
        data.prepare_data()
    with pytest.raises(InputError, match="protocol 'odd' needs"):  # and again, not a half-loaded success
        data.setup("fit")
    with pytest.raises(InputError, match="leaves fewer than 2 trained samples"):
        TensorDataModule(tensor(2, 8, 8, 1), sampling=GridSampling(8)).prepare_data()


# -- loading ----------------------------------------------------------------------------------------------------------


class Counting(SignalDataModule):
    """Counts how often it is loaded."""

    loads = 0

    def read(self):
        self.loads += 1
        return RawSignals.in_memory(tensor(2, 8, 8, 1).numpy(), ("a", "b"), Scaling("float32"))


def test_data_is_loaded_once_whatever_is_called_how_often():
    data = Counting()
    assert data.loads == 0
    data.prepare_data()
    for stage in ("fit", "validate", "test", "predict", None):
        data.setup(stage)
    data.prepare_data()
    assert data.values.shape == (2, 8, 8, 1)
    assert data.loads == 1
    assert data.train_batch() is data.train_batch()
    assert data.evaluation_batch() is data.evaluation_batch()


def test_a_source_that_miscounts_or_is_flat_is_refused():
    class Wrong(SignalDataModule):
        def read(self):
            return self.given

    data, values, scaling = Wrong(), tensor(2, 8, 8, 1).numpy(), Scaling("float32")
    honest = RawSignals.in_memory(values, ("a", "b"), scaling)
    data.given = replace(honest, names=("a",), array=None)
    with pytest.raises(InputError, match="a: more than the 8 samples"):
        data.setup()
    data.given = replace(honest, names=("a", "b", "c"), array=None)
    with pytest.raises(InputError, match="c: only 0 of the 8 samples"):
        data.setup()
    data.given = RawSignals.in_memory(tensor(1, 8, 1, 1).numpy(), ("a",), scaling)
    with pytest.raises(InputError, match="8x1 samples; at least 2"):
        data.setup()


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_steps_per_epoch(steps):
    with pytest.raises(InputError, match="steps_per_epoch must be an integer >= 1"):
        TensorDataModule(tensor(1, 4, 4, 1), steps_per_epoch=steps)


def test_sampling_and_protocol_are_checked_before_anything_is_read():
    with pytest.raises(InputError, match="unknown sampling 'rnd'"):
        ImageDataModule("no/such/file.png", sampling="rnd")
    with pytest.raises(InputError, match="unknown protocol 'rst'"):
        ImageDataModule("no/such/file.png", protocol="rst")
    with pytest.raises(InputError, match="center_crop"):
        ImageDataModule("no/such/file.png", center_crop=-4)
    with pytest.raises(InputError, match="resize"):
        ImageDataModule("no/such/file.png", resize=[4])
    with pytest.raises(InputError, match="color"):
        ImageDataModule("no/such/file.png", color="blue")
    with pytest.raises(InputError, match="alpha"):
        ImageDataModule("no/such/file.png", alpha="no")


# -- fingerprint and description --------------------------------------------------------------------------------------


def test_fingerprint_follows_values_shape_and_trained_samples():
    values = tensor(2, 8, 8, 1)
    changed = values.clone()
    changed[1, 7, 7, 0] += 2**-20
    variants = [
        TensorDataModule(values),
        TensorDataModule(changed),
        TensorDataModule(values.reshape(2, 4, 16, 1)),
        TensorDataModule(values.reshape(1, 8, 8, 2)),
        TensorDataModule(values, sampling=GridSampling(3)),
        TensorDataModule(values, sampling=RandomSampling()),
        TensorDataModule(values, sampling=RandomSampling(seed=1)),
        TensorDataModule(values, sampling=RandomSampling(shared=True)),
    ]
    prints = [data.fingerprint for data in variants]
    assert len(set(prints)) == len(prints)
    assert TensorDataModule(values.clone(), names=["x", "y"], protocol="odd").fingerprint == prints[0]
    assert all(len(p) == 16 and int(p, 16) >= 0 for p in prints)


def test_describe_is_plain_and_complete(tmp_path):
    save(tmp_path / "a.png", 9, 8, 3)
    data = ImageDataModule(str(tmp_path), center_crop=[8, 6], sampling=RandomSampling(0.5))
    described = data.describe()
    assert (
        json.loads(json.dumps(described))
        == described
        == {
            "paths": [str(tmp_path)],
            "center_crop": [8, 6],
            "resize": None,
            "color": "auto",
            "alpha": "composite",
            "key": None,
            "value_range": None,
            "names": ["a"],
            "grid": [8, 6],
            "channels": 3,
            "scaling": {"dtype": "uint8", "low": [0.0], "high": [255.0]},
            "rate": None,
            "media": "image",
            "batch": "full",
            "streamed": False,
            "sampling": {"name": "random", "fraction": 0.5, "seed": 0, "shared": False, "count": None},
            "protocol": "rest",
            "fingerprint": data.fingerprint,
        }
    )
    assert TensorDataModule(tensor(1, 4, 4, 1)).describe()["paths"] == []


# -- images -----------------------------------------------------------------------------------------------------------


def test_images_from_a_folder(tmp_path):
    save(tmp_path / "b.png", 9, 8, 3)
    save(tmp_path / "a.png", 9, 8, 3)
    for paths in (str(tmp_path), [str(tmp_path / "a.png"), str(tmp_path / "b.png")], tmp_path):
        data = ImageDataModule(paths)
        assert (data.info.names, data.info.grid, data.info.channels) == (("a", "b"), (9, 8), 3)
        assert data.values.dtype == torch.float32
        assert data.describe()["paths"] == ([str(p) for p in paths] if isinstance(paths, list) else [str(paths)])


def test_the_arguments_reach_the_reader():
    data = ImageDataModule("samples://astronaut", center_crop=200, resize=[50, 40], color="grey", sampling="random")
    assert data.values.shape == (1, 50, 40, 1)
    assert isinstance(data.train_batch(), PointBatch)


@pytest.mark.parametrize("call", ["prepare_data", "setup"])
def test_bad_files_fail_first_thing(tmp_path, call):
    (tmp_path / "a.png").write_text("not a picture")
    with pytest.raises(InputError, match=r"a\.png' is not an image"):
        getattr(ImageDataModule(str(tmp_path)), call)()


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
        assert batch.values.device == CPU
    foreign = GridBatch(grid_axes((4,)), tensor(1, 4, 1))
    assert data.transfer_batch_to_device(foreign, CPU, 0) is foreign
    assert data.transfer_batch_to_device(foreign, meta, 0) is not data.transfer_batch_to_device(foreign, meta, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("sampling", ["grid", "random"])
def test_batches_stay_on_the_gpu(sampling):
    data = TensorDataModule(tensor(2, 8, 8, 1), sampling=sampling)
    batch, device = data.train_batch(), torch.device("cuda", 0)
    moved = data.transfer_batch_to_device(batch, device, 0)
    assert moved.values.device == device
    assert data.transfer_batch_to_device(batch, device, 0) is moved
    assert moved.values.cpu().equal(batch.values)


def test_loaders():
    data = TensorDataModule(tensor(1, 8, 8, 1), steps_per_epoch=7)
    loader = data.train_dataloader()
    assert len(loader) == 7
    for _ in range(2):  # an iterable, not an iterator: each epoch starts again
        batches = list(loader)
        assert len(batches) == 7
        assert all(batch is data.train_batch() for batch in batches)
    for evaluation in (data.val_dataloader(), data.test_dataloader()):
        assert len(evaluation) == 1
        assert next(iter(evaluation)) is data.evaluation_batch()


def test_a_step_costs_microseconds():
    data = TensorDataModule(tensor(1, 64, 64, 3), steps_per_epoch=10_000)
    start = time.perf_counter()
    for batch in data.train_dataloader():
        data.transfer_batch_to_device(batch, CPU, 0)
    assert time.perf_counter() - start < 0.5  # 0.02 s on an idle machine; 50 us a step would be too much


class Mean(LightningModule):
    """Learns the mean of the values: the smallest module that trains."""

    def __init__(self):
        super().__init__()
        self.mean = torch.nn.Parameter(torch.zeros(()))
        self.seen, self.stages = [], []

    def training_step(self, batch, batch_idx):
        self.seen.append(batch)
        return (batch.values - self.mean).square().mean()

    def validation_step(self, batch, batch_idx):
        self.stages.append(batch.mask.sum().item())

    def test_step(self, batch, batch_idx):
        self.stages.append(batch.mask.sum().item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.25)


# Lightning 2.6 itself uses what torch 2.9 and later call deprecated
@pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning")
@pytest.mark.parametrize("sampling", ["grid", "random"])
def test_a_trainer_takes_it_as_it_is(tmp_path, sampling):
    data = TensorDataModule(tensor(2, 8, 8, 3), sampling=sampling, steps_per_epoch=5)
    module = Mean()
    trainer = Trainer(
        accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    trainer.test(module, datamodule=data, verbose=False)
    assert len(module.seen) == 10
    assert all(batch is data.train_batch() for batch in module.seen)
    assert set(module.stages) == {int(data.evaluation_batch().mask.sum())}
    assert module.mean.item() == pytest.approx(data.train_batch().values.mean().item(), abs=0.01)


# -- the command line's view ------------------------------------------------------------------------------------------


def parse(*args: str):
    parser = LightningArgumentParser(exit_on_error=False)
    parser.add_class_arguments(ImageDataModule, "data")
    return parser.instantiate(parser.parse_args(list(args))).data


def test_options_are_built_from_the_signature():
    assert parse("--data.paths", "a.png").paths == "a.png"
    assert parse("--data.paths", "[a.png, b.png]").paths == ["a.png", "b.png"]
    data = parse(
        "--data.paths", "a.png", "--data.sampling", "RandomSampling", "--data.sampling.fraction", "0.5",
        "--data.center_crop", "[3, 4]", "--data.resize", "7",
    )  # fmt: skip
    assert data.sampling == RandomSampling(0.5)
    assert (data.center_crop, data.resize) == ([3, 4], 7)
    assert parse("--data.paths", "a.png", "--data.sampling", "random").sampling == RandomSampling()


def test_a_mapping_is_taken_at_run_time():
    assert TensorDataModule(tensor(1, 8, 8, 1), sampling={"name": "grid", "stride": 3}).sampling == GridSampling(3)


@pytest.mark.parametrize("cls", [ImageDataModule, TensorDataModule, SignalDataModule])
def test_every_argument_is_typed_and_documented(cls):
    import inspect

    for argument, parameter in inspect.signature(cls).parameters.items():
        assert parameter.annotation is not parameter.empty
        assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        assert f"        {argument}: " in cls.__doc__
