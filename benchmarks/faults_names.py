"""Names of files for every verb: bytes that are not UTF-8, escape sequences, line ends, markup, YAML."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from attempts import Row, Size, command, folder, forked, in_order, waves, words

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
"""Variables of a locale in which Python decodes names as ASCII."""


def names(_: Size) -> Iterator[Row]:
    """Commands succeed, or end with one paragraph, with no control character but the line feed on either stream."""
    row = Row("names of files, every verb")
    for name in NAMES:
        with folder():
            waves(12, 16).save("plain.png")
            os.rename("plain.png", name + b".png")
            for arguments in commands(os.fsdecode(name)):

                def work(arguments: list[str] = arguments) -> int:
                    os.dup2(2, 1)
                    return command(arguments)

                status, shown = forked(work, limit=60)
                controls = sorted({char for char in shown if not char.isprintable() and char != "\n"})
                held = in_order(status, shown) and not controls
                row.add(held, f"{ascii(arguments)[:110]}: status {status}, controls {controls}, {shown[-160:]!a}")
    yield row


def names_in_c(_: Size) -> Iterator[Row]:
    """The same in the locale C, by a program of its own."""
    row, program = (
        Row("the same in the locale C"),
        [sys.executable, str(Path(__file__).with_name("faults.py")), "--only", "names"],
    )
    done = subprocess.run(program, env={**os.environ, **LOCALE_C}, capture_output=True, text=True, check=False)
    (counts,) = re.findall(r"^\| names of files, every verb \| ([\d,]+) \| ([\d,]+) \|", done.stdout, re.MULTILINE)
    tried, held = (int(number.replace(",", "")) for number in counts)
    row.tried, row.failures = tried, [done.stdout] * (tried - held)
    yield row


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
