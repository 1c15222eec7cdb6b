"""What sources refuse, and the words that say what to type: one table for all files and arguments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import soundfile
import tifffile
from clip_files import pictures, set_display_matrix, write_audio, write_video
from PIL import Image
from source_checks import noise, refused

from pe_lightning.signals.sources import ImageSource, RowSource, TensorSource, VideoSource
from pe_lightning.signals.sources.kinds import kind_of
from pe_lightning.training import make_datamodule

TEXTS = {
    "gap.csv": "a,b\n1,2\n\n3,4\n",
    "word.csv": "a,b\n1,2\n3,x4\n",
    "underscore.csv": "a,b\n1,2\n3,1_000\n",
    "point.csv": "a;b\n1.5;2,5\n2;3\n",
    "comma.csv": "a;b\n1.234,5;2,5\n2,5;3,5\n",
    "words.csv": "a;b\nx;y\n",
    "header.csv": "a,b\n",
    "one.csv": "a,b\n1,2\n",
    "constant.csv": "a,b\n1,2\n1,3\n",
    "quote.csv": 'a,b\n1,"2\n3",4\n',
    "good.csv": "temp,hum\n1,2\n3,4\n",
    "twice.csv": "a,a\n1,2\n3,4\n",
    "other/long.csv": "1\n2\n3\n",
    "other/short.csv": "1\n2\n",
    "text.png": "hello, world",
    "text.mp4": "a shopping list\n" * 50,
    "text.nii": "text",
    "text.dat": "what",
    "text.bin": "1 2 3",
    "playlist.mp4": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n",
    "empty.csv": "",
}


def save_pictures() -> None:
    sizes = {"a": (9, 8, 3), "sizes/a": (9, 8, 3), "sizes/b": (6, 12, 3), "line": (1, 9), "grey": (9, 9), "mixed/a": (9, 8)}
    for name, shape in sizes.items():
        Image.fromarray(noise("u1", *shape)).save(f"{name}.png")
    first, second = Image.fromarray(noise("u1", 5, 7, 3)), Image.fromarray(noise("u1", 5, 7, 3) // 2)
    for name in ("two.gif", "two.png", "two.tif"):
        first.save(name, save_all=True, append_images=[second])
    tifffile.imwrite("flat.tif", np.full((6, 8), 5, "f4"))
    tifffile.imwrite("nan.tif", np.full((2, 2), np.nan, "f4"))
    clear = np.linspace(-1, 4, 192, dtype="f4").reshape(6, 8, 4)
    tifffile.imwrite("alpha.tif", clear, photometric="rgb", extrasamples=["unassalpha"])
    tifffile.imwrite("int32.tif", np.arange(35, dtype="i4").reshape(5, 7))
    tifffile.imwrite("rgb32.tif", np.ones((5, 7, 3), "u4"), photometric="rgb")
    tifffile.imwrite("extra.tif", noise("u2", 5, 7, 4), photometric="rgb", extrasamples=["unspecified"])
    tifffile.imwrite("cmyk.tif", noise("u2", 5, 7, 4), photometric="separated")


def save_clips() -> None:
    write_video("a.mp4", pictures())
    write_video("turned.mp4", pictures())
    set_display_matrix(Path("turned.mp4"), (1, 1, -1, 1))
    write_video("small.mp4", pictures(10, 32, 24))
    write_video("fast.mp4", pictures(), rate=30)
    write_video("single.mp4", pictures(1))
    write_audio(Path("sound.mp4"))
    for folder, names in {"clip": "abcd", "lone": "a", "uneven": "ab"}.items():
        for name, frame in zip(names, pictures(), strict=False):
            Image.fromarray(frame).save(f"{folder}/{name}.png")
    Image.fromarray(pictures(1, height=12)[0]).save("uneven/small.png")
    (Path("broken") / "1.png").write_bytes(Path("clip/a.png").read_bytes())
    (Path("broken") / "2.png").write_text("not a picture")


def save_volumes() -> None:
    nibabel = pytest.importorskip("nibabel")
    tifffile.imwrite("flat_stack.tif", np.full((5, 6, 7), 3, "f4"))
    tifffile.imwrite("rgba_stack.tif", np.zeros((5, 6, 7, 4), "u1"), photometric="rgb")
    tifffile.imwrite("picture.tif", np.zeros((6, 7), "u1"))
    tifffile.imwrite("five_axes.tif", np.zeros((2, 3, 5, 6, 7), "u1"))
    tifffile.imwrite("wide_stack.tif", noise("u1", 5, 60, 70))
    tifffile.imwrite("u1.tif", np.zeros((5, 6, 7), "u1"))
    tifffile.imwrite("u2.tif", np.zeros((5, 6, 7), "u2"))
    nibabel.Nifti1Image(np.zeros((7, 6, 5, 9), "f4"), np.eye(4)).to_filename("nine.nii")


def save_arrays() -> None:
    shapes = {"row": (9,), "rows": (16, 900), "first": (3, 32, 24), "flat/a": (6, 7), "flat/b": (6, 8), "kinds/a": (6, 7)}
    for name, shape in {**shapes, "five": (4, 5, 6, 7, 8), "none": (), "column": (9, 1)}.items():
        np.save(f"{name}.npy", np.zeros(shape, "u1"))
    np.save("kinds/b.npy", np.zeros((6, 7), "u2"))
    np.save("long.npy", np.zeros(12, "u1"))
    np.save("wide.npy", np.array([-1.0, 3, 1]))
    np.save("int32.npy", np.array([3, 9], "i4"))
    np.save("constant.npy", np.full(4, 5.0))
    np.save("missing.npy", np.full((6, 7), np.nan))
    np.savez("two.npz", ct=np.arange(9, dtype="u1"), mask=np.ones((9, 5), bool))
    np.savez("none.npz")
    with h5py.File("two.h5", "w") as file:
        file["volumes/ct"], file["mask"] = np.arange(9), np.ones((9, 5), bool)


def save_sounds() -> None:
    for name, rate, count, subtype in (
        ("a", 8000, 50, "PCM_16"), ("lengths/a", 8000, 50, "PCM_16"), ("lengths/b", 8000, 60, "PCM_16"),
        ("rates/a", 8000, 50, "PCM_16"), ("rates/b", 4000, 50, "PCM_16"), ("depths/a", 8000, 50, "PCM_16"),
        ("depths/b", 8000, 50, "PCM_U8"), ("one", 8000, 1, "PCM_16"), ("slow", 100, 1000, "PCM_16"),
    ):  # fmt: skip
        soundfile.write(f"{name}.wav", np.zeros(count), rate, subtype)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        for name in (
            *("sizes", "mixed", "clip", "lone", "uneven", "broken", "empty", "flat", "kinds", "lengths", "rates", "depths"),
            "other",
        ):
            Path(name).mkdir()
        for name, text in TEXTS.items():
            Path(name).write_text(text)
        Path("latin.csv").write_bytes(b"a\x81,b\n1,2\n")
        Path("zero.csv").write_bytes(b"a\x00,b\n1,2\n")
        for save in (save_pictures, save_clips, save_volumes, save_arrays, save_sounds):
            save()
        Path("mixed/a.wav").write_bytes(Path("a.wav").read_bytes())
        yield path


@pytest.mark.parametrize("cls", [ImageSource, RowSource, VideoSource])
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"paths": []}, "paths must be one or more files"),
        ({"paths": [3]}, "got [3]"),
        ({"center_crop": 1}, "center_crop must be an integer >= 2"),
        ({"center_crop": [4, 4, 4, 4]}, "center_crop must be an integer >= 2, or [height, width]"),
        ({"resize": 2.5}, "got 2.5"),
        ({"color": "gray"}, "color must be one of auto, rgb, grey; got 'gray'"),
        ({"max_pixels": 0}, "max_pixels must be an integer >= 1"),
        ({"value_range": [1, 0]}, "value_range must be [low, high]"),
        ({"value_range": [0, float("nan")]}, "two finite numbers"),
    ],
)
def test_arguments_before_any_file_is_read(cls, arguments, part):
    refused(lambda: cls(**{"paths": "not there.npy", **arguments}), part)


PICTURES = [
    ("text.png", {}, ["cannot read 'text.png'"]),
    ("line.png", {}, ["is 1x9", "at least 2 samples on each axis"]),
    *((f"two.{suffix}", {}, ["holds 2 pictures, not one"]) for suffix in ("gif", "png", "tif")),
    ("int32.tif", {}, ["int32 values"]),
    ("rgb32.tif", {}, ["uint32 values"]),
    ("extra.tif", {}, ["1 extra channel(s)"]),
    ("cmyk.tif", {}, ["save it as grey, RGB"]),
    ("a.png", {"center_crop": 10}, ["center_crop 10x10 is larger than", "a.png", "9x8 samples (height x width)"]),
    ("a.png", {"max_pixels": 71}, ["claims 9x8", "set max_pixels: 72"]),
    ("a.png", {"alpha": "drop"}, ["alpha must be composite or keep; got 'drop'"]),
    ("a.png", {"key": "x"}, ["key is for array files"]),
    ("a.png", {"value_range": [0, 1]}, ["value_range is not for images of integers such as"]),
    ("sizes", {}, ["2 different sizes", "9x8: ", "6x12: ", "a.png", "b.png", "[6, 8]", "center_crop", "resize"]),
    ("flat.tif", {}, ["flat.tif", "the single value 5.0; set value_range"]),
    ("nan.tif", {}, ["all samples are missing"]),
    ("alpha.tif", {}, ["is transparent and holds floating-point values outside [0, 1]"]),
    ("five.npy", {}, ["shape (4, 5, 6, 7, 8)", "(N1, N2) or (signals, N1, N2) or (N1, N2, channels)"]),
    ("flat", {}, ["no image in the folder 'flat'"]),
    (["flat/a.npy", "flat/b.npy"], {}, ["2 different shapes", "6x7x1: ", "a.npy", "6x8x1: ", "b.npy"]),
    (["kinds/a.npy", "kinds/b.npy"], {}, ["2 different dtypes", "uint8: ", "uint16: "]),
]
CLIPS = [
    *((name, {}, [name]) for name in ("text.mp4", "playlist.mp4", "empty.csv")),  # nothing reaches the network
    ("sound.mp4", {}, ["has no video stream that can be decoded"]),
    ("single.mp4", {}, ["has 1 frame(s)"]),
    ("turned.mp4", {}, ["only multiples of 90"]),
    ("uneven", {}, ["2 different sizes", "24x32: a.png", "12x32: small.png"]),
    ("lone", {}, ["holds 1 picture(s)", "ImageDataModule"]),
    ("clip", {"max_pixels": 767}, ["max_pixels: 768"]),
    ("broken", {}, ["cannot read", "2.png"]),
    ("empty", {}, ["of type none"]),
    ("c.mp4", {}, ["no such file or folder"]),
    ("a.png", {}, ["is one picture; give the folder"]),
    (["a.mp4", "u1.tif"], {}, ["several kinds", "u1.tif"]),
    ("a.mp4", {"value_range": [0, 1]}, ["leave it out"]),
    ("u1.tif", {"key": "x"}, ["key 'x' chooses"]),
    *(("clip", {"frames": f}, ["frame"]) for f in ([0, 5], [-5, None], [3, 4], [3, 2], [0, 4, 0], [3], [0.0, 3], [True, 3])),
    ("clip", {"center_crop": [13, 8, 8]}, ["4x24x32", "set a smaller center_crop"]),
    ("a.mp4", {"preset": "papers"}, ["needs 128 frames, and", "gives 12"]),
    ("a.mp4", {"preset": "papers", "resize": 256}, ["preset papers sets resize and center_crop"]),
    ("a.mp4", {"preset": "paper"}, ["preset must be papers; got 'paper'; did you mean 'papers'"]),
    *(("a.mp4", {"fps": fps}, ["fps"]) for fps in (0, float("inf"), True, "25")),
    ("rgba_stack.tif", {"color": "grey"}, ["[4] channels cannot be converted"]),
    (["a.mp4", "small.mp4"], {}, ["12x24x32: a.mp4; 10x32x24: ", "(the largest that all of them have is [10, 24, 24])"]),
    (["a.mp4", "fast.mp4"], {}, ["2 different numbers of frames per second", "25.0: ", "30.0: ", "Set fps"]),
    ("flat_stack.tif", {}, ["the single value 3.0"]),
    ("picture.tif", {}, ["axes YX of sizes (6, 7)", "ImageDataModule"]),
    ("five_axes.tif", {}, ["A TIFF stack is"]),
    ("wide_stack.tif", {"max_pixels": 4199}, ["60x70", "set max_pixels: 4200"]),
    (["u1.tif", "u2.tif"], {}, ["2 different dtypes", "uint16: ", "u1.tif", "u2.tif"]),
    ("nine.nii", {}, ["shape (7, 6, 5, 9)"]),
    ("text.nii", {}, ["truncated, damaged"]),
]
ROWS = [
    ("gap.csv", {}, ["line 3: 0 cell(s), but line 1 has 2", "','"]),
    ("word.csv", {}, ["column 'b'", "line 3: 'x4' is not a number", "leave the cell empty"]),
    ("underscore.csv", {}, ["'1_000' is not a number"]),
    ("point.csv", {}, ["line 2: '2,5' is not a number (the decimal mark is taken to be a point"]),
    ("comma.csv", {}, ["line 2: '1.234,5' is not a number", "taken to be a comma"]),
    ("words.csv", {}, ["no column of numbers"]),
    ("header.csv", {"select": ["a"]}, ["must be distinct and hold numbers"]),
    ("empty.csv", {}, ["is empty"]),
    ("one.csv", {}, ["has 1 sample(s); a signal needs at least 2"]),
    ("constant.csv", {}, ["column 'a'", "the single value 1.0"]),
    ("quote.csv", {}, ["quotes must be closed"]),
    ("good.csv", {"select": ["tmp"]}, ["no column of", "'tmp'; did you mean 'temp'?", "Columns: temp, hum"]),
    ("good.csv", {"select": [0, "temp"]}, ["must be distinct"]),
    ("twice.csv", {"select": ["a"]}, ["2 columns of", "give a name or an index"]),
    ("latin.csv", {}, ["UnicodeDecodeError", "position 1"]),
    ("zero.csv", {}, ["zero bytes"]),
    ("other", {}, ["2 different lengths", "Set length: 2"]),
    ("good.csv", {"select": []}, ["select must be a list of names or indices"]),
    ("good.csv", {"select": [-1]}, ["got [-1]"]),
    ("none.npy", {}, ["shape ()"]),
    ("column.npy", {"channels": "none"}, ["at least 2 samples"]),
    ("five.npy", {"channels": "last"}, ["are (N1, channels) or (signals, N1, channels)"]),
    (["row.npy", "long.npy"], {}, ["2 different lengths", "9: ", "12: ", "Set length: 9"]),
    ("row.npy", {"length": 10}, ["set length: 9"]),
    ("wide.npy", {"value_range": [0, 2]}, ["values from -1.0 to 3.0, outside of value_range [0.0, 2.0]"]),
    ("int32.npy", {}, ["as int32", "set value_range: [3, 9]"]),
    ("constant.npy", {}, ["the single value 5.0; set value_range"]),
    ("missing.npy", {}, ["all samples are missing"]),
    ("two.npz", {}, ["choose one array by key. It holds: ct, mask"]),
    ("two.npz", {"key": "mak"}, ["no array 'mak'; did you mean 'mask'?"]),
    ("two.h5", {"key": "volumes"}, ["no array 'volumes'", "volumes/ct"]),
    ("none.npz", {}, ["holds 0 arrays"]),
    ("row.npy", {"key": "x"}, ["leave key out"]),
    ("slow.wav", {"seconds": [9, 11]}, ["exceeds", "lasts 10 s"]),
    ("slow.wav", {"seconds": [1, 1.01]}, ["1 sample(s)"]),
    ("slow.wav", {"length": 1001}, ["length 1001 is more than the 1000 samples"]),
    *(("a.wav", {"seconds": s}, ["seconds must be"]) for s in ([2, 1], [-1, 2], [1], "1,2", [0, float("inf")], [0, True])),
    ("lengths", {}, ["2 different lengths", "50: ", "60: ", "Set length: 50"]),
    ("rates", {}, ["2 different formats", "8000 Hz", "4000 Hz"]),
    ("depths", {}, ["2 different formats", "int16: ", "uint8: ", "b.wav"]),
    ("one.wav", {}, ["1 sample(s); a signal needs at least 2"]),
    ("grey.png", {}, ["has 9 rows, fewer than rows or num_rows"]),
    ("grey.png", {"rows": [9]}, ["has 9 rows"]),
    ("grey.png", {"rows": [-1]}, ["rows must be a list of distinct integers >= 0; got [-1]"]),
    ("grey.png", {"num_rows": -1}, ["num_rows must be an integer >= 0; got -1"]),
    ("grey.png", {"num_rows": 0, "num_columns": 0}, ["no row and no column is requested"]),
    ("grey.png", {"rows": [1], "num_rows": 2}, ["rows and num_rows exclude each other"]),
    ("grey.png", {"num_rows": 2, "seed": -1}, ["seed must be an integer >= 0; got -1"]),
    ("grey.png", {"rows": [1], "length": 10}, ["length 10 is more than the 9 samples", "set length: 9"]),
    ("grey.png", {"rows": [1], "length": 0}, ["length must be an integer >= 2; got 0"]),
    ("grey.png", {"channels": "first"}, ["channels must be one of auto, last, none"]),
    ("a.png", {"rows": [1], "columns": [2]}, ["2 different lengths", "8: ", "(rows)", "9: ", "(columns)"]),
    ("text.dat", {}, ["are read from files of one kind", "None: ", "text.dat"]),
    (["row.npy", "a.png"], {}, ["arrays: ", "images: ", "one kind"]),
    *(
        (name, {option: value}, [f"{option} is not for {kind}"])
        for option, value, meant in (
            ("num_columns", 3, "images"), ("select", ["x"], "tables"), ("key", "x", "arrays"), ("seconds", [0, 1], "sound"),
        )
        for name, kind in (("a.png", "images"), ("row.npy", "arrays"), ("a.wav", "sound"), ("good.csv", "tables"))
        if kind != meant
    ),
]  # fmt: skip
CASES = [(cls, *case) for cls, cases in ((ImageSource, PICTURES), (VideoSource, CLIPS), (RowSource, ROWS)) for case in cases]


@pytest.mark.parametrize(("cls", "paths", "arguments", "parts"), CASES, ids=lambda value: str(value)[:30])
def test_files_and_arguments(folder, cls, paths, arguments, parts):
    refused(lambda: list(cls(paths, **arguments).read().blocks()), *parts)


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: make_datamodule("rows.npy"), ["(16, 900), which may be one picture of 16x900 samples or 16 rows of 900"]),
        (lambda: make_datamodule("rows.npy"), ["use one of ImageDataModule"]),
        (lambda: kind_of("first.npy"), ["channels seem to come first", "numpy.moveaxis(array, 0, -1)"]),
        (lambda: kind_of("mixed"), ["images (", ") and rows (", "give files of one kind"]),
        (lambda: kind_of("gone.npy"), ["no such file or folder: 'gone.npy'"]),
        (lambda: kind_of("text.bin"), ["no file of a known kind", ".csv", ".npy"]),
        (lambda: TensorSource([[0.5]]), ["got list"]),
        (lambda: TensorSource(np.zeros((16, 900))), ["which may be one picture", "16 rows", "values[None, ..., None]"]),
        (lambda: TensorSource(np.zeros(())), ["at least 2 samples"]),
        (lambda: TensorSource(np.zeros((1, 1, 1))), ["at least 2 samples"]),
        (lambda: TensorSource(np.zeros((1, 4, 1), int)), ["dtype int64", "value_range=(low, high)"]),
        (lambda: TensorSource(np.full((1, 4, 1), 9), value_range=(0, 5)), ["from 9 to 9", "set a wider value_range"]),
        (lambda: TensorSource(np.zeros((1, 4, 1)), missing=np.ones(3, bool)), ["'missing' has 3 samples", "signals have 4"]),
        (lambda: TensorSource(np.zeros((1, 4, 1)), missing="alpha"), ["alpha is for pictures", "a number, or a mask"]),
        (lambda: TensorSource(np.zeros((1, 4, 1), complex)), ["dtype complex128"]),
        (
            lambda: TensorSource(np.full((1, 3, 1), 1.5)),
            ["from 1.5 to 1.5", "value_range=(low, high)", "write NaN"],
        ),
        *(
            (lambda names=names: TensorSource(np.zeros((2, 4, 1)), names), ["name"])
            for names in (["a"], "ab", ["a", ""], ["a", "b/c"], ["a", "A"])
        ),
    ],
)
def test_kinds_and_tensors(folder, call, parts):
    refused(call, *parts)
