"""What answers without training answers without Lightning."""

import subprocess
import sys

import pytest

from pe_lightning import __version__, encoders
from pe_lightning.__main__ import VERBS, main


@pytest.mark.parametrize("arguments", [["--help"], ["encoders"], ["--version"], ["encoders", "--help"]])
def test_lightning_is_not_imported(arguments):
    code = f"""
import sys
from pe_lightning.__main__ import main
status = main({arguments!r})
assert status == 0, status
assert not [name for name in sys.modules if name.split(".")[0] in ("lightning", "pytorch_lightning", "wandb")]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_help_lists_the_verbs(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS)


def test_version(capsys):
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


def test_fit_help_lists_the_encoders(capsys):
    with pytest.raises(SystemExit) as finished:
        main(["fit", "--help"])
    assert finished.value.code == 0
    shown = capsys.readouterr().out
    assert ", ".join(encoders.names()[:3]) in " ".join(shown.split())
    assert "--model" in shown
    assert "--wandb.project" in shown


def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "pe_lightning", "fti"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().startswith("pe-lightning: error: unknown verb 'fti'")
    assert len(done.stderr.strip().splitlines()) == 1
