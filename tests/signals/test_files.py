"""Files are written as a whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pe_lightning.errors import InputError
from pe_lightning.signals import files
from pe_lightning.signals.files import replacing_results, write_atomically


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


def test_results_are_replaced_together_and_only_those_of_the_verb(tmp_path: Path) -> None:
    """On an exception, and while another command writes there, the folder is as before."""

    def write(**files: str) -> None:
        with replacing_results(tmp_path, "compare") as folder:
            (folder / "in").mkdir()
            for name, content in files.items():
                (folder / "in" / name).write_text(content)

    def visible() -> dict[str, str]:
        return {path.name: path.read_text() for path in tmp_path.glob("in/*")}

    write(a="1", b="1")
    (tmp_path / "in/c").write_text("mine")
    write(a="2")
    assert visible() == {"a": "2", "c": "mine"}
    with pytest.raises(InputError, match=r"in/c' was not written by pe-lightning compare"):
        write(a="3", c="3")
    with pytest.raises(TypeError):
        write(a="4", d=5)  # type: ignore[arg-type]
    with (
        replacing_results(tmp_path, "compare"),
        pytest.raises(InputError, match="another command is writing"),
        replacing_results(tmp_path, "compare"),
    ):
        pass
    (tmp_path / "in/b").write_text("1")  # the content of an earlier file under its name, but no file of the last report
    with pytest.raises(InputError, match=r"in/b' was not written"):
        write(b="5")
