"""Files of the package that `pe-lightning fit FILE` runs: those with a function that is called, and those that are imported.

    python benchmarks/journey.py                       # a sample picture with the recipe for pictures
    python benchmarks/journey.py my.jpg --encoder gau  # a file and options of fit
    python benchmarks/journey.py fill                  # fill, of a picture of 64 x 64 with three missing lines

Calls while a file is imported do not count. Each line has the number of functions that were called, and the file. The last
lines are the processor seconds of the whole command in a process of its own, and of importing the libraries that it needs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from harness import run, run_python
from PIL import Image

import pe_lightning
from pe_lightning.__main__ import main

PACKAGE = f"{Path(pe_lightning.__file__).parent}{os.sep}"


def called_functions(arguments: list[str]) -> dict[str, set[CodeType]]:
    """The functions that a command calls, by file."""
    called: defaultdict[str, set[CodeType]] = defaultdict(set)

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code not in called[code.co_filename]:
            outer: FrameType | None = frame
            while outer is not None and outer.f_code.co_name != "<module>":
                outer = outer.f_back
            if outer is None or not outer.f_code.co_filename.startswith(PACKAGE):  # not while a file is imported
                called[code.co_filename].add(code)

    sys.setprofile(note)
    try:
        status = main(arguments)
    finally:
        sys.setprofile(None)
    if status:
        raise SystemExit(status)
    return {file: functions for file, functions in called.items() if functions}


def missing_lines(folder: Path) -> list[str]:
    """Arguments of ``fill`` for a smooth picture of 64 x 64 with three missing lines."""
    y, x = np.mgrid[:64, :64] / 64
    planes = [0.5 + 0.4 * np.sin(6 * x + 3 * y), 0.5 + 0.4 * np.cos(5 * x * y + 1), 0.5 + 0.3 * np.sin(9 * y)]
    mask = np.zeros((64, 64), np.uint8)
    mask[[10, 30, 31]] = 255
    Image.fromarray((255 * np.stack(planes, -1)).astype(np.uint8)).save(folder / "picture.png")
    Image.fromarray(mask).save(folder / "mask.png")
    return ["fill", str(folder / "picture.png"), "--missing", str(folder / "mask.png"), "--out", str(folder / "out.png")]


if __name__ == "__main__":
    words = sys.argv[1:] or ["samples://astronaut", "--data.resize", "64"]
    with tempfile.TemporaryDirectory() as folder:
        command = ["fit", *words, "--wandb.enabled", "false", "--trainer.default_root_dir", folder]
        command = [*missing_lines(Path(folder)), "--force"] if words == ["fill"] else command
        found = called_functions(command)
        seconds = run(*command, folder=Path(folder))[2]
    loaded = [module for name, module in sys.modules.items() if name.split(".")[0] == "pe_lightning"]
    for file, functions in sorted(found.items()):
        print(f"{len(functions):5d}  {file.removeprefix(PACKAGE)}")
    print(f"{len(found)} files with functions that are called; {len(loaded)} files imported")
    libraries = run_python(["-c", "import torch, scipy.interpolate, PIL.Image, skimage"], Path())[2]
    print(f"{seconds:.1f} processor seconds; {libraries:.1f} for importing torch, SciPy, Pillow and scikit-image")
