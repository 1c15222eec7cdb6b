"""Configurations that name other things than classes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import error_of

from pe_lightning import __version__, load
from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.parser import check_names, parse
from pe_lightning.errors import InputError
from pe_lightning.results.checkpoint_files import VERSION_KEY


class OwnModel:
    def __init__(self, loss: Any = torch.nn.functional.mse_loss, activation: Any = None) -> None: ...


class Derived(OwnModel):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)


NAME = f"{__name__}.Derived"


def test_classes_defaults_and_plain_values_are_allowed() -> None:
    check_names(
        {
            "config": [Path("a.yaml")],
            "model": {"class_path": NAME, "init_args": {"loss": torch.nn.functional.mse_loss, "activation": torch.nn.ReLU}},
            "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.1, "betas": (0.9, 0.99)}},
        }
    )
    with pytest.raises(InputError, match=r"'os\.mkdir' is not a class"):
        check_names([{"class_path": "os.mkdir"}])


PROGRAM = {"class_path": "subprocess.Popen", "init_args": {"args": "touch pwned", "shell": True}}
FILE = {"class_path": "numpy.memmap", "init_args": {"filename": "pwned", "mode": "w+", "shape": [3]}}
DATA = "pe_lightning.signals.SignalDataModule"
TENSOR = "pe_lightning.signals.sources.tensor.TensorSource"


@pytest.mark.parametrize("verb", ["fit", "suggest"])
@pytest.mark.parametrize(
    "section",
    [
        {"data": {"class_path": "pe_lightning.TensorDataModule", "init_args": {"values": PROGRAM}}},
        {"data": {"class_path": "pe_lightning.TensorDataModule", "init_args": {"values": FILE}}},
        {"data": {"class_path": DATA, "init_args": {"source": PROGRAM}}},
        {"data": {"class_path": DATA, "init_args": {"source": {"class_path": TENSOR, "init_args": {"values": PROGRAM}}}}},
        {"data": {"class_path": DATA, "init_args": {"source": {"name": "subprocess.Popen", "args": "touch pwned"}}}},
        {"model": {"class_path": "pe_lightning.ComplexLinear", "init_args": {"encoder": PROGRAM}}},
        {"model": {"class_path": "pe_lightning.ComplexLinear", "init_args": {"encoder": {"name": "gau", "sigma": PROGRAM}}}},
        {"model": {"class_path": "pe_lightning.ComplexLinear", "init_args": {"encoder": "gau", "optimizer": "os.system"}}},
        {"model": {"class_path": "pe_lightning.ComplexLinear.load_from_checkpoint", "init_args": {"checkpoint_path": "a"}}},
        {"trainer": {"strategy": {"class_path": "DDPStrategy", "init_args": {"ddp_comm_state": PROGRAM}}}},
        {"trainer": {"callbacks": [PROGRAM]}},
        {"trainer": {"callbacks": [{"class_path": "LambdaCallback", "init_args": {"on_fit_start": "os.system"}}]}},
        {"trainer": {"callbacks": [{"class_path": "LambdaCallback", "init_args": {"on_fit_start": "torch.relu"}}]}},
    ],
    ids=str,
)
@pytest.mark.usefixtures("empty_folder")
def test_a_configuration_runs_nothing(capsys: pytest.CaptureFixture[str], section: dict[str, Any], verb: str) -> None:
    model = {"class_path": "pe_lightning.ComplexLinear", "init_args": {"encoder": "gau"}}
    data = {"class_path": "pe_lightning.ImageDataModule", "init_args": {"paths": "samples://astronaut", "resize": 16}}
    Path("c.yaml").write_text(json.dumps({"model": model, "data": data, **section}))
    error_of(capsys, [verb, "--config", "c.yaml"])
    assert [path.name for path in Path().iterdir()] == ["c.yaml"]


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("where", ["optimizer", "lr_scheduler", "data", "callbacks", "option", "text", "folder"])
@pytest.mark.slow
def test_no_class_path_imports_a_file_of_the_current_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Wherever it stands: checkpoints, configurations of runs and of users, options."""
    Path("evil.py").write_text("open('pwned', 'w')")
    evil = {"class_path": "evil.Model", "init_args": {}}
    model = {"_class_path": "pe_lightning.SimpleMLP", "encoder": "gau", **({where: evil} if where[-1] == "r" else {})}
    checkpoint = {"state_dict": {}, "hyper_parameters": model, VERSION_KEY: __version__}
    Path("run/checkpoints").mkdir(parents=True)
    torch.save(checkpoint | {"pytorch-lightning_version": "2.6.0"}, "run/checkpoints/last.ckpt")
    data = {"class_path": "pe_lightning.ImageDataModule", "init_args": {"paths": "samples://astronaut", "resize": 16}}
    config = {"data": evil if where == "data" else data, "trainer": {"callbacks": [evil] if where == "callbacks" else []}}
    Path("run/config.yaml").write_text(json.dumps(config))
    test = ["test", "--ckpt_path", "run/checkpoints/last.ckpt"]
    fit = ["fit", "--config", "run/config.yaml", "--model", "SimpleMLP", "--model.encoder", "gau"]
    more = {"option": ["--trainer.callbacks+", "evil.Model"], "folder": ["--model", "evil.Model"]}
    more["text"] = ["--trainer.profiler", "evil.Model"]  # a profiler is also a plain text
    # the folder that python -m puts first, also where the parser works in the folder of a configuration
    monkeypatch.syspath_prepend("" if where != "folder" else str(Path.cwd()))
    for arguments in [test] if where in ("optimizer", "lr_scheduler") else [fit] if where != "data" else [test, fit]:
        error_of(capsys, [*arguments, *more.get(where, [])])
    assert not Path("pwned").exists()


@pytest.mark.usefixtures("empty_folder")
def test_a_class_of_a_folder_that_is_asked_for_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text("from lightning.pytorch import Callback\nclass Mine(Callback): ...")
    Path("sub").mkdir()
    Path("sub/c.yaml").write_text("trainer: {callbacks: [mine.Mine]}")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    words = ["--config=image/demo", "--config=sub/c.yaml"]
    with pytest.raises(InputError, match=r"'mine' is in this folder.*type PYTHONPATH=\."):
        parse("fit", rewrite("fit", words))
    monkeypatch.setenv("PYTHONPATH", ".")
    assert parse("fit", rewrite("fit", words)).trainer.callbacks[0].class_path == "mine.Mine"
    sys.modules.pop("mine")


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize(
    ("key", "name"), [("_class_path", "folder.evil.Model"), ("encoder", "evil.Model"), ("activation", "folder.evil.Model")]
)
def test_a_checkpoint_imports_no_file_of_the_current_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    Path("folder").mkdir()
    for folder in ("", "folder"):
        Path(folder, "evil.py").write_text("open('pwned', 'w')")
    arguments = {"_class_path": "pe_lightning.SimpleMLP", "encoder": "gau"}
    arguments[key] = {"class_path": name, "init_args": {}} if key == "encoder" else name
    checkpoint = {"state_dict": {}, "hyper_parameters": arguments, VERSION_KEY: __version__}
    torch.save(checkpoint | {"pytorch-lightning_version": "2.6.0"}, "a.ckpt")
    monkeypatch.syspath_prepend("")
    assert f"{name.partition('.')[0]!r} is in this folder" in error_of(capsys, ["predict", "--ckpt_path", "a.ckpt"])
    with pytest.raises(InputError, match="type PYTHONPATH="):
        load("a.ckpt")
    assert not Path("pwned").exists()
