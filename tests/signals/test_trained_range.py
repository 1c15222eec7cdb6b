"""The range of floating-point values is that of the trained samples: held-out samples change no fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import torch
from fits import fit

from pe_lightning.errors import InputError
from pe_lightning.training import ComplexLinear, ImageDataModule, RowDataModule, SignalDataModule, SimpleMLP, VideoDataModule

VALUES = (40 + 25 * np.random.default_rng(0).random((12, 16, 18))).astype(np.float32)


def table(path: Path, values: np.ndarray) -> RowDataModule:
    np.savetxt(path.with_suffix(".csv"), values[0, 0] / 100, "%.9g", header="a", comments="")  # within [0, 1]
    return RowDataModule(str(path.with_suffix(".csv")))


def row(path: Path, values: np.ndarray) -> RowDataModule:
    np.save(path.with_suffix(".npy"), values[0, 0])
    return RowDataModule(str(path.with_suffix(".npy")))


def picture(path: Path, values: np.ndarray) -> ImageDataModule:
    tifffile.imwrite(path.with_suffix(".tif"), values[0])
    return ImageDataModule(str(path.with_suffix(".tif")), storage={"cache_dir": str(path.parent / "cache")})


def random_pixels(path: Path, values: np.ndarray) -> ImageDataModule:
    return ImageDataModule(picture(path, values).source.paths, sampling={"name": "random", "fraction": 0.5})


def volume(path: Path, values: np.ndarray) -> VideoDataModule:
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        file.create_dataset("a", data=values, chunks=(2, 16, 18))
    return VideoDataModule(str(path.with_suffix(".h5")))


def streamed(path: Path, values: np.ndarray) -> VideoDataModule:
    return VideoDataModule(volume(path, values).source.paths, storage={"in_memory": False}, batching={"kind": "points"})


def two_files(path: Path, values: np.ndarray) -> ImageDataModule:
    np.save(path.with_name("first.npy"), values[0])
    np.save(path.with_name("second.npy"), 3 * values[1])
    return ImageDataModule([str(path.with_name("first.npy")), str(path.with_name("second.npy"))])


MAKERS = [table, row, picture, random_pixels, volume, streamed, two_files]


def trained(data: SignalDataModule) -> list[torch.Tensor]:
    """Values that are trained on, their range, and the scaling of the targets of a SIREN."""
    module = SimpleMLP("identity", depth=1, hidden_size=4, activation="sine")
    module.build_from(data)
    return [
        data.signals.calibration_batch().values,
        *(torch.tensor(side) for side in (data.info.scaling.low, data.info.scaling.high)),
        *(module.networks.network.get_buffer(f"scaling.{name}") for name in ("center", "scale")),
    ]


@pytest.mark.parametrize("make", MAKERS)
def test_a_held_out_outlier_changes_no_trained_value(make: Callable[..., SignalDataModule], tmp_path: Path) -> None:
    data, changed = make(tmp_path / "a", VALUES), VALUES.copy()
    held = ~data.signals.split.train_mask()[0].numpy()
    place = np.unravel_index(np.flatnonzero(held)[3], (1,) * (3 - held.ndim) + held.shape if held.ndim < 3 else held.shape)
    changed[place] = 1e9
    (values, *_, center, scale), others = trained(data), trained(make(tmp_path / "b", changed))
    assert all(torch.equal(a, b) for a, b in zip(trained(data), others, strict=True))
    assert (float(values.min()), float(values.max())) == (0, 1)
    torch.testing.assert_close(center, values.flatten(1, -2).mean(1))
    torch.testing.assert_close(scale, (values.flatten(1, -2) - center[:, None]).abs().amax((1, 2)))


def test_constant_trained_values_are_refused(tmp_path: Path) -> None:
    values = np.full((16, 18), 7, np.float32)
    values[1::2] += VALUES[0, 1::2]
    with pytest.raises(InputError, match="all trained samples have the value 7"):
        picture(tmp_path / "a", values[None]).prepare()


def test_values_within_the_unit_range_and_given_ranges_stay(tmp_path: Path) -> None:
    assert not picture(tmp_path / "a", VALUES / 100).info.scaling.found_in_data
    np.save(tmp_path / "b.npy", VALUES[0])
    given = ImageDataModule(str(tmp_path / "b.npy"), value_range=[0, 100])
    assert (given.info.scaling.low, given.info.scaling.high) == ((0,), (100,))
    unit = VALUES / 100
    unit[0, 1, 1] = 7
    assert picture(tmp_path / "c", unit).info.scaling.limits(0) == (0, 1)  # trained values are within it


def test_a_checkpoint_is_scored_in_its_own_scaling(tmp_path: Path, make_trainer: Any) -> None:
    data, module = picture(tmp_path / "a", VALUES), ComplexLinear.exact("gau")
    trainer = fit(module, data, make_trainer, 0)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    other = ImageDataModule(data.source.paths, sampling={"name": "random", "fraction": 0.5}, eval_mask="all")
    assert other.info.scaling != data.info.scaling
    again = ComplexLinear.exact("gau")
    trainer.test(again, other, ckpt_path=tmp_path / "a.ckpt", weights_only=True)
    assert other.info.scaling == again.require_info().scaling == data.info.scaling
    torch.testing.assert_close(other.values, data.values)
