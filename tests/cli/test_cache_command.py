"""``pe-lightning cache``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pe_lightning.__main__ import main
from pe_lightning.signals.cache import FOLDER_VARIABLE, LIMIT_VARIABLE, SignalCache, Storage, show_bytes
from pe_lightning.training import ImageDataModule


def test_list_and_clear(tmp_path: Path, capsys, monkeypatch) -> None:
    """The entry of three pictures and a damaged one; other files stay."""
    cache, paths = SignalCache(tmp_path / "my cache"), [str(tmp_path / f"{name}.png") for name in ("[bold]a", "b", "c")]
    for path in paths:
        Image.fromarray(np.zeros((40, 50), "uint8")).save(path)
    ImageDataModule(paths, storage=Storage(cache_dir=str(cache.path))).prepare()
    (cache.path / f"{'ab' * 32}.h5").write_bytes(b"no HDF5")
    (cache.path / "notes.txt").write_text("mine")
    size = sum(entry.bytes for entry in cache.entries())
    assert main(["cache", "list", "--cache_dir", str(cache.path)]) == 0
    shown = capsys.readouterr().out
    for part in ("[bold]a and 2 more", "3x40x50x1", "(not readable)", "abababababab"):
        assert part in shown
    assert f"2 entries, {show_bytes(size)} of at most 20.0 GB, in {cache.path}" in shown
    monkeypatch.setenv(FOLDER_VARIABLE, str(cache.path))
    monkeypatch.setenv(LIMIT_VARIABLE, "3")
    assert main(["cache", "list"]) == 0
    assert f"of at most 3.0 GB, in {cache.path}" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"removed 2 entries, {show_bytes(size)}, from {cache.path}\n"
    assert cache.entries() == []
    assert (cache.path / "notes.txt").exists()


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
