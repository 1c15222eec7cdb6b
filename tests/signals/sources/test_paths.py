"""Files, folders and samples:// to files with formats and distinct names."""

import logging
from pathlib import Path

import pytest
from source_checks import refused

from pe_lightning.signals.files import PICTURES
from pe_lightning.signals.sources import paths as source_paths
from pe_lightning.signals.sources.paths import (
    SourceFile,
    distinct_names,
    expand,
    format_of,
    image_samples,
    sample_path,
    video_samples,
)


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def files(paths, formats=PICTURES):
    return [file.path.name for file in expand(paths, formats, "image")]


def test_files_folders_samples_home_and_links(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    touch(*(tmp_path / "folder" / name for name in ("b.png", "a.JPG", ".hidden.png", "notes.txt", "sub/c.png")))
    touch(tmp_path / "z.png", tmp_path / "odd suffix.dat")
    (tmp_path / "link.png").symlink_to(tmp_path / "z.png")
    given = ["~/z.png", tmp_path / "folder", "samples://coffee", str(tmp_path / "odd suffix.dat"), "~/link.png"]
    assert files(given) == ["z.png", "a.JPG", "b.png", "coffee.png", "odd suffix.dat", "link.png"]
    assert files("~") == ["link.png", "z.png"]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("phto.png", ["'phto.png'", "did you mean 'photo.png'?"]),
        ("fotos/photo.png", ["there is no 'fotos'", "did you mean 'photos'?"]),
        ("astronaut.png", ["did you mean 'samples://astronaut'?"]),
        ("https://example.org/a.png", ["paths are files, folders and samples://NAME", "download it"]),
        ("empty", ["no image in the folder 'empty'", "of type none", ".png"]),
        ("texts", ["no image in the folder 'texts'", "files of type .heic", ".jpeg, .jpg"]),
        ("samples://astronat", ["did you mean 'astronaut'?", "Samples: astronaut, brick, camera", "text"]),
        ("samples://bigbuckbunny", ["is a video or volume: use VideoDataModule", "astronaut"]),
    ],
)
def test_what_cannot_be_found_says_what_to_type(tmp_path, monkeypatch, given, parts):
    monkeypatch.chdir(tmp_path)
    touch(tmp_path / "photo.png", tmp_path / "photos/photo.png", tmp_path / "texts/a.heic")
    (tmp_path / "empty").mkdir()
    refused(lambda: expand(given, PICTURES, "image"), *parts)


def test_samples(monkeypatch, tmp_path):
    known = image_samples()
    assert {"astronaut", "camera", "coffee", "chelsea", "rocket"} <= set(known)
    assert not {"multipage", "multipage_rgb", "no_time_for_that_tiny", "lfw_subset", "README"} & set(known)
    assert sample_path("samples://camera") == known["camera"]
    refused(lambda: sample_path("samples://camera", "video"), "is a picture: use ImageDataModule", "bigbuckbunny, phantom3d")
    refused(lambda: sample_path("samples://bigbuckbuny", "video"), "did you mean 'bigbuckbunny'")
    monkeypatch.setattr(source_paths, "video_samples", lambda: {name: tmp_path / "gone.mp4" for name in video_samples()})
    refused(lambda: sample_path("samples://bigbuckbunny", "video"), "Clone the repository")


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a.png", "b.jpg", "c.nii.gz"], ("a", "b", "c")),
        (["x/a.png", "y/a.png", "y/b.png"], ("x_a", "y_a", "b")),
        (["x/a.png", "x/A.png"], ("a-1", "A-2")),
        (["x/a.png", "y/a.png", "x_a.png"], ("a-1", "y_a", "x_a")),
        (["x/a.png", "x/a.png", "a-1.png"], ("a-2", "a-3", "a-1")),
        (["p/x/a.png", "q/x/a.png", "z/a.png"], ("a-1", "a-2", "z_a")),
    ],
)
def test_names_are_distinct(paths, names):
    assert distinct_names([(file, file.stem) for file in (SourceFile(Path(path), path) for path in paths)]) == names


def test_the_content_decides_the_format_and_then_the_suffix(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\x93NUMPY")
    (tmp_path / "b.dat").write_bytes(b"RIFF\x00\x00\x00\x00WAVEfmt ")
    (tmp_path / "c.wav").write_bytes(b"RIFF\x00\x00\x00\x00WEBP")
    (tmp_path / "BMI.csv").write_text("BM,1\n")
    (tmp_path / "e.NII.GZ").write_bytes(b"")
    found = [format_of(tmp_path / name) for name in ("a.txt", "b.dat", "c.wav", "BMI.csv", "e.NII.GZ")]
    assert found == ["npy", "sound", "picture", "table", "nifti"]
    assert format_of(tmp_path / "a.txt", by_content=False) == "table"


def test_stray_files_in_a_folder_are_skipped_with_a_notice(tmp_path, caplog):
    touch(tmp_path / "a.png", tmp_path / "notes.txt")
    with caplog.at_level(logging.INFO):
        assert files(tmp_path, PICTURES | {"table"}) == ["a.png"], "text counts only where nothing else is"
        (tmp_path / "a.png").unlink()
        assert files(tmp_path, PICTURES | {"table"}) == ["notes.txt"]
    (notice,) = caplog.messages
    assert "1 file(s)" in notice
    assert "skipped" in notice
    assert "notes.txt" in notice
