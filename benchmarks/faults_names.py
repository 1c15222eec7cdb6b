"""Attempts of ``faults.py`` with names of files: bytes that are not UTF-8, escape sequences, line ends, markup, YAML.

Every verb gets every name, in the locale of this process and in the locale C, in which Python decodes names as ASCII.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from attempts import Row, command, folder, forked, in_order, words
from PIL import Image

# fmt: off
NAMES = [
    b"a", b"\xfc", b"\xff\xfe\x80", "ü".encode(), "😀".encode(), "e\u0301\u202e".encode(), b"\x1b[31mred",
    b"\x1b]0;title\x07", b"a\nb", b"a\nb: c", b"a\rb", b"\x7f\x08\t", "\x85\x9b\u2028".encode(), b" a b ",
    b"'", b'"', b"`$HOME`;", b"-x", b"--out", b"-1", b"[bold]x", b"[x", b":smile:", b"[a]", b"{a: b}", b"# a", b"a: b",
    b"- a", b"&a *b", b"!!a", b"null", b"~", b"~nobody", b"a,b", b"a=b", b"%s", b"*?", b"\\", b"\\udcfc", b"x" * 230,
    "ü".encode() * 115, b"samples:",
]
# fmt: on
"""Stems of names, as bytes."""
EXACT = words("exact")
LOCALE_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def write(name: bytes) -> None:
    """Writes a picture of 12 x 16 pixels."""
    y, x = np.mgrid[:12, :16] / 12
    Image.fromarray(np.uint8(127 + 120 * np.sin(9 * x + 5 * y * y))).save("plain.png")
    os.rename("plain.png", name)


def commands(stem: str) -> Iterator[list[str]]:
    """A command of every verb with files of this name; a later one takes what an earlier one has made."""
    name = f"{stem}.png"
    yield ["fit", name, *EXACT]
    runs = sorted(Path("runs").glob("*/1"))
    for run in map(str, runs):
        yield ["fit", "--config", f"{run}/config.yaml"]
        yield ["predict", "--ckpt_path", f"{run}/checkpoints/last.ckpt", "--trainer.accelerator", "cpu"]
        yield ["export", run, "--out", f"{stem}.safetensors"]
        yield ["test", "--ckpt_path", f"{run}/checkpoints/last.ckpt", "--trainer.accelerator", "cpu"]
    yield ["fill", name, "--upscale", "2", "--folds", "none", "--out", f"{stem}-2.png"]
    yield ["suggest", name, "--encoders", "tri", "--out", f"{stem}.yaml"]
    yield ["fit", "--config", f"{stem}.yaml", "--trainer.accelerator", "cpu", "--wandb.enabled", "false"]
    yield ["sweep", name, *EXACT, "--vary", "seed_everything=0,1", "--out", f"{stem}-s"]
    yield ["compare", f"{stem}-s", "--out", f"{stem}-r"]
    yield ["cache", "list", "--cache_dir", f"{stem}-c"]
    for verb in ("fit", "fill", "suggest", "compare", "export", stem):
        yield [verb, f"{stem}-missing"]


def attempts(row: Row) -> Row:
    """Held: success, or one paragraph with status 2, and no control character but the line feed, on both streams."""
    for name in NAMES:
        with folder():
            write(name + b".png")
            for arguments in commands(os.fsdecode(name)):

                def work(arguments: list[str] = arguments) -> int:
                    os.dup2(2, 1)
                    return command(arguments)

                status, shown = forked(work, limit=60)
                controls = sorted({char for char in shown if not char.isprintable() and char != "\n"})
                held = in_order(status, shown) and not controls
                row.add(held, f"{ascii(arguments)[:110]}: status {status}, controls {controls}, {shown[-160:]!a}")
    return row


def rows(kills: int, mutations: int, rng: random.Random) -> Iterator[Row]:
    """The rows of this section."""
    yield attempts(Row("names of files, every verb"))
    row = Row("the same in the locale C")
    script = [sys.executable, __file__]
    done = subprocess.run(script, env={**os.environ, **LOCALE_C}, capture_output=True, text=True, check=True)
    row.tried, row.failures = json.loads(done.stdout.splitlines()[-1])
    yield row


if __name__ == "__main__":
    with folder():  # so that the attempts that are forked from this process do not import
        write(b"a.png")
        forked(partial(command, ["fit", "a.png", *EXACT]))
        import pe_lightning.cli.cli
        import pe_lightning.studies.compare.command
        import pe_lightning.studies.suggest.command
        import pe_lightning.studies.sweep.command  # noqa: F401
    found = attempts(Row("names"))
    print(json.dumps([found.tried, found.failures]))
