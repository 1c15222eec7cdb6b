"""Missing samples: what marks them in every source, and that they are neither trained nor scored."""

from __future__ import annotations

import logging
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from source_checks import unit
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals import FoldSampling, GridBatch, GridSampling, GridSplit, PointSplit
from pe_lightning.signals.sources import ImageSource, RowSource, VideoSource
from pe_lightning.signals.sources.missing import Missing, spread_mask
from pe_lightning.training import ImageDataModule, RowDataModule, TensorDataModule, VideoDataModule

RNG = np.random.default_rng(0)


def holed(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random values with NaN and infinity in some samples, different for each signal, and where they are known."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(*shape, generator=generator)
    known = torch.rand(*shape[:-1], generator=generator) > 0.2
    values[..., 0] = torch.where(known, values[..., 0], torch.nan)
    values[..., -1][~known & (torch.rand(*shape[:-1], generator=generator) > 0.5)] = -torch.inf
    return values, known


@pytest.mark.parametrize("protocol", ["rest", "all"])
@pytest.mark.parametrize(
    "sampling",
    [
        GridSampling(2),
        GridSampling(1),
        "random",
        {"name": "random", "shared": True},
        FoldSampling("random", fold=3),
        FoldSampling("blocks", fold=1, size=[3, 2]),
    ],
    ids=repr,
)
def test_they_are_neither_trained_nor_scored(sampling: object, protocol: str) -> None:
    values, known = holed(3, 11, 10, 2)
    data = TensorDataModule(values.clone(), sampling=sampling, eval_mask=protocol)  # type: ignore[arg-type]
    train, batch = data.train_batch(), data.evaluation_batch()
    assert isinstance(data.signals.split, PointSplit)
    assert batch.mask is not None
    assert batch.train_mask is not None
    assert train.values.isfinite().all()
    assert data.signals.num_missing == (~known).flatten(1).sum(1).tolist()
    assert not (batch.train_mask & ~known).any()
    assert not (batch.mask & ~known).any()
    if protocol == "rest" and data.signals.eval_mask == "rest":
        assert (batch.mask ^ batch.train_mask).equal(known)
    if protocol == "all":
        assert batch.mask.equal(known)
    for signal, index in enumerate(data.signals.split.index.expand(3, -1)):
        assert train.values[signal].equal(values[signal].flatten(0, 1)[index])
    assert batch.values.isnan().all(-1).equal(~known)


def test_a_grid_whose_trained_samples_are_known_stays_one() -> None:
    values = torch.rand(1, 8, 8, 1)
    values[0, 1, 3] = torch.nan
    data = TensorDataModule(values)
    assert isinstance(data.signals.split, GridSplit)
    assert isinstance(data.train_batch(), GridBatch)
    assert int(data.evaluation_batch().mask.sum()) == 64 - 16 - 1  # type: ignore[union-attr]
    assert data.fingerprint != TensorDataModule(values.nan_to_num(0.5)).fingerprint


def test_what_is_printed_and_what_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    values = torch.rand(2, 20, 1)
    values[0, 3:5], values[1, 7] = torch.nan, torch.nan
    with caplog.at_level(logging.INFO):
        TensorDataModule(values, ["a", "b"]).prepare()
    assert "3 of 40 (7.5 %): 2 of a, 1 of b" in caplog.text
    assert "not trained on" not in caplog.text, "every second sample is trained on: the others are scored"
    with caplog.at_level(logging.INFO):
        TensorDataModule(values, ["a", "b"], GridSampling(1)).prepare()
    assert "1 of 37 known samples, of signals with fewer missing ones, are not trained on" in caplog.text
    values[1] = torch.nan
    with pytest.raises(InputError, match=r"all 20 samples are missing .* of: b"):
        TensorDataModule(values, ["a", "b"]).prepare()
    values[1, 4] = 0.5
    with pytest.raises(InputError, match="1 of 20 samples are known, 1 would be trained on"):
        TensorDataModule(values, ["a", "b"], GridSampling(1)).prepare()


def test_folds_are_disjoint_and_together_everything() -> None:
    for folds in (FoldSampling(), FoldSampling("blocks", size=3, seed=4), FoldSampling("blocks", number=3)):
        held_out = [~folds.hold_out(fold).split((10, 13), 1).train_mask()[0] for fold in range(folds.number)]
        assert torch.stack(held_out).sum(0).equal(torch.ones(10, 13, dtype=torch.int64))
        assert max(map(torch.sum, held_out)) <= 3 * min(map(torch.sum, held_out))
    blocks = ~FoldSampling("blocks", size=[5, 13], number=2).split((10, 13), 1).train_mask()[0]
    assert blocks.all(1).sum() == 5
    assert not blocks.all(0).any()


def test_folds_are_of_everything_that_is_known() -> None:
    assert TensorDataModule(torch.rand(1, 9, 9, 1), folds="random").describe()["protocol"] == "5 random folds"
    with pytest.raises(InputError, match="whose known samples are all trained on"):
        TensorDataModule(torch.rand(1, 9, 9, 1), sampling="random", folds="blocks").prepare()
    with pytest.raises(InputError, match="has no argument 'sise'"):
        TensorDataModule(torch.rand(1, 9, 9, 1), folds={"kind": "blocks", "sise": 2})


def picture(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A picture whose pixels of a colour, a level of opacity and a mask are the same ones."""
    pixels, marked = RNG.integers(1, 250, (12, 14, 3), dtype=np.uint8), RNG.random((12, 14)) > 0.7
    pixels[marked] = (255, 0, 255)
    Image.fromarray(pixels).save(path / "a.png")
    Image.fromarray(np.dstack([pixels, np.where(marked, 0, 255).astype(np.uint8)])).save(path / "alpha.png")
    Image.fromarray(marked.astype(np.uint8) * 9).save(path / "mask.png")
    np.save(path / "mask.npy", marked)
    return pixels, marked


@pytest.mark.parametrize(
    ("file", "missing"), [("a", "#ff00FF"), ("alpha", "alpha"), ("a", "mask.png"), ("a", "mask.npy"), ("a", ["mask.npy"])]
)
def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, missing: str) -> None:
    monkeypatch.chdir(tmp_path)
    pixels, marked = picture(tmp_path)
    values = unit(ImageSource(f"{file}.png", missing=missing).read())[0]
    np.testing.assert_array_equal(np.isnan(values).any(-1), marked)
    np.testing.assert_array_equal(values[~marked], (pixels[~marked] / np.float32(255)).astype(np.float32))


def test_a_colour_that_a_jpeg_has_changed_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="lightning.pytorch.utilities.rank_zero")
    pixels = np.full((32, 32, 3), 90, np.uint8)
    pixels[5:17, 3:22] = (255, 0, 255)
    for name in ("a.png", "a.jpg"):
        Image.fromarray(pixels).save(tmp_path / name)
        ImageSource(tmp_path / name, missing="#ff00ff").read()
        assert ("pixels have almost the colour #ff00ff, and count as known" in caplog.text) == (name == "a.jpg")


def test_resized_pictures_leave_missing_pixels_out(tmp_path: Path) -> None:
    pixels = np.full((32, 32, 3), 90, np.uint8)
    pixels[8:24, 8:24] = (255, 0, 255)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    values = unit(ImageSource(tmp_path / "a.png", missing="#ff00ff", resize=16).read())[0]
    missing = np.isnan(values).any(-1)
    assert missing[5:11, 5:11].all()
    assert not missing[:3].any()
    np.testing.assert_allclose(values[~missing], 90 / 255, atol=1e-3)


def test_cached_signals_have_the_same_missing_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, marked = picture(tmp_path)
    arguments = {"missing": "mask.png", "storage": {"cache_dir": str(tmp_path / "cache")}}
    first = ImageDataModule("a.png", **arguments)  # type: ignore[arg-type]
    second = ImageDataModule("a.png", **arguments)  # type: ignore[arg-type]
    for data in (first, second):
        np.testing.assert_array_equal(data.values.isnan().any(-1)[0].numpy(), marked)
    assert first.fingerprint == second.fingerprint
    Image.fromarray(~marked).save(tmp_path / "mask.png")
    third = ImageDataModule("a.png", **arguments)  # type: ignore[arg-type]
    np.testing.assert_array_equal(third.values.isnan().any(-1)[0].numpy(), ~marked)


def test_volumes_and_frames(tmp_path: Path) -> None:
    volume = RNG.integers(-200, 900, (5, 5, 6)).astype(np.int16)
    volume[1, 2, 3] = volume[3] = -1000
    tifffile.imwrite(tmp_path / "a.tif", volume)
    raw = VideoSource(tmp_path / "a.tif", missing="-1000", value_range=[-1000, 1000]).read()
    np.testing.assert_array_equal(np.isnan(unit(raw)[0, ..., 0]), volume == -1000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = volume
        file["v"].attrs["missing_value"] = np.int16(-1000)
    data = VideoDataModule(str(tmp_path / "a.h5"))
    assert data.signals.num_missing == [int((volume == -1000).sum())]
    np.save(tmp_path / "lost.npy", np.arange(5) == 2)  # a frame
    lost = unit(VideoSource(tmp_path / "a.h5", missing=str(tmp_path / "lost.npy")).read())[0, ..., 0]
    np.testing.assert_array_equal(np.isnan(lost), (volume == -1000) | (np.arange(5) == 2)[:, None, None])
    listed = unit(VideoSource(tmp_path / "a.h5", missing="frames:2").read())[0, ..., 0]
    np.testing.assert_array_equal(listed, lost)
    with pytest.raises(InputError, match="counts frames from 0, and the signals have 5 frames"):
        VideoSource(tmp_path / "a.h5", missing="frames:0,3-5").read()


def test_signals_in_their_file_cannot_have_any(tmp_path: Path) -> None:
    values = RNG.random((1, 400))
    values[0, 350] = np.nan
    np.save(tmp_path / "a.npy", values)
    np.save(tmp_path / "m.npy", np.arange(400) == 3)
    data = RowDataModule(str(tmp_path / "a.npy"), channels="none", storage={"in_memory": False}, batching={"kind": "points"})
    with pytest.raises(
        InputError, match=r"which signals that are read from their file cannot have: set --data.storage.in_memory"
    ):
        list(data.val_dataloader())
    with pytest.raises(InputError, match="held in memory"):
        RowDataModule(
            str(tmp_path / "a.npy"),
            channels="none",
            missing=str(tmp_path / "m.npy"),
            storage={"in_memory": False},  # type: ignore[arg-type]
        ).prepare()


@pytest.mark.parametrize("given", ["frames:", "frames:4-2", "frames:a", "#ff00", float("nan"), True, "", [], None])
def test_marks_that_are_refused(given: object) -> None:
    with pytest.raises(InputError, match="missing"):
        Missing(given)  # type: ignore[arg-type]


def test_marks_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    picture(tmp_path)
    np.save("small.npy", np.zeros((5, 5), bool))
    np.save("row.npy", RNG.random(30))
    for source, words in [
        (ImageSource("a.png", missing="small.npy"), "the mask 'small.npy' has 5x5 samples, but the signals have 12x14"),
        (ImageSource("a.png", missing=["mask.png", "mask.npy"]), r"2 masks for 1 signal\(s\)"),
        (ImageSource("a.png", missing="alpha"), "has no opacity"),
        (ImageSource("a.png", missing="msk.png"), "did you mean 'mask.png'"),
        (RowSource("row.npy", missing="alpha"), "is for pictures, not for arrays"),
    ]:
        with pytest.raises(InputError, match=words):
            source.read()
    assert spread_mask(np.array([True, False]), (2, 3), "m").tolist() == [[True] * 3, [False] * 3]
    assert spread_mask(np.array([True, False, False]), (2, 3), "m").tolist() == [[True, False, False]] * 2


def test_masks_in_the_format_of_their_volumes(tmp_path: Path) -> None:
    """NIfTI for NIfTI, in the order of axes of either verb, and HDF5 for HDF5."""
    volume, mask = RNG.random((7, 6, 5)).astype(np.float32), RNG.random((7, 6, 5)) > 0.8
    for name, values in (("a", volume), ("mask", mask.astype(np.uint8))):
        nibabel.Nifti1Image(values, np.eye(4)).to_filename(tmp_path / f"{name}.nii.gz")
    for name, array in (("a", volume), ("mask", mask)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["values"] = array
    for name, turned in (("nii.gz", mask.T), ("h5", mask)):
        path, mark = tmp_path / f"a.{name}", str(tmp_path / f"mask.{name}")
        raw = VideoSource(path, missing=mark).read()
        np.testing.assert_array_equal(np.isnan(unit(raw)[0, ..., 0]), turned)
