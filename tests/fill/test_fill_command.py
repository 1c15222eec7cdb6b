"""``pe-lightning fill``: what it writes and prints, that it is what Python fills, and what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import pe_fill
from pe_fill.results import before_after
from pe_fill.results.before_after import draw_before_after
from pe_fill.verbs.fill_scores import print_fold_scores
from pe_lightning.__main__ import main
from pe_lightning.estimators.folds import FoldScore

PSNR = {"denoised": 30.0, "biharmonic": 30.5, "nearest": 20.0}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A damaged picture, its mask, and a table with empty cells."""
    monkeypatch.chdir(tmp_path)
    y, x = np.mgrid[:16, :18] / 16
    picture = (128 + 90 * np.sin(5 * x * y + np.arange(3)[:, None, None])).transpose(1, 2, 0).astype(np.uint8)
    mask = np.zeros((16, 18), bool)
    mask[4:6, 3:12] = True
    picture[mask] = 255
    Image.fromarray(picture).save("a.png")
    Image.fromarray(picture).save("a.jpg", quality=95)
    Image.fromarray(mask).save("mask.png")
    Image.fromarray(mask[:, :9]).save("narrow.png")
    Image.fromarray(np.ones_like(mask)).save("whole.png")
    rows = [f"{k},{'' if k in (7, 8) else 20 + k % 5}.5" for k in range(40)]
    Path("t.csv").write_text("day,temp\n" + "\n".join(rows).replace(",.5", ",") + "\n")
    Image.fromarray(np.zeros((9, 9), np.uint8)).save("old_std.tif")
    Path("s").mkdir()
    Image.fromarray(picture).save("s/a.bmp")
    os.mkfifo("pipe.png")
    return tmp_path


def test_a_picture_is_filled_as_by_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", "a.png", "--missing", "mask.png", "--out", "b.png"]) == 0
    out = capsys.readouterr().out
    assert "18 of 288 samples missing" in out
    assert "3 moved copies of the gaps" in out
    assert "this fit" in out
    assert "nearest" in out
    filled = pe_fill.fill("a.png", "mask.png")
    assert f"{filled.score:.2f} dB" in out
    np.testing.assert_array_equal(np.asarray(Image.open("b.png")), filled.values)
    with Image.open("b_before_after.png") as picture:
        assert picture.width > 2 * 18
    assert main(["fill", "a.jpg", "--missing", "mask.png", "--out", "c.png", "--folds", "none", "--model", "exact"]) == 0


def test_several_files_go_to_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", "t.csv", "a.jpg", "--missing", "nan", "mask.png", "--folds", "none", "--out", "done"]) == 0
    lines = Path("done/t.csv").read_text().splitlines()
    before = Path("t.csv").read_text().splitlines()
    assert [n for n, (one, other) in enumerate(zip(before, lines, strict=True)) if one != other] == [8, 9]
    assert all(20 <= float(lines[n].split(",")[1]) <= 25 for n in (8, 9))
    assert Path("done/a.png").is_file()
    assert Path("done/t_before_after.png").is_file()
    assert "no score" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("a.png --missing narrow.png --out b.png", "the mask 'narrow.png' has 16x9 samples, but the signals have 16x18"),
        ("a.png --missing mask.png --out a.png", "'a.png' would be written, and is read"),
        ("a.png --missing mask.png --out mask.png --force", "'mask.png' would be written, and is read"),
        ("a.png --missing mask.png --out whole.png", "'whole.png' exists: choose another name, --out OTHER, or replace"),
        ("a.png --missing mask.png --out old.png", "'old_std.tif' exists"),
        ("old_std.tif --out old.tif --missing 0 --force", "'old_std.tif' would be written, and is read"),
        ("a.png s/a.bmp --missing mask.png --out done", "'done/a.png' would be written twice"),
        ("pipe.png --missing mask.png --out b.png", "is neither a file nor a folder, but a pipe"),
        ("a.png --missing mask.png --out b.gif", "the result is written as .png"),
        ("a.png --missing mask.png --out /proc/nothing/b.png", "cannot write"),
        ("a.png --missing", "argument --missing: expected at least one argument"),
        ("a.png a.jpg --missing mask.png --out whole.png", "2 results need a folder"),
        ("a.png a.jpg --missing mask.png --out c.png", "2 results need a folder, such as --out c/"),
        ("a.png --missing red --out b.png", "a number, frames:10-14,30, or a mask file; there is no file 'red'"),
        ("a.png --missing mask.png", "fill: give --out OUT; --help lists the options"),
        ("a.png a.jpg --missing mask.png mask.png mask.png --out done", "--missing has 3 values for 2 file(s)"),
        ("a.png --missing mask.png --out b.png --upscale 7", "upscale: expected one of 1, 2, 3, 4, 6, 8, got 7"),
        ("a.png --missing alpha --out b.png", "has no opacity"),
        ("a.png --missing mask.png --out b.png --spacing 30", "for tables of points, and 'a.png' is none"),
        ("t.csv --out b.csv --periodic time=24h", "the axes are row (numbers); got 'time=24h'"),
    ],
)
def test_what_is_refused_writes_nothing(
    arguments: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert main(["fill", *arguments.split(), "--folds", "none"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert sorted(folder.rglob("*")) == before


def test_pictures_of_a_folder_are_filled_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Where they differ in size, each with the mask of its name; masks of JPEG files grow; no result has a device's name."""
    for folder in ("photos", "masks"):
        Path(folder).mkdir()
    for name, size in {"Aux": (20, 16), "IMG_1": (18, 24)}.items():
        values = np.random.default_rng(0).integers(90, 110, (*size, 3), np.uint8)
        Image.fromarray(values).save(f"photos/{name}.jpg")
        mask = np.zeros(size, np.uint8)
        mask[9, 9] = 255
        Image.fromarray(mask).save(f"masks/{name}.png")
    assert main(["fill", "photos", "--missing", "masks", "--out", "done", "--folds", "none", "--model", "exact"]) == 0
    out = capsys.readouterr().out
    assert "'photos' holds 2 pictures of 2 size(s): each is filled by itself" in out
    assert "photos/IMG_1.jpg: missing samples were grown by 3 pixels, because JPEG" in out
    assert "29 of 432 samples missing" in out
    with Image.open("done/IMG_1.png") as found:
        assert found.size == (24, 18)
    assert main(["fill", "photos", "--missing", "masks", "--out", "done", "--folds", "none"]) == 2
    assert "'done/Aux_.png' exists" in capsys.readouterr().err
    Image.new("L", (24, 18)).save("masks/IMG_1.png")
    assert main(["fill", "photos", "--missing", "masks", "--out", "some", "--folds", "none", "--model", "exact"]) == 0
    assert "photos/IMG_1.jpg: no sample is missing, and no result is written" in capsys.readouterr().out
    assert {path.name for path in Path("some").iterdir()} == {"Aux_.png", "Aux__std.tif", "Aux__before_after.png"}


def test_a_file_that_another_fill_has_written_meanwhile_is_kept(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    def other(original, values):
        Path("b.png").write_text("of another")
        return draw_before_after(original, values)

    monkeypatch.setattr(before_after, "draw_before_after", other)
    options = ["--folds", "none", "--no_std", "--model", "exact"]
    assert main(["fill", "a.png", "--missing", "mask.png", "--out", "b.png", *options]) == 2
    assert "written by another program meanwhile" in capsys.readouterr().err
    assert Path("b.png").read_text() == "of another"
    assert not list(Path().glob(".*part*"))


def test_a_method_that_is_ahead_is_named_with_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    scores = {name: FoldScore(torch.tensor([psnr]), torch.tensor([10 ** (-psnr / 20)])) for name, psnr in PSNR.items()}
    print_fold_scores("title", scores, 1.0, {"spline": "left out: 104,269 places"})
    out = capsys.readouterr().out
    assert "biharmonic is 0.50 dB ahead of denoised on these samples: skimage.restoration.inpaint_biharmonic" in out
    assert "left out" not in out
    print_fold_scores("title", scores, 1.0, {"spline": "left out: 104,269 places"}, verbose=True)
    assert "spline: left out: 104,269 places" in capsys.readouterr().out
