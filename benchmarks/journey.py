"""Files of the package that `pe-lightning fit FILE` runs: those with a function that is called, and those that are imported.

    python benchmarks/journey.py                       # a sample picture with the recipe for pictures
    python benchmarks/journey.py my.jpg --encoder gau  # a file and options of fit

Calls while a file is imported do not count. Each line has the number of functions that were called, and the file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

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


if __name__ == "__main__":
    words = sys.argv[1:] or ["samples://astronaut", "--data.resize", "64"]
    with tempfile.TemporaryDirectory() as folder:
        found = called_functions(["fit", *words, "--wandb.enabled", "false", "--trainer.default_root_dir", folder])
    loaded = [module for name, module in sys.modules.items() if name.split(".")[0] == "pe_lightning"]
    for file, functions in sorted(found.items()):
        print(f"{len(functions):5d}  {file.removeprefix(PACKAGE)}")
    print(f"{len(found)} files with functions that are called; {len(loaded)} files imported")
