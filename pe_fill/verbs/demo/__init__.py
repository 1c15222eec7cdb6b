"""The verb ``pe-lightning demo``: tasks on signals that are installed with the package, and a page of them."""

from __future__ import annotations

from pathlib import Path

from jsonargparse.typing import restricted_number_type

from pe_lightning.errors import InputError, say

PictureSide = restricted_number_type("PictureSide", int, [(">=", 32), ("<=", 256)])


def demo(folder: Path, /, *, size: PictureSide = 192) -> int:  # type: ignore[valid-type]
    """Shows every use on small signals, in a page, within a minute.

    The folder holds an HTML page, and the files that it was made from. Needs no account and no download: the signals are
    part of scikit-image and matplotlib. The page has a section for each use: the command, the scores beside a common method,
    and the pictures beside the truth.

    Args:
        folder: Folder for index.html, the inputs of the commands and a picture of each use; new, or empty.
        size: Pixels per side, 32 to 256.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{str(folder)!r} exists and is not an empty folder; give the name of a new one")
    from pe_fill.verbs.demo.tasks import write_demo  # imports torch, which --help does not need

    write_demo(folder, size)
    say(f"wrote {folder / 'index.html'}: open it in a browser")
    return 0
