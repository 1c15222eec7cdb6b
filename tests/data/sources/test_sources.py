"""Files, folders and samples:// to sources with distinct names."""

from pathlib import Path

import pytest
from pe_lightning.data.sources.decode import SUFFIXES
from pe_lightning.data.sources.sources import Source, distinct_names, expand

from pe_lightning.data.sources.samples import image_samples, sample_path
from pe_lightning.errors import InputError


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def files(paths, **kwargs) -> list[str]:
    return [source.path.name for source in expand(paths, SUFFIXES, **kwargs)]


def test_folder_is_sorted_and_keeps_only_visible_images(tmp_path):
    touch(*(tmp_path / name for name in ("b.png", "a.JPG", ".hidden.png", "notes.txt", "sub/c.png")))
    assert files(str(tmp_path)) == ["a.JPG", "b.png"]
    assert files(tmp_path) == ["a.JPG", "b.png"]


def test_order_of_the_arguments_is_kept_and_kinds_mix(tmp_path):
    touch(tmp_path / "z.png", tmp_path / "folder/y.png", tmp_path / "odd suffix.dat")
    given = [str(tmp_path / "z.png"), str(tmp_path / "folder"), "samples://coffee", str(tmp_path / "odd suffix.dat")]
    assert files(given) == ["z.png", "y.png", "coffee.png", "odd suffix.dat"]


def test_home_and_links_are_followed(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    touch(tmp_path / "real.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "real.png")
    assert files(["~/real.png", "~/link.png"]) == ["real.png", "link.png"]
    assert files("~") == ["link.png", "real.png"]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("phto.png", ["'phto.png'", "did you mean 'photo.png'?", "working directory"]),
        ("fotos/photo.png", ["there is no 'fotos'", "did you mean 'photos'?"]),
        ("astronaut.png", ["did you mean 'samples://astronaut'?"]),
        ("https://example.org/a.png", ["only files, folders and samples://NAME", "download it"]),
        ("empty", ["no image in the folder 'empty'", "it is empty", ".png"]),
        ("texts", ["no image in the folder 'texts'", "1 file(s) of type .heic", ".jpeg, .jpg"]),
        ("dead.png", ["'dead.png' is a link to 'gone.png', which does not exist"]),
        ("", ["non-empty string"]),
        ([], ["paths is an empty list", "samples://NAME"]),
        ([3], ["got 3"]),
        ("samples://astronat", ["did you mean 'astronaut'?", "Samples: astronaut, brick, camera", "text"]),
    ],
)
def test_what_cannot_be_found_says_what_to_type(tmp_path, monkeypatch, given, parts):
    monkeypatch.chdir(tmp_path)
    touch(tmp_path / "photo.png", tmp_path / "photos/photo.png", tmp_path / "texts/a.heic")
    (tmp_path / "empty").mkdir()
    (tmp_path / "dead.png").symlink_to("gone.png")
    with pytest.raises(InputError) as error:
        expand(given, SUFFIXES)
    message = str(error.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_samples_are_single_images_in_the_installed_package():
    samples = image_samples()
    assert {"astronaut", "camera", "coffee", "chelsea", "rocket"} <= set(samples)
    assert not {"multipage", "multipage_rgb", "no_time_for_that_tiny", "lfw_subset", "README"} & set(samples)
    assert list(samples) == sorted(samples)
    assert all(path.is_file() and path.parent.name == "data" for path in samples.values())
    assert sample_path("samples://camera") == samples["camera"]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a.png", "b.jpg"], ("a", "b")),
        (["x/a.png", "y/a.png", "y/b.png"], ("x_a", "y_a", "b")),
        (["x/a.png", "x/a.jpg"], ("a-1", "a-2")),
        (["x/a.png", "x/A.png"], ("a-1", "A-2")),
        (["x/a.png", "y/a.png", "x_a.png"], ("a-1", "y_a", "x_a")),
        (["x/a.png", "x/a.png", "a-1.png"], ("a-2", "a-3", "a-1")),
        (["p/x/a.png", "q/x/a.png", "z/a.png"], ("a-1", "a-2", "z_a")),
    ],
)
def test_names_are_distinct(paths, names):
    got = distinct_names([Source(Path(path), path) for path in paths])
    assert got == names
    assert len({name.casefold() for name in got}) == len(paths)
