"""Names of files of any bytes, in any locale; users without a home directory; what launchers leave in the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import yaml
from commands import NO_WANDB, error_of, metrics
from PIL import Image

from pe_lightning.__main__ import main
from pe_lightning.errors import InputError, console
from pe_lightning.estimators.linear import LinearRidge
from pe_lightning.results.config_files import as_yaml, with_any_names
from pe_lightning.results.runs import slug
from pe_lightning.signals.cache import Storage, open_signals
from pe_lightning.signals.files import in_utf8, real_path, user_path
from pe_lightning.signals.sources.arrays import check_hdf5
from pe_lightning.signals.sources.kinds import source_of
from pe_lightning.training import TensorDataModule

EXACT = ["--config", "image/closed_form", "--encoder", "tri", "--trainer.accelerator", "cpu", *NO_WANDB]
BYTES = b"\xfc \xf0\x9f\x98\x80 [bold]\x1b[31m\r\n'.png"
"""A name that is not UTF-8, with an emoji, markup, an escape sequence, line ends and a quote."""

pytestmark = pytest.mark.usefixtures("empty_folder")


def picture(name: bytes | str = "a.png", size: tuple[int, int] = (20, 24)) -> str:
    y, x = np.mgrid[: size[0], : size[1]] / size[0]
    Image.fromarray(np.uint8(127 + 120 * np.sin(9 * x + 5 * y * y))).save("plain.png")
    os.rename("plain.png", name)
    return os.fsdecode(name)


def test_paths_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert user_path("~/a.png") == Path("/home/me/a.png")
    with pytest.raises(InputError, match=r"no home directory is known for '~nobody-here/a.png': type the path in full"):
        user_path("~nobody-here/a.png")
    Path("loop").symlink_to("loop")
    assert real_path("loop") == Path.cwd() / "loop"
    assert in_utf8("\udcc3\udcbc\udcff") == "ü\N{REPLACEMENT CHARACTER}".encode()
    assert slug("\udcc3\udcbc\udcff a") == "ü-a"


@pytest.mark.parametrize("arguments", ["fit ~nobody-here/a.png", "predict --ckpt_path ~nobody-here/a.ckpt"])
def test_a_home_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    assert "no home directory is known for" in error_of(capsys, arguments.split())


def test_links_in_a_circle_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("loop.png").symlink_to("loop.png")
    assert "'loop.png' is neither a file nor a folder" in error_of(capsys, ["fit", "loop.png"])
    assert "there is no run to compare" in error_of(capsys, ["compare", "loop.png"])


def test_without_a_home_directory_signals_are_not_cached(monkeypatch, capsys, caplog) -> None:
    def no_home(*_: object, **__: object) -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("PE_LIGHTNING_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", no_home)
    assert "set HOME, or PE_LIGHTNING_CACHE to a folder" in error_of(capsys, ["cache", "list"])
    assert open_signals(source_of(picture()), Storage()).shape == (1, 20, 24, 1)
    assert "The decoded signals are not cached: no home directory is known" in caplog.text


@pytest.mark.parametrize(
    "name", ["\udcff", "ü 😀 \x1b[31m\x7f\x85\u2028", "[bold]", "{a: b}", "- x", "# x", "null", '"', "'", "\\"]
)
def test_names_pass_yaml(name: str) -> None:
    for load in (with_any_names(yaml.safe_load), with_any_names(lambda text: yaml.load(text, yaml.CSafeLoader))):
        for text in (as_yaml([name]), yaml.safe_dump([name]), yaml.safe_dump([name], allow_unicode=True)):
            assert load(text) == [name]


@pytest.mark.slow  # three commands
def test_a_fit_of_a_name_of_any_bytes_is_repeated_from_its_configuration(capfd: pytest.CaptureFixture[str]) -> None:
    name = picture(BYTES)
    assert main(["fit", name, *EXACT]) == 0
    (run,) = Path("runs").glob("*/1")
    assert metrics(run)["signals"] == [name.removesuffix(".png")]
    assert main(["fit", "--config", str(run / "config.yaml")]) == 0
    assert main(["predict", "--ckpt_path", str(run / "checkpoints/last.ckpt")]) == 0
    shown = "".join(capfd.readouterr())
    assert "[bold]" in shown
    assert [char for char in shown if not char.isprintable() and char != "\n"] == []


@pytest.mark.slow
def test_names_in_the_locale_c() -> None:
    """A fit of ``ü.png`` without UTF-8 finds the file, and names the same files as elsewhere.

    A trained fit imports no more of other packages than their baselines, which say whether they apply.
    """
    picture("ü.png")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = "runs/ü-ComplexLinear-tri/1"
    model = "{class_path: pe_lightning.ComplexLinear, init_args: {encoder: tri}}"
    data = "{class_path: pe_lightning.training.ImageDataModule, init_args: {paths: ü.png}}"
    trainer = "{max_steps: 3, accelerator: cpu}"
    written = f"model: {model}\ndata: {data}\ntrainer: {trainer}\nwandb: {{enabled: false}}\n"
    Path("ä.yaml").write_text(written, encoding="utf-8")
    program = "import sys; from pe_lightning.__main__ import main\n"
    program += "for words in sys.argv[1:]:\n"
    program += "    assert main(['fit', *words.split()]) == 0\n"
    program += "    others = {name for name in sys.modules if name.partition('.')[0] in ('pe_fill', 'pe_papers')}\n"
    program += "    assert words != sys.argv[1] or others <= {'pe_fill', 'pe_fill.baselines'}, others"
    commands = ["--config ä.yaml", f"ü.png {' '.join(EXACT)}", f"--config {run}/config.yaml"]
    command = [sys.executable, "-c", program, *commands]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stderr
    assert Path(run, "reconstructions/ü_comparison.png").is_file()
    assert main(["fit", "--config", f"{run}/config.yaml"]) == 0


def test_tables_hold_no_control_characters_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("[bold]a\x1b[31m\x07:smile:")
    assert capsys.readouterr().out == "[bold]a\N{REPLACEMENT CHARACTER}[31m:smile:\n"


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS"])
def test_a_variable_of_a_launcher_that_is_no_number(monkeypatch, capsys, name: str) -> None:
    monkeypatch.setenv(name, "x")
    assert f"the environment has {name}='x', which is no number: type unset {name}" in error_of(capsys, ["cache", "list"])


def test_a_number_of_tasks_without_srun(monkeypatch, capsys) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert "type unset SLURM_NTASKS for a fit by this process" in error_of(capsys, ["fit", picture(), *EXACT])


def test_weights_that_exceed_the_memory_are_refused_before_a_width_is_chosen(monkeypatch) -> None:
    data = TensorDataModule(torch.rand(1, 9, 9, 1))
    monkeypatch.setattr(LinearRidge, "_choose", lambda *_: pytest.fail("chosen"))
    encoder = {"name": "gau", "num_features": 10**6, "sigma": "auto"}
    with pytest.raises(InputError, match=r"1000000x1000000 features take 4.0 TB for their weights"):
        LinearRidge(encoder).fit(data.signals)


def test_groups_of_many_levels_are_refused() -> None:
    with h5py.File("deep.h5", "w") as file:
        file["/".join(100 * "g")] = np.ones(3)
    check_hdf5(Path("deep.h5"), "deep.h5")
    with h5py.File("deep.h5", "a") as file:
        file.move("g", "h/g")
    with pytest.raises(InputError, match=r"'deep.h5' has more than 100 levels of groups"):
        check_hdf5(Path("deep.h5"), "deep.h5")
    with pytest.raises(InputError, match=r"'deep.h5' has more than 100 levels of groups"):
        source_of("deep.h5")
