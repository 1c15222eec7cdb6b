"""All reconstructions of a run, and predictions that arrive in blocks."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from pe_lightning.results import predictions, reconstructions
from pe_lightning.results.comparisons import open_comparison
from pe_lightning.results.pictures import to_levels
from pe_lightning.results.predictions import FileAssembly, PredictionWriter
from pe_lightning.results.reconstructions import write_reconstructions
from pe_lightning.results.runs import file_names, frames_of
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.raw import ValueRange
from pe_lightning.training.datamodule import OutputGrid

BYTES = ValueRange("uint8", (0.0,), (255.0,))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def scores(*names: str) -> dict:
    per_signal = {f"{key}_per_signal": [None] * len(names) for key in ("test/psnr", "train/psnr", "test/ssim")}
    return {"metric": "psnr", "signals": list(names), "baselines": {}, **per_signal}


@pytest.mark.parametrize(
    ("media", "grid", "suffix"),
    [("image", (16, 16), "png"), ("video", (5, 16, 16), "mp4"), ("audio", (50,), "wav"), ("array", (3, 4, 5), "npy")],
)
def test_every_kind_of_signal_is_written_and_compared(media: str, grid: tuple, suffix: str, tmp_path: Path) -> None:
    info = SignalInfo(("a", "b"), grid, 1, BYTES, 25.0, media)
    values = random(2, *grid, 1)
    pictures = write_reconstructions(tmp_path, scores("a", "b"), 0.9 * values, values, info, values[:1, ..., 0] > 0.5)
    assert pictures == [str(tmp_path / f"{name}_comparison.png") for name in "ab"]
    suffixes = [f".{suffix}", "_comparison.h5", "_comparison.png"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(name + end for name in "ab" for end in suffixes)
    sheets = [np.asarray(Image.open(path)) for path in pictures]
    assert not np.array_equal(*sheets)
    with h5py.File(tmp_path / "b_comparison.h5") as file:
        assert (file.attrs["media"], file.attrs["rate"]) == (media, 25.0)
        found = {name: file[name][...] for name in file}
        if media == "audio":
            assert found.pop("range").tolist() == [0, 1], "bytes are no unit of the user"
            assert np.array_equal(found.pop("trained"), values[0, :, 0] > 0.5)
            expected = {"truth": values[1], "reconstruction": 0.9 * values[1]}
        else:
            cube = values[1] if len(grid) == 3 else values[1][None]
            expected = {"truth": to_levels(cube), "reconstruction": to_levels(0.9 * cube)}
            assert list(file.attrs["frames"]) == list(range(len(cube)))
    assert list(found) == ["reconstruction", "truth"]
    for name, expectation in expected.items():
        assert found[name].dtype == expectation.dtype
        assert np.array_equal(found[name], expectation), name


def test_some_frames_of_a_large_cube_and_the_first_of_many_channels_are_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = random(1, 50, 4, 5, 6)
    for most, count in ((1 << 20, 32), (2 * 7 * 4 * 5 * 6, 7), (1, 1)):
        monkeypatch.setattr(reconstructions, "MAX_STORED_BYTES", most)
        write_reconstructions(tmp_path, scores("a"), values, values, SignalInfo(("a",), (50, 4, 5), 6))
        with h5py.File(tmp_path / "a_comparison.h5") as file:
            frames = list(file.attrs["frames"])
            assert frames == frames_of(50, count)
            assert np.array_equal(file["truth"][...], to_levels(values[0, frames][..., :1]))


@pytest.mark.parametrize(("grid", "media"), [((40,), "audio"), ((6, 8), "image"), ((3, 6, 8), "video")])
def test_of_many_signals_one_file_holds_all_and_the_first_have_files(
    grid: tuple, media: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison of a signal is the same from the file of all and from a file of its own."""
    names = ("one", "two", "b\udcfc")
    info = SignalInfo(names, grid, 1, ValueRange("int16", (-1.0, 0.0, 3.0), (1.0, 5.0, 9.0)), 25.0, media)
    values, about = random(3, *grid, 1), scores(*names)
    options = {"info": info, "train_mask": values[:1, ..., 0] > 0.5, "interpolation": ("linear", 0.7 * values)}
    about["baselines"] = {"linear": about}
    write_reconstructions(tmp_path / "each", about, 0.9 * values, values, **options)
    monkeypatch.setattr(reconstructions, "MAX_FILES", 2)
    pictures = write_reconstructions(tmp_path / "all", about, 0.9 * values, values, **options)
    assert [Path(path).name for path in pictures] == ["one_comparison.png", "two_comparison.png"]
    each, together = ({path.name: path for path in (tmp_path / name).iterdir()} for name in ("each", "all"))
    assert together.pop("reconstructions.h5")
    assert set(together) == {name for name in each if name.startswith(("one", "two")) and not name.endswith("comparison.h5")}
    assert all(path.read_bytes() == each[name].read_bytes() for name, path in together.items() if name.endswith("png"))
    for index, stem in enumerate(file_names(names)):
        with open_comparison(tmp_path / "each", stem, index) as one, open_comparison(tmp_path / "all", stem, index) as same:
            compared = {"truth", "reconstruction", "interpolation"} | ({"trained", "range"} if len(grid) == 1 else set())
            assert set(one) == set(same) == compared
            assert all(np.array_equal(one[name][()], same[name][()]) for name in one)
            assert len(grid) > 1 or tuple(one["range"]) == info.scaling.limits(index)
            attributes = [{key: list(np.ravel(value)) for key, value in each.attrs.items()} for each in (one, same)]
            assert attributes[0] == attributes[1]
    with h5py.File(tmp_path / "all/reconstructions.h5") as file:
        assert [name.decode(errors="surrogateescape") for name in file["names"]] == list(names)
        assert file["values"].attrs["axes"][0] == "signal"
        assert len(file["values"].attrs["axes"]) == file["values"].ndim
        for index, signal in enumerate(file["values"]):
            assert np.array_equal(signal, info.scaling.restore(0.9 * values[index], index))


def test_four_axes_are_written_and_not_compared(tmp_path: Path) -> None:
    values = random(1, 2, 3, 4, 5, 1)
    assert write_reconstructions(tmp_path, scores("a"), values, values, SignalInfo(("a",), (2, 3, 4, 5), 1)) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npy"]


# -- blocks -------------------------------------------------------------------------------------------------------------


def test_blocks_of_several_processes_fill_the_same_files(tmp_path: Path) -> None:
    info, values = SignalInfo(("a", "b"), (6, 4), 1, BYTES), torch.rand(2, 6, 4, 1)
    first, second = FileAssembly(tmp_path, info), FileAssembly(tmp_path, info, first=False)
    first.add(values[:, :4], (0, 0))
    second.add(values[:, 4:], (4, 0))
    second.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy.part", "b.npy.part"]
    for index, path in enumerate(first.finish()):
        assert np.array_equal(np.load(path), info.scaling.restore(values[index].numpy(), index))
    FileAssembly(tmp_path / "none", info).finish(filled=False)
    assert not list((tmp_path / "none").iterdir())


@pytest.mark.parametrize("limit", [1 << 30, 0])
def test_predictions_come_a_few_rows_at_a_time(limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(predictions, "MAX_ASSEMBLED_BYTES", limit)
    info, values = SignalInfo(("a", "b"), (6, 4), 5, BYTES), torch.rand(2, 9, 4, 5)
    writer = PredictionWriter(tmp_path, info, OutputGrid([9, 4]))
    for _ in range(2):
        assert writer.add(values[:, :5]) == []
        paths = writer.add(values[:, 5:])
        assert paths == [tmp_path / "9x4" / "a.npy", tmp_path / "9x4" / "b.npy"]
        assert np.array_equal(np.load(paths[1]), info.scaling.restore(values[1].numpy(), 1))
    assert PredictionWriter(tmp_path, info).add(values[:, :3])[0] == tmp_path / "3x4" / "a.npy"
