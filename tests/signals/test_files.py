"""Files are written as a whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pe_lightning.errors import InputError
from pe_lightning.signals import files
from pe_lightning.signals.files import write_atomically


def test_content_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "metrics.json"
    write_atomically(path, "größer")
    assert path.read_bytes() == "größer".encode()
    write_atomically(str(path), b"\x00\xff\n")
    assert path.read_bytes() == b"\x00\xff\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["metrics.json"]


@pytest.mark.parametrize(
    ("moment", "interruption", "raised"),
    [("replace", KeyboardInterrupt(), KeyboardInterrupt), ("fsync", OSError("disk full"), InputError)],
)
def test_an_interruption_leaves_the_old_content(
    moment: str, interruption: BaseException, raised: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.json"
    write_atomically(path, "old")

    def stop(*_: object) -> None:
        raise interruption

    monkeypatch.setattr(files.os, moment, stop)
    with pytest.raises(raised):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_permissions_are_those_of_any_new_file(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "file", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode
