"""Run directories: created by one run only; names of files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pe_lightning.errors import InputError
from pe_lightning.results import runs


def test_the_origin_of_results_names_the_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["/somewhere/pe_lightning/__main__.py", "fit", "my picture.png"])
    assert runs.origin()["git_commit"] is None
    author = ["-c", "user.name=me", "-c", "user.email=me@here"]
    for words in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *words], check=True)
    found = runs.origin()
    assert re.fullmatch("[0-9a-f]{40}", found["git_commit"])
    assert found["command"] == "python -m pe_lightning fit 'my picture.png'"


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match=r"cannot create a run directory under .*--trainer\.default_root_dir"):
        runs.claim(tmp_path, "run")


def test_numbers_count_on_and_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "not" / "yet"
    assert [runs.claim(root, "a-b-c") for _ in range(3)] == [root / "a-b-c" / n for n in "123"]
    assert runs.claim(root, "other") == root / "other" / "1"
    for name in ("2", "7", "09", "notes", "10x", "-3"):
        (tmp_path / "run" / name).mkdir(parents=True)
    (tmp_path / "run" / "11").write_text("a file takes its number too")
    monkeypatch.chdir(tmp_path)
    assert runs.claim(".", "run") == tmp_path / "run" / "12"


def test_processes_never_share_a_directory(tmp_path: Path) -> None:
    # all wait for one file, so that they start together
    program = (
        "import sys, pathlib\n"
        "from pe_lightning.results import runs\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(*[runs.claim(sys.argv[1], 'run').name for _ in range(20)])\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    names = [name for process in processes for name in process.communicate()[0].split()]
    assert all(process.returncode == 0 for process in processes)
    assert sorted(names, key=int) == [str(n) for n in range(1, 81)]


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("astronaut-ComplexLinear-gau", "astronaut-ComplexLinear-gau"),
        ("my photo (1).final", "my-photo-1-.final"),
        ("../../etc/passwd", "etc-passwd"),
        ("a\\b:c*d", "a-b-c-d"),
        ("...", "unnamed"),
        (".hidden", "hidden"),
        ("CON", "CON_"),
        ("nul.png", "nul_.png"),
        ("Com1-x", "Com1-x"),
    ],
)
def test_slug(text: str, expected: str) -> None:
    assert runs.slug(text) == expected


def test_long_names_stay_usable(tmp_path: Path) -> None:
    assert runs.slug("文" * 300) == "文" * 60
    assert runs.claim(tmp_path, "文" * 300).is_dir()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "a-2", "a"], ["a", "a-2", "a-3"]),
        (["a-2", "a", "a"], ["a-2", "a", "a-3"]),
        (["Cat", "cat"], ["Cat", "cat-2"]),  # one file on Windows and macOS
        (["a b", "a/b", "..."], ["a-b", "a-b-2", "unnamed"]),
        (["a", "a_comparison"], ["a", "a_comparison-2"]),  # the sheet of the first has that name
        (["a_comparison", "a"], ["a_comparison", "a-2"]),
        ([], []),
    ],
)
def test_file_names_differ(names: list[str], expected: list[str]) -> None:
    assert runs.file_names(tuple(names)) == expected


@pytest.mark.parametrize(("count", "stride"), [(5, 2), (8, 4), (64, 4), (300, 2)])
def test_frames_that_stand_for_a_cube_are_spread_and_not_all_trained_on(count: int, stride: int) -> None:
    assert runs.frames_of(count, count) == list(range(count))
    frames = runs.frames_of(count, 4)
    assert len(set(frames)) == 4
    assert frames == sorted(frames)
    assert all(abs(frame - (2 * part + 1) * count / 8) < 2 for part, frame in enumerate(frames))
    assert any(frame % stride for frame in frames)
    assert len({frame % 2 for frame in runs.frames_of(count, 32)}) == 2
