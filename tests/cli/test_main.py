"""What answers without training answers without Lightning."""

import importlib.metadata
import io
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from pe_lightning import __version__, encoders
from pe_lightning.__main__ import main
from pe_lightning.cli import recipes
from pe_lightning.estimators.linear import linear_spread
from pe_lightning.networks import activations
from pe_lightning.registry import REGISTRIES, PluginWarning, find_registry


def test_the_command_alone_limits_how_long_its_threads_wait_busily(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pe-lightning", "--version"])
    for given, arguments, expected in (
        ({}, None, "1000"),
        ({}, ["--version"], None),  # in a program of Python
        ({"OMP_WAIT_POLICY": "ACTIVE"}, None, None),
        ({"GOMP_SPINCOUNT": "7"}, None, "7"),
    ):
        monkeypatch.setattr(os, "environ", given)
        assert main(arguments) == 0
        assert given.get("GOMP_SPINCOUNT") == expected


@pytest.mark.usefixtures("alone")
def test_help_lists_the_verbs_and_the_version_is_told(capsys):
    assert main([]) == 0
    table, _, shown = capsys.readouterr().out.partition("\n\n  pe-lightning")
    verbs = dict(re.findall(r"^  (\w+) +(\S.*)", table, re.MULTILINE))
    framework = "fit validate test predict sweep compare suggest list encoders networks export cache"
    assert list(verbs) == framework.split()
    assert "pe-lightning fill" not in shown
    assert verbs["cache"] == "lists or clears the cache of decoded signals"  # begins the docstring of its function
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


BROKEN = {"absent": "", "raises": "raise RuntimeError('needs a licence')", "syntax": "def (", "without": "other = 1"}


@pytest.mark.parametrize("way", BROKEN)
def test_a_package_that_cannot_be_imported_stops_only_its_own_users(way, monkeypatch, tmp_path, capsys):
    """Of every group of entry points: one warning that names it, and everything else works."""
    module = f"pe_broken_{way}"
    if way != "absent":
        (tmp_path / f"{module}.py").write_text(BROKEN[way])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    installed = importlib.metadata.entry_points

    def broken(group, name=None):
        own = [] if name not in (None, "linear", "lost") else [EntryPoint(name or "lost", f"{module}:lost", group)]
        return [*installed(group=group, **({} if name is None else {"name": name})), *own]

    monkeypatch.setattr("pe_lightning.registry.entry_points", broken)
    monkeypatch.setattr("pe_lightning.__main__.entry_points", broken)
    recipes._paths.cache_clear()
    linear_spread.cache_clear()
    try:
        with pytest.warns(PluginWarning, match=rf"the hints '{module}:lost' cannot be imported"):
            assert main(["--help"]) == 0
        assert "lost" in capsys.readouterr().out
        assert main(["lost"]) == 2
        assert "the verb 'lost'" in capsys.readouterr().err
        with pytest.warns(PluginWarning, match=rf"the recipes '{module}:lost' cannot be imported"):
            assert main(["list", "recipes"]) == 0
        assert "image/wire" in capsys.readouterr().out
    finally:
        recipes._paths.cache_clear()
        linear_spread.cache_clear()


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
    words = ("ComplexLinear", "SimpleMLP", "omega=30", "activation_scale=10", "0.001", "Sitzmann", "17-18")
    assert all(word in shown for word in words)


def test_encoders_named_are_described_one_by_one(capsys):
    assert main(["encoders", "gau", "hash"]) == 0
    shown = capsys.readouterr().out
    gau, hash_grid = shown.split("hash: ", 1)
    for name in encoders.registry.parameters(encoders.registry.get("gau")):
        assert f"\n  {name} = " in gau
    assert "sigma = 0.64/K" in gau
    assert "Eq. 54" in gau
    assert "--encoder gau --encoder.sigma auto" in gau
    assert "Number of levels." in hash_grid
    assert main(["encoders", "guass"]) == 2
    assert "unknown encoder 'guass'; did you mean 'gau'?" in capsys.readouterr().err


def test_the_help_of_fit_is_short_and_begins_with_what_matters(capsys):
    assert main(["fit", "--help"]) == 0
    shown = capsys.readouterr().out
    words = " ".join(shown.split())
    assert len(shown.splitlines()) < 190
    usage, *_ = shown.split("\n\n")
    for part in ("[FILE ...]", "--config RECIPE", "--encoder NAME", "--model.OPTION VALUE", "--data.OPTION VALUE"):
        assert part in usage
    for names in (encoders.names(), recipes.names(), find_registry("models").names(), find_registry("datamodules").names()):
        assert ", ".join(names) in words
    order = ["--config", "--encoder", "--model", "--data", "--data.paths PATHS", "--data.batching.kind full"]
    order += ["--model.depth 0", "--trainer.max_steps 2000", "--wandb.project", "--help=all"]
    places = [shown.index(f" {option}", shown.index("what is fitted")) for option in order]
    assert places == sorted(places)
    assert "--trainer.limit_train_batches" not in shown
    assert "--output_shape" not in shown


def test_the_help_shows_the_options_of_the_classes_that_are_named(capsys):
    assert main(["fit", "samples://phantom3d", "--model", "SimpleMLP", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "options of --data VideoDataModule" in shown
    described = re.findall(r"^  --data\.\w+ \S+\s+(\S.*)", shown, re.MULTILINE)
    assert len(described) == len(re.findall(r"^  --data\.\w+ ", shown, re.MULTILINE)) > 12, "every option has a description"
    assert "options of --model SimpleMLP" in shown
    assert main(["predict", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--scale" in shown
    assert "--data" not in shown.partition("Options of other")[0]


RUN = [sys.executable, "-m", "pe_lightning"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_is_full_is_one_line_and_status_2(unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run([*RUN, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert (done.returncode, done.stderr) == (2, "pe-lightning: error: cannot write the output: No space left on device\n")


def test_an_output_that_nobody_reads_ends_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run([*RUN, "--help"], stdout=closed, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (141, "")
    without = subprocess.run(["sh", "-c", f"exec {sys.executable} -m pe_lightning --help >&- 2>&-"])
    assert without.returncode == 0


def test_characters_that_an_encoding_lacks_are_replaced(tmp_path, monkeypatch):
    (tmp_path / "metrics.json").write_text('{"schema": 1, "signals": ["\u03c0"], "test/psnr_per_signal": [1.0]}')
    shown = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", shown)
    assert main(["compare", str(tmp_path)]) == 0
    assert b"?, scored on unknown samples" in shown.buffer.getvalue()


def test_messages_are_one_printable_line_of_limited_length(tmp_path, capsys):
    name = "\x1b[31m" + "\udcff \n" * 1000
    assert main([name]) == 2
    message = capsys.readouterr().err
    assert message.rstrip("\n").isprintable()
    assert len(message) < 1700
