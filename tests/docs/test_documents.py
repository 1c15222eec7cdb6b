"""Every command and Python block of README and docs parses, and runs unless a comment beside it says why not.

A block is marked by an HTML comment in the line before its fence:

    <!-- test: run with --data.resize 32 --trainer.max_steps 2 -->     options that make its commands small
    <!-- test: run with boxes = torch.rand(5, 4) -->                   what a Python block takes for granted
    <!-- test: save as own.py -->                                      a Python block that commands of the page import
    <!-- test: parse only: REASON -->                                  it is not run

Commands meet the files of :func:`sandbox`. ``...`` and ``…`` stand for options that were left out; at the start of a line
they stand for the first command of the block. Programs of others, pip among them, are not run here: ``.ci/run`` installs.
"""

import functools
import importlib
import inspect
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from lightning.pytorch import Trainer
from matplotlib import cbook
from PIL import Image

from pe_lightning.__main__ import TRAINER_VERBS, VERB_GROUP, main
from pe_lightning.cli import verbs
from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.parser import parse, prepare
from pe_lightning.results.signal_files import write_signal
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.training.callbacks import WandbSettings
from pe_papers.reproduce import definition

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "datasets/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:^ *<!-- test: (?P<mark>[^\n]*?) -->\n\n?)?^(?P<indent> *)```(?P<language>bash|python)\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
INLINE = re.compile(r"(?<![`\w])`((?:[A-Z_]+=\S+ )?pe-lightning \w+ [^`]+)`")
MARK = re.compile(r"run with (?P<extra>\S.*)|save as (?P<file>\w+\.py)|parse only: (?P<reason>\S.*)")
RECIPES = {"RowDataModule": "row/depth", "VideoDataModule": "video/complex_gau"}
"""Recipes with the data of a table, for commands that change its options."""
OTHERS = {"pip", "pytest", "wandb"}
"""Programs of others: what they do is not ours to test."""
LEFT_OUT = ("...", "…")
QUIET = ["--wandb.enabled=false", "--trainer.enable_progress_bar=false"]

LONG = {
    "docs/points.md",
    "docs/gallery.md",
    *(f"docs/tutorials/{n}.md" for n in ("damaged", "denoise", "photograph", "wandb")),
}
"""Pages whose blocks take many seconds, and run what tests of the same verbs run on smaller data."""


def _pages(marked: bool) -> list[Any]:
    names = [str(path.relative_to(ROOT)) for path in PAGES]
    stress = [pytest.mark.stress]
    return [pytest.param(ROOT / name, id=name, marks=stress if marked and name in LONG else ()) for name in names]


every_page = pytest.mark.parametrize("path", _pages(marked=False))


@dataclass
class Block:
    """A fenced block: where it is, what it holds, and what its mark says."""

    where: str
    language: str
    text: str
    extra: str = ""
    file: str = ""
    reason: str = ""

    def commands(self) -> list[list[str]]:
        """The words of each command, without comments, variables and what stands for options that were left out."""
        lines = re.sub(r" *\\\n *", " ", self.text).splitlines()
        found = [words for line in lines for words in _commands(line)]
        return [[*(found[0] if words[0] in LEFT_OUT else []), *(w for w in words if w not in LEFT_OUT)] for words in found]


def _commands(line: str) -> Iterator[list[str]]:
    words = shlex.split(line, comments=True)
    while words:
        end = words.index("&&") if "&&" in words else len(words)
        command, words = words[:end], words[end + 1 :]
        yield command[next(i for i, word in enumerate(command) if not re.match(r"[A-Z_]+=", word)) :]


def blocks(path: Path) -> list[Block]:
    """The blocks of a page that are tested, and its commands within lines, which are parsed."""
    text, found = path.read_text(), []
    for match in BLOCK.finditer(text):
        where = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.end('indent')) + 1}"
        mark = MARK.fullmatch(match["mark"] or "parse only: no mark")
        assert mark, f"{where}: {match['mark']!r} is none of 'run with ...', 'save as NAME.py', 'parse only: REASON'"
        lines = [line.removeprefix(match["indent"]) for line in match["text"].splitlines()]
        marks = {key: value or "" for key, value in mark.groupdict().items()} if match["mark"] else {}
        found.append(Block(where, match["language"], "\n".join(lines), **marks))
    for match in INLINE.finditer(BLOCK.sub("", text)):
        if any(word in match[1] for word in LEFT_OUT):
            continue
        found.append(Block(f"{path.relative_to(ROOT)}, `{match[1]}`", "bash", match[1], reason="within a line"))
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small signals of every kind and a finished run, under the names that documents use."""
    folder = tmp_path_factory.mktemp("documents")
    for name in ("benchmarks", "configs", "constraints.txt", "datasets", "docs", "pyproject.toml", "tests"):
        (folder / name).symlink_to(ROOT / name)
    y, x = np.mgrid[:24, :24] / 24
    picture = np.stack([0.5 + 0.4 * np.sin(7 * x * (y + k)) for k in range(3)], -1)
    for name in ("my.jpg", "photo.jpg", "scan.png", "photos/a.png", "photos/b.png", "my_photos/a.png", "my_photos/b.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray((picture * 255).astype("uint8")).save(folder / name)
    (folder / "series.csv").write_text("temperature,wind\n" + "".join(f"{k % 7},{k % 5}\n" for k in range(40)))
    for name in ("song.wav", "sound.wav"):
        soundfile.write(folder / name, 0.5 * np.sin(np.arange(400) / 9), 8000)
    cube = np.stack([picture] * 8).astype("float32")
    np.save(folder / "cube.npy", cube)
    write_signal(folder / "clip", cube, SignalInfo(("clip",), cube.shape[:3], 3, media="video"))
    nibabel = importlib.import_module("nibabel")
    nibabel.save(nibabel.Nifti1Image(cube[..., 0], np.eye(4)), folder / "scan.nii.gz")
    for name in ("suggested.yaml", "c.yaml"):
        (folder / name).write_text((ROOT / "configs/image/closed_form.yaml").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", "my.jpg", *QUIET]) == 0
    shutil.copytree(folder / "runs/my-Adaptive-laplace/1", folder / "RUN")
    return folder


@pytest.fixture
def sandbox(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files as working directory, from which modules can be imported."""
    folder, relief = tmp_path / "sandbox", cbook.get_sample_data
    shutil.copytree(files, folder, symlinks=True)

    def coarse(name: str, **options: Any) -> Any:
        found = relief(name, **options)
        return found if options else {key: values[(slice(None, None, 4),) * values.ndim] for key, values in found.items()}

    monkeypatch.setattr(cbook, "get_sample_data", coarse)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


# -- parsed -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # hundreds of commands
@every_page
def test_every_command_and_python_block_parses(path: Path, sandbox: Path) -> None:
    """Commands that run are left to the test that runs them."""
    failures, runs = [], str(path.relative_to(ROOT)) not in LONG
    for block in blocks(path):
        if block.language == "python":
            compile(block.text, block.where, "exec")
            if block.file:
                (sandbox / block.file).write_text(block.text)
            continue
        for words in block.commands():
            if words[0] == "pe-lightning" and not block.reason and runs:
                continue
            try:
                _parse(words, sandbox)
            except (Exception, SystemExit) as error:
                failures.append(f"{block.where}: {shlex.join(words)}\n    {error}")
    if failures:
        pytest.fail("\n".join(["repair these commands, or what they name", *failures]), pytrace=False)


@every_page
def test_options_within_lines_exist(path: Path) -> None:
    known = {"wandb": inspect.signature(WandbSettings).parameters, "trainer": inspect.signature(Trainer).parameters}
    found = re.findall(r"`--(wandb|trainer)\.(\w+)", BLOCK.sub("", path.read_text()))
    assert [f"--{group}.{name}" for group, name in found if name not in known[group]] == []


def _parse(words: list[str], sandbox: Path) -> None:
    program, *arguments = words
    if program == "torchrun":
        program, arguments = "pe-lightning", arguments[arguments.index("-m") + 2 :]
    if program == "python":
        _check_script(*arguments)
    elif program != "pe-lightning":
        assert program in OTHERS, f"add {program!r} to OTHERS of {Path(__file__).name}, or make the block a ```text one"
        for extra in re.findall(r"\[(\w+)\]", " ".join(arguments) if program == "pip" else ""):
            assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE), f"no extra {extra!r}"
    elif arguments[0] not in ("--help", "--version") and "--help" not in arguments:
        _parse_verb(arguments[0], arguments[1:], sandbox)


def _parse_verb(verb: str, arguments: list[str], sandbox: Path) -> None:
    if verb not in TRAINER_VERBS:
        found = entry_points(group=VERB_GROUP, name=verb)
        assert found, f"no verb {verb!r}"
        function = found[verb].load()
        given: list[str] = []

        @functools.wraps(function)
        def parsed(*positional: Any, **options: Any) -> None:
            given.extend(word for word in positional if isinstance(word, str))

        assert verbs.call(verb, parsed, arguments) == 0
        hands_on = any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(function).parameters.values())
        if not given or not hands_on:
            return
        config = "image/demo"
        if verb == "reproduce" and any(word.startswith("--data.") for word in given):
            data = definition.load(arguments[0]).base.get("data")
            config = RECIPES.get(str(data), config)
        verb, arguments = "fit", given[:]  # options of fit, handed on
        if not {"--config", "--model"} & set(arguments):
            arguments = ["--config", config, *arguments]
    if "--ckpt_path" in arguments:
        arguments[arguments.index("--ckpt_path") + 1] = str(sandbox / "RUN/checkpoints/last.ckpt")
    prepare()
    parse(verb, rewrite(verb, [word for word in arguments if word != "--print_config"]))


def _check_script(script: str, *arguments: str) -> None:
    """A script of this repository, and options that its parser knows."""
    path = ROOT / script
    assert path.is_file(), f"no file {script}"
    text, shared = path.read_text(), path.with_name("harness.py")
    text += shared.read_text() if "run_sections" in text else ""
    for option in (word.partition("=")[0] for word in arguments if word.startswith("--") and len(word) > 2):
        assert f'"{option}"' in text, f"{script} has no option {option}"


# -- run --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("default::UserWarning")  # of settings that so small signals leave to a rule
@pytest.mark.parametrize("path", _pages(marked=True))
def test_every_block_without_a_reason_runs(path: Path, sandbox: Path) -> None:
    names: dict[str, Any] = {"__name__": "document", "torch": torch}
    for block in blocks(path):
        if block.reason:
            continue
        try:
            if block.file:
                (sandbox / block.file).write_text(block.text)
                importlib.import_module(block.file.removesuffix(".py"))
            elif block.language == "python":
                exec(block.extra, names)
                exec(compile(block.text, block.where, "exec"), names)
            else:
                for words in block.commands():
                    _run(words, shlex.split(block.extra))
        except (Exception, SystemExit) as error:
            raise AssertionError(
                f"{block.where} does not run: {error}\nRepair it, or say in the line before its fence what it needs, "
                "<!-- test: run with ... -->, or why it is not run, <!-- test: parse only: REASON -->"
            ) from error


def _run(words: list[str], extra: list[str]) -> None:
    program, *arguments = words
    if program == "python":
        subprocess.run([sys.executable, *arguments, *extra], check=True, capture_output=True, text=True)
    elif program == "pe-lightning":
        if arguments[0] == "suggest":
            arguments += ["--force", "--encoders", "gau,tri"]  # a page may suggest more than once
        if arguments[0] in ("fit", "sweep"):
            arguments += extra
        if arguments[0] in ("fit", "sweep", "test", "predict", "validate"):
            arguments += QUIET
        assert main(arguments) == 0, shlex.join(words)
