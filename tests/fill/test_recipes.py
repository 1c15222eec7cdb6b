"""The recipes of this package for files, and their options."""

import pytest
from cli.test_arguments import check_recipe

from pe_lightning.signals.sources.kinds import kind_of


@pytest.mark.parametrize(
    ("words", "recipe"),
    [
        ("my.jpg", "image/adaptive"),
        ("my.jpg --model.noise auto --data.resize 64", "image/adaptive"),
        ("my.jpg --data.sampling random --data.sampling.fraction 0.1", "image/adaptive"),
        ("my.jpg --encoder tri", "image/closed_form"),
        ("clip.mp4 --data.sampling random", "video/adaptive"),
        ("song.wav", "row/adaptive"),
        ("scan.nii.gz", "volume/adaptive"),
        ("sst.nc", "labelled/adaptive"),
        ("dem.tif --data.variable 1 --encoder tri", "labelled/closed_form"),
        ("table.csv --data.coordinates lon,lat --data.values v", "points/adaptive"),
    ],
)
def test_files_get_the_recipe_of_their_kind(words, recipe):
    check_recipe(words, recipe)


def test_kinds_of_files(tmp_path):
    (tmp_path / "a.zarr/values").mkdir(parents=True)
    (tmp_path / "a.zarr/zarr.json").write_bytes(b"x")
    for path, options, kind in (
        ("a.nc", {}, "labelled"),
        (str(tmp_path / "a.zarr"), {}, "labelled"),
        ("one.tif", {"variable": "1"}, "labelled"),
        ("t.csv", {"coordinates": "lon,lat"}, "points"),
    ):
        assert kind_of(path, **options) == kind
