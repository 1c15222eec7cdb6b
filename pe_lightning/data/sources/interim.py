"""Interim sources until the branch of the sources is merged."""

# ruff: noqa
# mypy: ignore-errors
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.sources.arrays import ARRAY_SUFFIXES, direct, read_arrays
from pe_lightning.data.sources.base import Source, sources
from pe_lightning.data.sources.cube_files import cube_files
from pe_lightning.data.sources.cubes import direct as direct_cubes, read_cubes
from pe_lightning.data.sources.decode import MAX_PIXELS, SUFFIXES, check_max_pixels
from pe_lightning.data.sources.depth import scaling_of
from pe_lightning.data.sources.images import Alpha, Color, as_size, check_choice, read_images
from pe_lightning.data.sources.interim_tensor import _check_names, as_values
from pe_lightning.data.sources.rows import ROW_SUFFIXES, direct_rows, read_rows
from pe_lightning.data.sources.sources import as_list, expand
from pe_lightning.errors import InputError


@sources.register("tensor")
class TensorSource(Source):
    def __init__(self, values, names=None):
        self._source = as_values(values)
        dtype = str(values.dtype).removeprefix("torch.")
        self._scaling = Scaling.of_integers(dtype) if dtype in ("uint8", "uint16") else Scaling("float32")
        self._names = _check_names(names, len(self._source))

    def read(self):
        picture = self._source.ndim == 4 and self._source.shape[-1] <= 4
        return RawSignals.in_memory(self._source.numpy(), self._names, self._scaling, "image" if picture else "array")

    def describe(self):
        return {"paths": []}


@sources.register("images")
class ImageSource(Source):
    def __init__(
        self,
        paths,
        center_crop=None,
        resize=None,
        color="auto",
        alpha="composite",
        max_pixels=MAX_PIXELS,
        key=None,
        value_range=None,
    ):
        as_size("center_crop", center_crop)
        as_size("resize", resize)
        check_choice("color", color, Color)
        check_choice("alpha", alpha, Alpha)
        check_max_pixels(max_pixels)
        self.paths = paths
        self.center_crop = center_crop
        self.resize = resize
        self.color = color
        self.alpha = alpha
        self.max_pixels = max_pixels
        self.key = key
        self.value_range = value_range

    def read(self) -> RawSignals:
        if self._are_arrays():
            if self.center_crop is not None or self.resize is not None:
                raise InputError("center_crop and resize are for image files; crop the array itself")
            return read_arrays(self.paths, 2, self.key, self.value_range)
        if self.key is not None or self.value_range is not None:
            raise InputError("key and value_range are for array files (.npy, .npz, .h5); leave them out for images")
        values, names = read_images(self.paths, self.center_crop, self.resize, self.color, self.alpha, self.max_pixels)
        return RawSignals.in_memory(values, names, scaling_of(self.files()), "image")

    def files(self) -> list[Path]:
        if self._are_arrays():
            return [] if direct(self.paths) else [source.path for source in expand(self.paths, ARRAY_SUFFIXES, "array")]
        return [source.path for source in expand(self.paths, SUFFIXES)]

    def _are_arrays(self) -> bool:
        paths = [self.paths] if isinstance(self.paths, (str, PathLike)) else list(self.paths)
        suffixes = {Path(fspath(path)).suffix.lower() for path in paths if isinstance(path, (str, PathLike))}
        return bool(suffixes) and suffixes <= ARRAY_SUFFIXES

    def describe(self) -> dict[str, Any]:
        return {
            "paths": as_list(self.paths),
            "center_crop": self.center_crop,
            "resize": self.resize,
            "color": self.color,
            "alpha": self.alpha,
            "key": self.key,
            "value_range": self.value_range,
        }


@sources.register("rows")
class RowSource(Source):
    def __init__(
        self,
        paths,
        rows=None,
        columns=None,
        num_rows=None,
        num_columns=None,
        seed=0,
        center_crop=None,
        resize=None,
        color="auto",
        max_pixels=MAX_PIXELS,
        select=None,
        key=None,
        channels="auto",
        value_range=None,
        seconds=None,
        length=None,
    ):
        check_choice("color", color, Color)
        check_max_pixels(max_pixels)
        self.paths = paths
        self.max_pixels = max_pixels
        self._arguments = {
            "rows": rows,
            "columns": columns,
            "num_rows": num_rows,
            "num_columns": num_columns,
            "seed": seed,
            "center_crop": center_crop,
            "resize": resize,
            "color": color,
            "select": select,
            "key": key,
            "channels": channels,
            "value_range": value_range,
            "seconds": seconds,
            "length": length,
        }

    def read(self):
        return read_rows(self.paths, max_pixels=self.max_pixels, **self._arguments)

    def files(self):
        if direct_rows(self.paths):
            return []
        return [source.path for source in expand(self.paths, ROW_SUFFIXES, "image, array, sound file or table")]

    def describe(self):
        return {"paths": as_list(self.paths), **self._arguments}


@sources.register("video")
class VideoSource(Source):
    def __init__(
        self,
        paths,
        frames=None,
        center_crop=None,
        resize=None,
        fps=None,
        color="auto",
        preset=None,
        key=None,
        value_range=None,
        max_pixels=MAX_PIXELS,
    ):
        check_choice("color", color, Color)
        check_max_pixels(max_pixels)
        self.paths = paths
        self._arguments = {
            "frames": frames,
            "center_crop": center_crop,
            "resize": resize,
            "fps": fps,
            "color": color,
            "preset": preset,
            "key": key,
            "value_range": value_range,
        }
        self.max_pixels = max_pixels

    def read(self):
        return read_cubes(self.paths, max_pixels=self.max_pixels, **self._arguments)

    def files(self):
        chosen = ("frames", "center_crop", "resize", "color", "preset")
        if direct_cubes(self.paths, **{name: self._arguments[name] for name in chosen}):
            return []
        return list(cube_files(self.paths))

    def describe(self):
        return {"paths": as_list(self.paths), **self._arguments}
