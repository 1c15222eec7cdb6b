"""``pe-lightning cache``."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

from pe_lightning.__main__ import main
from pe_lightning.cache_folder import DEFAULT_GB, FOLDER, LIMIT, CacheFolder, show_bytes

DEMO = Path(__file__).parents[1] / "configs/image/demo.yaml"


@pytest.fixture(scope="module")
def used(tmp_path_factory) -> Path:
    """A cache folder after a fit of three pictures, with a damaged entry."""
    root = tmp_path_factory.mktemp("used")
    (root / "pictures").mkdir()
    for name in ("[bold]a", "b", "c"):
        Image.fromarray(np.zeros((40, 50), "uint8")).save(root / "pictures" / f"{name}.png")
    options = ["--data.paths", str(root / "pictures"), "--data.cache_dir", str(root / "cache"), "--trainer.logger", "false"]
    options += ["--trainer.max_steps", "1", "--trainer.default_root_dir", str(root)]
    assert main(["fit", "--config", str(DEMO), *options, "--model.encoder.num_features", "8"]) == 0
    (root / "cache" / f"{'ab' * 32}.h5").write_bytes(b"no HDF5")
    return root / "cache"


@pytest.fixture
def folder(used, tmp_path) -> CacheFolder:
    return CacheFolder(shutil.copytree(used, tmp_path / "my cache"))


def test_list(folder, capsys):
    assert main(["cache", "list", "--cache_dir", str(folder.path)]) == 0
    shown = capsys.readouterr().out
    for part in ("[bold]a and 2 more", "3x40x50x1", "(not readable)", "abababababab"):
        assert part in shown
    total = show_bytes(sum(entry.bytes for entry in folder.entries()))
    assert f"2 entries, {total} of at most 20.0 GB, in {folder.path}" in shown


def test_clear(folder, capsys):
    (folder.path / "notes.txt").write_text("mine")
    size = show_bytes(sum(entry.bytes for entry in folder.entries()))
    assert main(["cache", "clear", "--cache_dir", str(folder.path)]) == 0
    assert capsys.readouterr().out == f"removed 2 entries, {size}, from {folder.path}\n"
    assert folder.entries() == []
    assert (folder.path / "notes.txt").exists()


def test_clear_leaves_what_is_being_written(folder, capsys):
    with FileLock(folder.path / f".{'ab' * 32}.lock"):
        assert main(["cache", "clear", f"--cache_dir={folder.path}"]) == 0
    shown = capsys.readouterr().out
    assert "removed 1 entry," in shown
    assert "left 1 entry that another process is writing" in shown


def test_the_folder_and_limit_of_the_environment(folder, monkeypatch, capsys):
    monkeypatch.setenv("PE_LIGHTNING_CACHE", str(folder.path))
    monkeypatch.setenv("PE_LIGHTNING_CACHE_GB", "3")
    assert main(["cache", "list"]) == 0
    assert f"of at most 3.0 GB, in {folder.path}" in capsys.readouterr().out
    monkeypatch.setenv("PE_LIGHTNING_CACHE_GB", "nothing")
    assert main(["cache", "list"]) == 2
    assert "positive number of gigabytes such as 20; got 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["list", "clear"])
def test_no_folder_yet(tmp_path, capsys, action):
    assert main(["cache", action, "--cache_dir", str(tmp_path / "none")]) == 0
    assert "0 entries, 0 B" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_help_names_the_environment(capsys):
    assert main(["cache", "--help"]) == 0
    shown = capsys.readouterr().out
    for part in (FOLDER, LIMIT, f"{DEFAULT_GB:g} by default", "~/.cache/pe_lightning", "XDG_CACHE_HOME", "--data.cache off"):
        assert part in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "missing: action"),
        (["lst"], "expected one of 'list', 'clear', got lst; did you mean 'list'?"),
        (["list", "clear"], "unknown argument 'clear'"),
        (["list", "--cach_dir", "x"], "unknown option '--cach_dir'; did you mean '--cache_dir'?"),
        (["list", "--cache_dir"], "--cache_dir: expected one argument"),
        (["clear", "--cache_dir="], "--cache_dir takes a folder"),
        (["list", "--cache_dir", __file__], "is a file; give a folder"),
    ],
)
def test_bad_arguments(capsys, arguments, told):
    assert main(["cache", *arguments]) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert len(shown.strip().splitlines()) == 1
