"""What answers without training answers without Lightning."""

import subprocess
import sys

import pytest

from pe_lightning import __version__, encoders
from pe_lightning.__main__ import VERBS, main
from pe_lightning.networks import activations
from pe_lightning.registry import REGISTRIES, find_registry


@pytest.mark.parametrize(
    ("commands", "heavy"),
    [
        (["--help", "--version", "list --help", "encoders --help", "cache --help", "cache list", "compare --help"], "torch"),
        (["encoders", "list activations"], "lightning"),
    ],
    ids=["torch", "lightning"],
)
def test_heavy_libraries_are_not_imported(commands, heavy):
    code = f"""
import sys
from pe_lightning.__main__ import main
for command in {commands!r}:
    assert main(command.split()) == 0
    assert not {{{heavy!r}, "lightning", "wandb"}} & sys.modules.keys(), command
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_help_lists_the_verbs_and_the_version_is_told(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS)
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_encoders_lists_all_of_them_with_their_arguments(capsys):
    assert main(["encoders"]) == 0
    shown = capsys.readouterr().out
    for name in encoders.names():
        assert name in shown
        for argument in encoders.registry.parameters(encoders.registry.get(name)):
            assert argument in shown
    assert "sigma=0.64/K" in shown
    assert "Eq. 54" in shown


def test_list_shows_every_registry_and_the_recipes(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out.split()
    for kind in REGISTRIES:
        assert {kind, f"pe_lightning.{kind}"} <= set(shown)
        assert all({name, f"{name},"} & set(shown) for name in find_registry(kind))
    assert "image/closed_form," in shown
    assert main(["list", "samplings", "recipes"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("Every stride-th sample", "offset", "image/wire", "complex Gabor wavelets"))
    assert main(["list", "sampling"]) == 2
    assert "unknown list 'sampling'; did you mean 'samplings'?" in capsys.readouterr().err


def test_networks_lists_models_and_activations(capsys):
    assert main(["networks"]) == 0
    shown = capsys.readouterr().out
    for name in activations:
        kind = activations.get(name)
        assert f"SimpleMLP --model.activation {name}" in shown
        assert kind.formula in shown
    assert all(
        word in shown
        for word in ("ComplexLinear", "Adaptive", "omega=30", "activation_scale=10", "0.0005", "Sitzmann", "17-18")
    )


def test_help_of_a_verb_lists_the_encoders_and_its_options(capsys):
    assert main(["fit", "--help"]) == 0
    shown = capsys.readouterr().out
    assert ", ".join(encoders.names()[:3]) in " ".join(shown.split())
    for option in ("--model", "--wandb.project", "--trainer.max_steps", "--float32_matmul_precision"):
        assert option in shown
    assert "--output_shape" not in shown
    assert main(["predict", "--help"]) == 0
    assert "--output_shape" in capsys.readouterr().out


def test_an_interrupt_is_one_line_and_130(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pe_lightning.cli.run", interrupted)
    assert main(["fit"]) == 130
    assert capsys.readouterr().err == "pe-lightning: interrupted\n"
