"""Tables and figures of the papers: their settings, and the command from end to end on a small one."""

import csv
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from pe_lightning import training
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.results.runs import recorder_of
from pe_lightning.signals import SignalInfo
from pe_lightning.studies.sweep.running import CellRunner
from pe_lightning.training import TensorDataModule
from pe_papers.reproduce.command import reproduce
from pe_papers.reproduce.definition import load, names
from pe_papers.reproduce.layout import draw
from pe_papers.reproduce.papers import BlendedAxis, plain_least_squares
from pe_papers.reproduce.tables import as_markdown, with_interpolation


@pytest.mark.parametrize(
    ("table", "block", "grid", "count"),
    [
        ("t1", "simple", (8, 8), 329_475),
        ("t1", "complex", (8, 8), 196_608),
        ("t3", "simple", (8, 8, 8), 1_445_891),
        ("t3", "complex", (8, 8, 8), 786_432),
    ],
)
def test_the_networks_have_the_papers_number_of_parameters(table, block, grid, count):
    info = SignalInfo.from_dict(TensorDataModule(torch.zeros(1, *grid, 3)).info.to_dict())
    for entry in load(table).entries():
        if entry.labels["block"] == block:
            model = entry.tree()["model"]
            arguments = {key: value for key, value in model["init_args"].items() if key != "optimizer"}
            module = getattr(training, model["class_path"])(**arguments)
            module.build(info)
            assert module.num_params == count, entry.labels


@pytest.mark.parametrize("quick", [False, True])
def test_all_definitions_expand_to_distinct_cells(quick):
    for name in names():
        definition = load(name)
        labels = [tuple(entry.labels.values()) for entry in definition.entries(quick)]
        assert len(set(labels)) == len(labels) > 0
        assert {label[0] for label in labels} == set(definition.blocks), "every block has cells"
        assert definition.quick["notes"]
        complex_cells = [entry.labels for entry in definition.entries(quick) if entry.labels["block"] == "complex"]
        papers = {"/".join(str(v) for k, v in cell.items() if k not in ("block", "seed")) for cell in complex_cells}
        assert quick or set(definition.blocks.get("complex", {}).get("paper", {})) <= papers, (
            "values of cells that there are"
        )
    assert len(load("t1").entries(quick)) == (20 if quick else 32)


@pytest.mark.slow
def test_the_command_line_takes_every_option_of_every_model():
    fits, seen = CellRunner(), set()
    for entry in (entry for name in names() for entry in load(name).entries(quick=True)):
        options = {(entry.settings.get("model"), ".".join(key.split(".")[:2])) for key in entry.settings}
        if "function" not in entry.settings and options - seen:
            seen |= options
            model = fits.resolve(["--config", json.dumps(entry.tree())])["model"]
            assert model["class_path"].endswith(str(entry.settings["model"]))
            depth = model["init_args"].get("depth", 0)
            assert depth == entry.settings.get("model.depth", depth)


def test_plain_least_squares_is_that_of_numpy():
    values = torch.rand(2, 12, 16, 3, generator=torch.Generator().manual_seed(0))
    data = TensorDataModule(values)
    found = plain_least_squares(data, {"name": "tri", "num_features": 6, "half_width": 0.2})

    def psi(x):
        return np.maximum(1 - np.abs(x[:, None] - np.arange(6) / 6) / 0.2, 0)

    rows, columns = np.arange(12) / 12, np.arange(16) / 16
    trained = values[:, ::2, ::2].numpy().astype(float)
    left, right = psi(rows) @ np.linalg.pinv(psi(rows[::2])), psi(columns) @ np.linalg.pinv(psi(columns[::2]))
    error = (np.einsum("ia,sabc,jb->sijc", left, trained, right) - values.numpy()) ** 2
    error[:, ::2, ::2] = 0
    scores = -10 * np.log10(error.sum((1, 2, 3)) / (3 * (12 * 16 - 6 * 8)))
    assert found["psnr_per_signal"] == pytest.approx(scores, abs=1e-3)
    assert found["parameters"] == 3 * 36


def authors_blending(psi, distance, x, count):
    """The authors' rule: neighbours on linspace(0, 1, K), clamped at 0.999, features of node i at i/K."""
    d, rows = 1 / (count - 1), []
    for value in x:
        position = min(value, 0.999) * (count - 1)
        left = int(position)
        beta = position - left
        here, there, near, far = (distance(t) for t in (0, d, beta * d, (1 - beta) * d))
        pair = np.array([here * near - there * far, here * far - there * near]) / (here**2 - there**2)
        pair /= pair.sum()
        rows.append(pair[0] * psi(left / count) + pair[1] * psi((left + 1) / count))
    return np.stack(rows)


def test_blended_axes_are_the_authors_rule():
    x = torch.rand(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sigma = 0.1
    expected = authors_blending(
        lambda t: np.exp(-((t - np.arange(8) / 8) ** 2) / (2 * sigma**2)),
        lambda t: np.exp(-(t**2) / (4 * sigma**2)),
        x.tolist(),
        8,
    )
    axis = BlendedAxis({"name": "gau", "sigma": sigma}, num_features=8)
    np.testing.assert_allclose(axis(x), expected, rtol=1e-9)
    again = pickle.loads(pickle.dumps(axis.copy(num_features=6)))
    assert again(x).shape == (40, 6)


def test_blended_linf_of_high_exponents_runs_as_in_the_authors_program():
    x, frequencies = torch.arange(128, dtype=torch.float64) / 128, np.linspace(1, 256, 32)
    axis = BlendedAxis({"name": "linf", "sigma": 8.0}, num_features=64)
    inner = axis.encoder
    expected = authors_blending(
        lambda t: inner(torch.tensor([t], dtype=torch.float64))[0].numpy(),
        lambda t: np.cos(2 * np.pi * frequencies * t).mean(),
        x.tolist(),
        64,
    )
    np.testing.assert_allclose(axis(x), expected, rtol=1e-6, atol=1e-9)
    with pytest.raises(InputError, match="0/0"):
        BlendedAxis({"name": "rect", "sigma": 0.01}, num_features=8)(x)


def test_draws_of_frequencies_are_one_line_with_their_spread():
    """Five seeds of rff, one of other encoders: each seed is another draw, and the table has their mean and range."""
    entries = [entry for entry in load("t3").entries() if entry.labels["block"] != "simple"]
    assert [entry.repeat for entry in entries if entry.labels["encoder"] == "rff"] == list(range(5)) * 3
    assert {entry.repeat for entry in entries if entry.labels["encoder"] != "rff"} == {0}
    x = torch.rand(4, dtype=torch.float64)
    draws = [BlendedAxis({"name": "rff", "sigma": 6.0}, num_features=8, seed=seed)(x) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.allclose(draws[0], draws[2])
    rows = [
        {"block": "complex", "encoder": "rff", "seed": seed, "paper": 21.5, "folder": Path(), "psnr": psnr, "seconds": 2.0}
        for seed, psnr in enumerate((16.0, 24.0, 23.0))
    ]
    text = as_markdown(load("t3"), with_interpolation([*rows, rows[0] | {"encoder": "gau", "psnr": 26.0}]), [])
    assert "| Complex encoding, gradient descent | rff | 21.50 | 21.00 (16.00 to 24.00, 3 seeds) | -0.50 |" in text
    assert "| Complex encoding, gradient descent | gau | 21.50 | 26.00 | +4.50 |" in text


def test_a_table_shows_published_curves_and_interpolation_for_each_set_of_signals():
    published = {"block": "published", "method": "CARA", "folder": Path(), "parameters": [3, 1], "published": [9.0, 8.0]}
    text = as_markdown(load("kodak"), [published], [])
    assert "| numbers | CARA |\n| --- | --- |\n| 1 | 8.00 |\n| 3 | 9.00 |" in text
    rows = [
        {"block": name, "psnr": 1.0, "signals": [name], "baselines": {"linear": {"test/psnr": psnr, "test/psnr_std": 0.0}}}
        for name, psnr in (("natural", 20.0), ("text", 30.0))
    ]
    added = {row["block"]: row["psnr"] for row in with_interpolation(rows)[2:]}
    assert added == {"linear interpolation, natural": 20.0, "linear interpolation, text": 30.0}
    assert with_interpolation([row | {"protocol": "all"} for row in rows])[2:] == []  # nothing between the samples


@pytest.mark.parametrize("block", ["siren", "published"])
def test_panels_of_blocks_that_were_not_run_are_left_out(tmp_path, block):
    row = {"block": block, "folder": tmp_path, "psnr": 20.0, "parameters": 100}
    if block == "published":
        row = {"block": block, "method": "CARA", "folder": tmp_path, "parameters": [1], "published": [8.0]}
    assert "kodak.png" in {path.name for path in draw(load("kodak"), [row], tmp_path, "")}


# -- the command, on a definition of 32 x 32 pixels ----------------------------------------------------------------------

SMALL = {
    "title": "small",
    "source": "A paper, Table 0",
    "notes": ["A note."],
    "base": {
        "data": "ImageDataModule",
        "data.paths": ["samples://astronaut"],
        "data.resize": 32,
        "wandb.enabled": False,
        "trainer.accelerator": "cpu",
    },
    "blocks": {
        "exact": {
            "title": "Exact fit",
            "base": {"model": "ComplexLinear", "model.solver": "exact", "model.ridge": 0.01, "trainer.max_steps": 0},
            "vary": {"encoder": {name: {"model.encoder": {"name": name, "num_features": 16}} for name in ("gau", "rff")}},
            "seeds": 2,
            "paper": {"gau": [20.0, 1.0, 3.0]},
        },
        "plain": {
            "base": {"function": "pe_papers.reproduce.papers.plain_least_squares"},
            "vary": {"encoder": {"gau": {"arguments.encoder": {"name": "gau", "num_features": 16}}}},
        },
    },
    "quick": {"notes": ["One seed."], "seeds": 1},
    "layout": [
        {"kind": "table"},
        {"kind": "gallery", "blocks": ["exact"], "rows": "encoder", "columns": "block"},
        {"kind": "curves", "blocks": ["exact"], "panels": [{"x": "encoder", "y": "psnr"}]},
    ],
}


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(yaml.safe_dump(SMALL, sort_keys=False))
    return tmp_path


def written(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).glob("small*")}


@pytest.mark.slow  # fits and figures of a whole table
def test_a_command_leaves_all_files_and_the_same_again_does_nothing(small, capsys, monkeypatch):
    command = ["reproduce", "small.yaml", "--quick", "--out", "o"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    found = {name: json.loads(Path(f"o/exact-{name}/metrics.json").read_text())["test/psnr"] for name in ("gau", "rff")}
    line = next(line for line in shown.splitlines() if line.startswith("| Exact fit | gau"))
    assert f"| 20.00 ± 1.00 | {found['gau']:.2f} | {found['gau'] - 20:+.2f} | 768 |" in line
    assert "| bicubic interpolation |" in shown
    assert "QUICK version, not the paper's settings: One seed." in shown
    lines = list(csv.DictReader(io.StringIO(Path("o/small.csv").read_text())))
    assert {line["mode"] for line in lines} == {"quick"}
    assert [float(line["psnr"]) for line in lines[:2]] == [found["gau"], found["rff"]]
    assert [line["encoder"] for line in lines if line["block"] == "plain"] == ["gau"]
    before = written("o")
    figures = {f"small{number}.{form}" for number in ("", "-2", "-3") for form in ("png", "pdf")}
    assert set(before) == {"small.csv", "small.md", *figures}
    assert json.loads(Path("o/sweep.json").read_text())["cells"][0]["status"] == "done"
    config = yaml.safe_load(Path("o/exact-gau/config.yaml").read_text())
    assert recorder_of(config["trainer"]["callbacks"])["wandb"]["group"] == "o"

    monkeypatch.setattr(CellRunner, "run", lambda *_: pytest.fail("a finished cell was run again"))
    assert main(command) == 0
    assert written("o") == before
    assert main([*command, "--trainer.max_steps", "1"]) == 2
    assert "was run with other settings (trainer.max_steps: 0, now 1)" in capsys.readouterr().err


@pytest.mark.slow  # fits a table twice
def test_an_interrupted_command_goes_on_where_it_was(small, monkeypatch, capsys):
    calls = []

    whole = CellRunner.run

    def run(self, tree, folder, *goals):
        calls.append(folder.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, tree, folder, *goals)

    monkeypatch.setattr(CellRunner, "run", run)
    assert main(["reproduce", "small.yaml", "--blocks", "exact", "--out", "o"]) == 130
    assert not Path("o/small.csv").exists()
    found = reproduce("small.yaml", out="o")
    assert calls == ["exact-gau-0", "exact-gau-1", "exact-gau-1", "exact-rff-0", "exact-rff-1"]
    assert (found.failed, found.signum) == (0, None)
    scores = {(row["encoder"], row["seed"]): row["psnr"] for row in found.rows if row["block"] == "exact"}
    assert scores["gau", 0] == scores["gau", 1], "an exact fit of an encoder without a seed"
    assert scores["rff", 0] != scores["rff", 1]
    assert "Full settings." in found.markdown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["r-fg5"], "unknown table or figure 'r-fg5'; did you mean 'r-fig5' or"),
        (["small.yaml", "--blocks", "exat"], "small has no block 'exat'; did you mean 'exact'? Blocks: exact, plain"),
        (["small.yaml", "--paths", "none.png"], "no such file or folder: 'none.png'"),
        (["small.yaml", "--gpus_per_cell", "1"], "gpus_per_cell needs launcher ray"),
        (["small.yaml", "--trainer.max_stepps", "1"], "did you mean '--trainer.max_steps'"),
        (["bad.yaml"], "a block has no 'varry'; did you mean 'vary'?"),
        (["small.yaml", "--encoder", "tri"], "--model.encoder: small varies model.encoder.name; leave it out"),
        (["small.yaml", "--data.paths", "a.png"], "give signals by --paths"),
        (
            ["small.yaml", "--blocks", "plain", "--trainer.max_steps", "1"],
            "no fits to change by the option '--trainer.max_steps'",
        ),
        (["r-fig3", "--quik"], "r-fig3 has no fits to change by the option '--quik'; did you mean '--quick'?"),
        (["empty.yaml"], "is not a definition of a table or figure: it has no blocks, layout, source, title"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_run(small, capsys, arguments, message):
    block = {"base": {}, "varry": {}}
    Path("bad.yaml").write_text(yaml.safe_dump({**SMALL, "blocks": {"one": block}}))
    Path("empty.yaml").write_text("{}")
    assert main(["reproduce", *arguments, "--out", "o"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("o").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": [{"kind": "tabel"}]}, "unknown layout 'tabel'; did you mean 'table'?"),
        ({"layout": {"kind": "table"}}, "layout is a list such as [{kind: table}]"),
        ({"layout": [{"kind": "curves"}]}, "a layout of curves has panels, each with x and y"),
        (
            {"layout": [{"kind": "gallery", "rows": "encoders", "columns": "block"}]},
            "rows of a gallery are no label 'encoders'; did you mean 'encoder'?",
        ),
        ({"blocks": {"exact": None}}, "block exact must be names with values"),
        ({"vary": {"encoder": ["gau", "tri"]}}, "vary: encoder must be names with values"),
        ({"quick": {"only": {"encodr": ["gau"]}}}, "quick has only: 'encodr'; did you mean 'encoder'?"),
        (
            {"blocks": {"exact": {**SMALL["blocks"]["exact"], "paper": {"gua": [20.0]}}}},
            "block exact has no cell 'gua'; did you mean 'gau'?",
        ),
        (
            {"blocks": {"exact": {**SMALL["blocks"]["exact"], "paper": {"gau": 20.0}}}},
            "{CELL: [mean, standard deviation, seconds]}",
        ),
    ],
)
def test_a_definition_with_a_mistake_is_refused_before_anything_is_run(small, capsys, change, message):
    Path("bad.yaml").write_text(yaml.safe_dump({**SMALL, **change}))
    assert main(["reproduce", "bad.yaml", "--out", "o"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("o").exists()
