"""Files whose headers claim too much are refused before they are decoded."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from PIL import Image

from pe_lightning.errors import InputError
from pe_lightning.signals.cache import Storage
from pe_lightning.signals.loaders import Batching
from pe_lightning.signals.sources.images import ImageSource
from pe_lightning.signals.sources.video import VideoSource
from pe_lightning.training import VideoDataModule

SIDE, SLICES = 256, 64  # 4 MiB as uint8
BYTES = SLICES * SIDE**2


def write(path: Path) -> Path:
    """Zeros, which compress a thousand times."""
    zeros = np.zeros((SLICES, SIDE, SIDE), np.uint8)
    if path.suffix == ".npz":
        np.savez_compressed(path, a=zeros)
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("a", data=zeros, chunks=zeros.shape, compression="gzip")
    elif path.suffix == ".png":
        Image.fromarray(zeros.reshape(-1, SIDE)).save(path)
    else:
        nibabel = pytest.importorskip("nibabel")
        nibabel.save(nibabel.Nifti1Image(zeros, np.eye(4)), path)
    return path


@pytest.mark.parametrize("name", ["a.npz", "a.h5", "a.nii.gz", "a.png"])
def test_files_larger_than_the_free_memory_are_not_decoded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / name)
    assert path.stat().st_size < BYTES / 50
    source = (ImageSource if name == "a.png" else VideoSource)(str(path))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=BYTES - 1))
    tracemalloc.start()
    try:
        with pytest.raises(
            InputError, match=r"4\.2 MB, to decode at once, and 4\.2 MB of memory are free. Nothing was decoded"
        ):
            list(source.read().blocks())
        assert tracemalloc.get_traced_memory()[1] < BYTES / 2
    finally:
        tracemalloc.stop()


def test_only_a_change_of_size_needs_memory_to_resize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.png")
    sizes = SLICES * SIDE, SIDE
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2 * BYTES))
    ImageSource(str(path), resize=list(sizes)).read()
    with pytest.raises(InputError, match=r"a\.png', resized, .* Set a smaller resize"):
        ImageSource(str(path), resize=[sizes[0] + 1, sizes[1]]).read()


def test_signals_that_do_not_fit_in_the_free_memory_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=np.arange(BYTES, dtype=np.uint8).reshape(SLICES, SIDE, SIDE), chunks=(1, SIDE, SIDE))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=3 * BYTES))
    assert VideoDataModule(str(tmp_path / "a.h5"), batching=Batching("points")).signals.streamed
    with pytest.raises(InputError, match=r"the set of signals has .* Set --data\.storage\.in_memory false"):
        _ = VideoDataModule(str(tmp_path / "a.h5"), storage=Storage(in_memory=True)).values


def test_a_header_that_claims_more_than_its_file_can_hold(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(np.zeros((4, 4, 4), np.uint8), np.eye(4))
    header = bytearray(image.to_bytes())
    header[42:48] = np.array([8000, 8000, 8000], "<i2").tobytes()  # dim
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(bytes(header)))
    with pytest.raises(InputError, match=r"8000x8000x8000, 512\.0 GB, in a file of .*: it is empty, or damaged"):
        VideoSource(str(tmp_path / "a.nii.gz")).read()
