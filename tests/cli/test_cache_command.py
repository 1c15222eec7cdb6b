"""``pe-lightning cache``."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

from pe_lightning.__main__ import main
from pe_lightning.signals.cache import FOLDER_VARIABLE, LIMIT_VARIABLE, CacheFolder, Storage, show_bytes
from pe_lightning.training import ImageDataModule


@pytest.fixture(scope="module")
def used(tmp_path_factory) -> Path:
    """A cache folder with the entry of three pictures and a damaged entry."""
    root = tmp_path_factory.mktemp("used")
    paths = [str(root / f"{name}.png") for name in ("[bold]a", "b", "c")]
    for path in paths:
        Image.fromarray(np.zeros((40, 50), "uint8")).save(path)
    ImageDataModule(paths, storage=Storage(cache_dir=str(root / "cache"))).prepare()
    (root / "cache" / f"{'ab' * 32}.h5").write_bytes(b"no HDF5")
    return root / "cache"


@pytest.fixture
def folder(used, tmp_path) -> CacheFolder:
    return CacheFolder(shutil.copytree(used, tmp_path / "my cache"))


def test_list(folder, capsys, monkeypatch):
    assert main(["cache", "list", "--cache_dir", str(folder.path)]) == 0
    shown = capsys.readouterr().out
    for part in ("[bold]a and 2 more", "3x40x50x1", "(not readable)", "abababababab"):
        assert part in shown
    total = show_bytes(sum(entry.bytes for entry in folder.entries()))
    assert f"2 entries, {total} of at most 20.0 GB, in {folder.path}" in shown
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder.path))
    monkeypatch.setenv(LIMIT_VARIABLE, "3")
    assert main(["cache", "list"]) == 0
    assert f"of at most 3.0 GB, in {folder.path}" in capsys.readouterr().out


def test_clear_leaves_what_is_being_written_and_other_files(folder, capsys):
    (folder.path / "notes.txt").write_text("mine")
    with FileLock(folder.path / f".{'ab' * 32}.lock"):
        assert main(["cache", "clear", f"--cache_dir={folder.path}"]) == 0
    shown = capsys.readouterr().out
    assert "removed 1 entry," in shown
    assert "kept 1 entry that another process is writing" in shown
    assert main(["cache", "clear", f"--cache_dir={folder.path}"]) == 0
    assert capsys.readouterr().out == f"removed 1 entry, 7 B, from {folder.path}\n"
    assert folder.entries() == []
    assert (folder.path / "notes.txt").exists()


def test_no_folder_yet(tmp_path, capsys):
    assert main(["cache", "list", "--cache_dir", str(tmp_path / "none")]) == 0
    assert "0 entries, 0 B" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["lst"], "expected one of 'list', 'clear', got lst; did you mean 'list'?"),
        (["clear", "--cache_dir="], "--cache_dir takes a folder"),
        (["list", "--cache_dir", __file__], "--cache_dir takes a folder"),
    ],
)
def test_bad_arguments(capsys, arguments, told):
    assert main(["cache", *arguments]) == 2
    assert told in capsys.readouterr().err
