"""Which source reads what: suffixes, folders, shapes of arrays."""

import json
import logging

import numpy as np
import pytest
import tifffile

from pe_lightning.signals.axes import plausible_layouts
from pe_lightning.signals.sources import ImageSource, RowSource, VideoSource
from pe_lightning.signals.sources.kinds import kind_of
from pe_lightning.training import ImageDataModule, RowDataModule, VideoDataModule, make_datamodule

READINGS = [
    ((9,), [("rows", (1, 9, 1))]),
    ((900, 2), [("rows", (1, 900, 2))]),
    ((1, 900), [("rows", (1, 900, 1))]),
    ((32, 24), [("images", (1, 32, 24, 1))]),
    ((16, 900), [("images", (1, 16, 900, 1)), ("rows", (16, 900, 1))]),
    ((32, 24, 1), [("images", (1, 32, 24, 1))]),
    ((32, 24, 3), [("images", (1, 32, 24, 3))]),
    ((32, 24, 4), [("images", (1, 32, 24, 4))]),
    ((32, 24, 2), [("images", (1, 32, 24, 2)), ("rows", (32, 24, 2))]),
    ((16, 900, 3), [("images", (1, 16, 900, 3)), ("rows", (16, 900, 3))]),
    ((10, 32, 24), [("video", (1, 10, 32, 24, 1))]),
    ((900, 32, 24), [("video", (1, 900, 32, 24, 1)), ("images", (900, 32, 24, 1))]),
    ((1, 32, 24), [("images", (1, 32, 24, 1))]),
    ((1, 32, 24, 3), [("images", (1, 32, 24, 3))]),
    ((10, 32, 24, 3), [("video", (1, 10, 32, 24, 3)), ("images", (10, 32, 24, 3))]),
    ((5, 10, 32, 24), [("video", (5, 10, 32, 24, 1))]),
    ((2, 10, 32, 24, 6), [("video", (2, 10, 32, 24, 6))]),
    ((3, 32, 24), []),
    ((7, 3, 32, 24), []),
    ((), []),
    ((1, 1), []),
    ((0, 24), []),
    ((2, 2, 2, 2, 2, 2), []),
]


@pytest.mark.parametrize(("shape", "expected"), READINGS)
def test_readings_of_a_shape(shape, expected):
    assert [(layout.kind, layout.shape) for layout in plausible_layouts(shape)] == expected


CLEAR = [(shape, *found[0]) for shape, found in READINGS if len(found) == 1]


@pytest.mark.parametrize(("shape", "kind", "full"), CLEAR)
def test_the_source_reads_an_array_as_its_shape_was_read(tmp_path, caplog, shape, kind, full):
    np.save(tmp_path / "a.npy", np.zeros(shape, np.uint8))
    with caplog.at_level(logging.INFO):
        data = make_datamodule(tmp_path / "a.npy")
    modules = {"rows": RowDataModule, "images": ImageDataModule, "video": VideoDataModule}
    assert type(data) is modules[kind]
    assert data.source.read().shape == full
    (notice,) = caplog.messages
    assert f"'{tmp_path / 'a.npy'}' of shape {shape} is read as" in notice
    assert "--config row/closed_form" in notice


@pytest.mark.parametrize("cls", [ImageSource, RowSource, VideoSource])
def test_arguments_are_described_as_plain_values(tmp_path, cls):
    described = cls(tmp_path, center_crop=(4, 6), max_pixels=9).describe()
    assert json.loads(json.dumps(described)) == described
    assert (described["paths"], described["center_crop"], described["color"]) == ([str(tmp_path)], [4, 6], "auto")
    assert "max_pixels" not in described  # it changes nothing that is read


def test_files_folders_and_samples(tmp_path):
    for name in ("p/a.png", "p/readme.md", "p/notes.txt", "p/mask.npy", "r/a.csv", "m/a.png", "m/a.wav", "a.xyz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays/a.npy", np.zeros((5, 6)))
    tifffile.imwrite(tmp_path / "one.tif", np.zeros((5, 6), np.uint8))
    tifffile.imwrite(tmp_path / "stack.tif", np.zeros((7, 5, 6), np.uint8))
    for path, kind in (
        ("samples://coffee", "images"), ("samples://phantom3d", "video"), ("a.JPG", "images"), ("b.mp4", "video"),
        ("c.wav", "rows"), ("c.nii.gz", "video"), (tmp_path / "p", "images"), (tmp_path / "r", "rows"),
        (tmp_path / "arrays", "images"), (tmp_path / "one.tif", "images"), (tmp_path / "stack.tif", "video"),
    ):  # fmt: skip
        assert kind_of(str(path)) == kind, path
