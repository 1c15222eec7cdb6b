"""Every option of ``fill`` for every kind of file: it changes what is written or said, or is refused."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
import xarray
from attempts import REFUSED, Row, Size, command, folder, forked, in_order, restore, table, tree, waves, write_gaps


def options(_: Size) -> Iterator[Row]:
    """A row per kind of file; the plain command, and the same with one more option."""
    for kind, plain in table("filled").items():
        row = Row(f"options of fill, {kind}")
        with folder():
            write_files()
            before = tree()
            expected = outcome(plain)
            for given in table("options").values():
                restore(before)
                status, errors, found = outcome([*plain, *given])
                is_told = status == REFUSED and in_order(status, errors)
                is_read = status == 0 and found != expected[2]
                row.add(is_told or is_read, f"{' '.join(given)}: status {status}, read {is_read}, {errors[-200:]}")
        yield row


def outcome(arguments: list[str]) -> tuple[int, str, tuple[object, str]]:
    """Status, messages, and what is written and said, without times."""

    def work() -> int:
        with Path("said.txt").open("w") as said, contextlib.redirect_stdout(said):
            return command(arguments)

    status, errors = forked(work, limit=200)
    said = re.sub(r"[\d.]+ ?s\b", "", Path("said.txt").read_text()) if Path("said.txt").exists() else ""
    written = {name: content for name, content in tree().items() if name != "said.txt"}
    return status, errors, (written, said)


def write_files() -> None:
    """A picture with a mask, points, a row, a clip without frames, a sound, an array and NetCDF with missing samples."""
    write_gaps()
    Path("d.csv").write_text(Path("a.csv").read_text() + "3,2,9\n")  # two values at one place
    rng, x = np.random.default_rng(0), np.arange(60.0)
    row = [f"{value:.3f}" if n % 9 > 2 else "" for n, value in enumerate(np.sin(x / 5))]
    Path("r.csv").write_text("".join(f"{value}\n" for value in row))
    Path("frames").mkdir()
    for number in (1, 2, 6, 7):
        waves(24, 28, number / 3).save(f"frames/{number}.png")
    soundfile.write("s.wav", np.sin(x * 7), 8000, subtype="FLOAT")
    lost = rng.random((14, 15)) < 0.1
    lost[5:8, 6:9] = True
    values = np.where(lost, np.nan, np.add.outer(np.sin(np.arange(14) / 3), np.arange(15) / 9))
    np.save("v.npy", values)
    xarray.Dataset({"v": (("y", "x"), values)}).to_netcdf("v.nc", engine="h5netcdf")
