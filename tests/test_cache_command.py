"""``pe-lightning cache``."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from filelock import FileLock

from pe_lightning.__main__ import main
from pe_lightning.cache_command import HELP
from pe_lightning.cache_folder import show_bytes
from pe_lightning.data.cache import SignalCache
from pe_lightning.data.signals import RawSignals, Scaling

KEYS = ["ab" * 32, "cd" * 32]


@pytest.fixture
def filled(tmp_path):
    """A folder with signals, and with the samples that were drawn of them."""
    cache = SignalCache(tmp_path / "my cache")
    values = np.zeros((3, 40, 50, 1), "uint16")
    raw = RawSignals(
        ("[bold]a.png", "b", "c"), (40, 50), 1, "uint16", Scaling.of_integers("uint16"), False, lambda: iter(values)
    )
    cache.store(KEYS[0], lambda: raw)
    cache.store_arrays(KEYS[1], lambda: {"index": np.zeros((2, 6), "int64")})
    return cache


def test_list(filled, capsys):
    assert main(["cache", "list", "--cache_dir", str(filled.path)]) == 0
    shown = capsys.readouterr().out
    for part in ("[bold]a.png and 2 more", "3x40x50x1", "uint16", "abababababab", "(samples) index", "2x6", "int64"):
        assert part in shown
    total = show_bytes(sum(entry.bytes for entry in filled.entries()))
    assert f"2 entries, {total} of at most 20.0 GB, in {filled.path}" in shown


def test_list_shows_what_is_damaged(filled, capsys):
    filled.entry(KEYS[0]).write_bytes(b"no HDF5")
    assert main(["cache", "list", f"--cache_dir={filled.path}"]) == 0
    assert "(not readable)" in capsys.readouterr().out


def test_clear(filled, capsys):
    (filled.path / "notes.txt").write_text("mine")
    size = show_bytes(sum(entry.bytes for entry in filled.entries()))
    assert main(["cache", "clear", "--cache_dir", str(filled.path)]) == 0
    assert capsys.readouterr().out == f"removed 2 entries, {size}, from {filled.path}\n"
    assert filled.entries() == []
    assert (filled.path / "notes.txt").exists()


def test_clear_leaves_what_is_being_written(filled, capsys):
    with FileLock(filled.lock_path(KEYS[0])):
        assert main(["cache", "clear", "--cache_dir", str(filled.path)]) == 0
    shown = capsys.readouterr().out
    assert "removed 1 entry," in shown
    assert "left 1 entry that another process is writing" in shown


def test_the_folder_and_limit_of_the_environment(filled, monkeypatch, capsys):
    monkeypatch.setenv("PE_LIGHTNING_CACHE", str(filled.path))
    monkeypatch.setenv("PE_LIGHTNING_CACHE_GB", "3")
    assert main(["cache", "list"]) == 0
    assert f"of at most 3.0 GB, in {filled.path}" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["list", "clear"])
def test_no_folder_yet(tmp_path, capsys, action):
    assert main(["cache", action, "--cache_dir", str(tmp_path / "none")]) == 0
    assert "0 entries, 0 B" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_help(capsys):
    assert main(["cache", "--help"]) == 0
    assert capsys.readouterr().out == HELP
    for part in (
        "PE_LIGHTNING_CACHE ",
        "PE_LIGHTNING_CACHE_GB",
        "~/.cache/pe_lightning",
        "XDG_CACHE_HOME",
        "--data.cache off",
    ):
        assert part in HELP


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "one action, list or clear; got none"),
        (["lst"], "got 'lst'; did you mean 'list'?"),
        (["list", "clear"], "got 'list clear'"),
        (["list", "--cach_dir", "x"], "no option '--cach_dir'; did you mean '--cache_dir'?"),
        (["list", "--all"], "no option '--all'"),
        (["list", "--cache_dir"], "--cache_dir takes a folder"),
        (["list", "--cache_dir="], "--cache_dir takes a folder"),
        (["list", "--cache_dir", __file__], "is a file; give a folder"),
    ],
)
def test_bad_arguments(capsys, arguments, told):
    assert main(["cache", *arguments]) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert len(shown.strip().splitlines()) == 1


@pytest.mark.parametrize("value", ["nothing", "-1"])
def test_bad_limit(monkeypatch, capsys, value):
    monkeypatch.setenv("PE_LIGHTNING_CACHE_GB", value)
    assert main(["cache", "list"]) == 2
    assert f"positive number of gigabytes such as 20; got '{value}'" in capsys.readouterr().err


def test_lightning_is_not_imported(filled):
    code = f"""
import sys
from pe_lightning.__main__ import main
assert main(["cache", "list", "--cache_dir", {str(filled.path)!r}]) == 0
assert main(["cache", "clear", "--cache_dir", {str(filled.path)!r}]) == 0
assert not [name for name in sys.modules if name.split(".")[0] in ("lightning", "torch", "wandb")]
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "removed 2 entries" in done.stdout


def test_show_bytes():
    sizes = [0, 1, 999, 1000, 999_949, 1_500_000, 20 * 10**9, 3 * 10**15]
    assert [show_bytes(size) for size in sizes] == [
        "0 B",
        "1 B",
        "999 B",
        "1.0 kB",
        "999.9 kB",
        "1.5 MB",
        "20.0 GB",
        "3000.0 TB",
    ]
