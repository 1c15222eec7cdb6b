"""Files of the packages that a command loads, and those with a function that is called.

    python benchmarks/journey.py                       # three journeys: fit FILE, a trained fit, fill
    python benchmarks/journey.py trained               # one of them, with the files and the number of functions of each
    python benchmarks/journey.py my.jpg --encoder gau  # a file and options of fit

``fit`` is a sample picture with the recipe for pictures, ``trained`` ten steps of ``image/demo``, ``fill`` a picture of 64 x
64 with three missing lines. Calls while a file is imported do not count. Seconds are those of the processor, for the whole
command in a process of its own, and for importing the libraries that it needs.
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
from harness import ROOT, print_row, print_titles, run, run_python
from PIL import Image

from pe_lightning.__main__ import main

PACKAGES = {name: f"{ROOT / name}{os.sep}" for name in ("pe_lightning", "pe_fill", "pe_papers")}
INSIDE = tuple(PACKAGES.values())
QUIET = ["--wandb.enabled", "false", "--trainer.default_root_dir"]
JOURNEYS = {
    "fit": ["fit", "samples://astronaut", "--data.resize", "64", *QUIET],
    "trained": ["fit", "--config", "image/demo", "--data.resize", "64", "--trainer.max_steps", "10", *QUIET],
    "fill": ["fill", "picture.png", "--missing", "mask.png", "--force", "--out"],
}
"""Commands; the last word is a path."""


def called_functions(arguments: list[str]) -> dict[str, set[CodeType]]:
    """The functions that a command calls, by file."""
    called: defaultdict[str, set[CodeType]] = defaultdict(set)

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(INSIDE) and code not in called.get(code.co_filename, ()):
            outer: FrameType | None = frame
            while outer is not None and outer.f_code.co_name != "<module>":
                outer = outer.f_back
            if outer is None or not outer.f_code.co_filename.startswith(INSIDE):  # not while a file is imported
                called[code.co_filename].add(code)

    sys.setprofile(note)
    status = main(arguments)
    sys.setprofile(None)
    if status:
        raise SystemExit(status)
    return called


def write_missing_lines() -> None:
    """Writes a smooth picture of 64 x 64, and a mask of three missing lines."""
    y, x = np.mgrid[:64, :64] / 64
    planes = [0.5 + 0.4 * np.sin(6 * x + 3 * y), 0.5 + 0.4 * np.cos(5 * x * y + 1), 0.5 + 0.3 * np.sin(9 * y)]
    mask = np.zeros((64, 64), np.uint8)
    mask[[10, 30, 31]] = 255
    Image.fromarray((255 * np.stack(planes, -1)).astype(np.uint8)).save("picture.png")
    Image.fromarray(mask).save("mask.png")


def journey(words: list[str]) -> None:
    """Prints the files of a command with their functions, and a row of numbers."""
    words = [os.path.abspath(word) if os.path.exists(word) else word for word in words]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_missing_lines()
        command = [*JOURNEYS.get(words[0], ["fit", *words, *QUIET]), f"{folder}/out.png"]
        found = called_functions(command)
        loaded = {str(getattr(module, "__file__", None)) for module in sys.modules.values()}
        seconds = run(*command, folder=Path(folder))[2]
        os.chdir(ROOT)
    for file, functions in sorted(found.items()):
        print(f"{len(functions):5d}  {os.path.relpath(file, ROOT)}")
    cells = [sum(file.startswith(inside) for file in files) for inside in INSIDE for files in (loaded, found)]
    print_row(" ".join(words), *cells, seconds)


if __name__ == "__main__":
    print_titles("command", *(f"{name}, {what}" for name in PACKAGES for what in ("loaded", "called")), "core s")
    if sys.argv[1:]:
        journey(sys.argv[1:])
    else:
        for name in JOURNEYS:
            print(run_python([__file__, name], Path.cwd())[0].splitlines()[-1], flush=True)
        libraries = run_python(["-c", "import torch, scipy.interpolate, PIL.Image, skimage"], Path.cwd())[2]
        print(f"{libraries:.1f} core seconds for importing torch, SciPy, Pillow and scikit-image")
