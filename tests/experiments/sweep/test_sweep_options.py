"""The command line of a sweep, and the cells that it stands for."""

from pathlib import Path

import pytest

from pe_lightning.errors import InputError
from pe_lightning.experiments.sweep.cells import cell_name, compose, differences, plan, reseeded
from pe_lightning.experiments.sweep.options import parse, split_values
from pe_lightning.experiments.sweep.share import Share


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("gau,tri", ("gau", "tri")),
        (" auto , 0.003,1e-3", ("auto", "0.003", "1e-3")),
        ("[1, 2],[3, 4]", ("[1, 2]", "[3, 4]")),
        ("{name: gau, sigma: 1},tri", ("{name: gau, sigma: 1}", "tri")),
        ("'a,b',\"c,d\"", ("'a,b'", '"c,d"')),
        ("[gau, 'a,]b'],null", ("[gau, 'a,]b']", "null")),
        ("it's,mine", ("it's", "mine")),
    ],
)
def test_values_are_split_at_commas_outside_of_brackets_and_quotes(text, values):
    assert split_values("key", text) == values


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["varies something", "--vary"]),
        (["--config", "a.yaml"], ["varies something"]),
        (["--vary"], ["--vary needs a value"]),
        (["--vary", "--repeats"], ["--vary needs a value"]),
        (["--vary", "model.encoder"], ["KEY=V1,V2", "'model.encoder'"]),
        (["--vary", "=1,2"], ["KEY=V1,V2"]),
        (["--vary", "model.encoder="], ["empty value"]),
        (["--vary", "model.encoder=gau,,tri"], ["empty value"]),
        (["--vary", "model.encoder=gau,tri,"], ["empty value", "no comma at the end"]),
        (["--vary", "model.encoder=gau,gau"], ["'gau' is given twice"]),
        (["--vary", "model.ridge=0.1,0.10"], ["'0.10' is given twice"]),
        (["--vary", "model.encoder=[gau,tri"], ["does not parse"]),
        (["--vary", "model.encoder={name: gau"], ["does not parse"]),
        (["--vary", "a=1", "--vary", "a=2"], ["--vary a is given twice", "all its values at once"]),
        (["--vary", "data.sampling=grid", "--vary", "data.init_args.sampling=random"], ["given twice"]),
        (["--vary", "model.ridge=1,2", "--model.ridge", "3"], ["model.ridge is varied and given"]),
        (["--vary", "model.ridge=1,2", "--model.init_args.ridge=3"], ["model.ridge is varied and given"]),
        (["--vary", "ckpt_path=a,b"], ["ckpt_path"]),
        (["--vary", "a=1", "--ckpt_path", "x"], ["--ckpt_path"]),
        (["--vary", "a=1", "--repeats", "0"], ["--repeats", "'0'"]),
        (["--vary", "a=1", "--repeats", "two"], ["--repeats", "'two'"]),
        (["--vary", "a=1", "--out", "x", "--out", "y"], ["--out is given twice"]),
        (["--vary", "a=1", "--launcher", "slurm"], ["process, ray", "'slurm'"]),
        (["--vary", "a=1", "--launcher"], ["--launcher needs a value", "--launcher ray"]),
        (["--vary", "a=1", "--cpus_per_cell", "2"], ["--cpus_per_cell is for --launcher ray"]),
        (["--vary", "a=1", "--launcher=process", "--gpus_per_cell=1"], ["--gpus_per_cell is for --launcher ray"]),
        (["--vary", "a=1", "--launcher=ray", "--cpus_per_cell=0"], ["--cpus_per_cell", "'0'"]),
        (["--vary", "a=1", "--launcher=ray", "--cpus_per_cell=0.5"], ["--cpus_per_cell", "'0.5'"]),
        (["--vary", "a=1", "--launcher=ray", "--gpus_per_cell=2"], ["--gpus_per_cell", "part of a GPU", "'2'"]),
        (["--vary", "a=1", "--launcher=ray", "--gpus_per_cell=nan"], ["--gpus_per_cell", "'nan'"]),
        (["--vary", "a=1", "--launcher=ray", "--gpus_per_cell=one"], ["--gpus_per_cell", "'one'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_refused_command_lines(arguments, words):
    with pytest.raises(InputError) as error:
        parse(arguments)
    for word in words:
        assert word in str(error.value)


def test_the_folder_is_named_after_the_configuration_and_the_settings():
    options = parse(["--config", "configs/demo.yaml", "--vary", "model.encoder=gau,tri", "--vary=--model.encoder.sigma=1"])
    assert options.out == Path("sweeps/demo-encoder-sigma")
    assert options.name == "demo-encoder-sigma"
    assert options.fixed == ("--config", "configs/demo.yaml")
    assert parse(["--vary", "model.encoder=tri", "--out", "here/x"]).name == "x"


def test_where_cells_run():
    assert parse(["--vary", "a=1"]).launcher == "process"
    options = parse(["--vary", "a=1", "--launcher", "ray", "--cpus_per_cell", "2", "--gpus_per_cell=0.25"])
    assert (options.launcher, options.share) == ("ray", Share(2, 0.25))
    assert parse(["--vary", "a=1", "--launcher=ray"]).share == Share(1, 0)
    assert options.fixed == ()


@pytest.mark.parametrize(
    ("share", "places"),
    [
        (Share(1), 7),
        (Share(2), 3),
        (Share(8), 0),
        (Share(1, 1), 2),
        (Share(1, 0.5), 4),
        (Share(1, 0.4), 4),
        (Share(3, 0.1), 2),
    ],
)
def test_cells_that_fit_on_a_machine(share, places):
    assert share.places({"CPU": 7.0, "GPU": 2.0, "memory": 1e9}) == places


def test_a_machine_without_what_a_cell_needs_runs_none():
    assert Share(1, 0.5).places({"CPU": 7.0}) == 0
    assert Share(1).places({"GPU": 1.0}) == 0


def test_a_setting_that_names_a_class_does_not_undo_the_others():
    """Naming an encoder resets its arguments, so it has to come before them, and after the files."""
    fixed = ("--model.encoder.padding", "1", "--config", "a.yaml", "--model.encoder.num_features", "8")
    settings = {"model.encoder.sigma": "0.1", "model.encoder": "gau", "seed_everything": "3"}
    assert compose(fixed, settings) == (
        "--model.encoder.padding", "1", "--config", "a.yaml",
        "--model.encoder=gau",
        "--model.encoder.num_features", "8",
        "--seed_everything=3", "--model.encoder.sigma=0.1",
    )  # fmt: skip


def test_names_of_cells_are_plain_distinct_and_short():
    assert cell_name({"model.encoder": "gau", "model.encoder.sigma": "1e-3"}, None) == "encoder-gau_sigma-1e-3"
    assert cell_name({"data.sampling.seed": "1", "model.encoder.seed": "2"}, 3) == (
        "data.sampling.seed-1_model.encoder.seed-2_repeat-3"
    )
    similar = ["[1, 2]", "[1 2]", "1-2", "../1-2", "1/2", "1 2", "é" * 300, "é" * 301]
    names = [cell_name({"a": value}, None) for value in similar]
    assert len(set(names)) == len(names)
    for name in names:
        assert "/" not in name
        assert len(name.encode()) < 200


TREE = {
    "seed_everything": 4,
    "trainer": {"devices": "auto", "num_nodes": 1},
    "model": {"init_args": {"encoder": {"class_path": "x.RandomFourier", "init_args": {"seed": 7, "sigma": 1}}}},
    "data": {"init_args": {"sampling": {"init_args": {"seed": 9}}}},
    "wandb": {"group": None},
}


def test_a_repetition_moves_the_seed_of_the_fit_and_of_the_encoder_and_not_of_the_sampling():
    again = reseeded(TREE, 2)
    assert again["seed_everything"] == 6
    assert again["model"]["init_args"]["encoder"]["init_args"] == {"seed": 9, "sigma": 1}
    assert again["data"] == TREE["data"]
    several = {**TREE, "model": {"init_args": {"encoder": [{"init_args": {"seed": 1}}, {"init_args": {"sigma": 1}}]}}}
    assert reseeded(several, 1)["model"]["init_args"]["encoder"] == [{"init_args": {"seed": 2}}, {"init_args": {"sigma": 1}}]
    assert reseeded(TREE, 0) == TREE
    assert TREE["seed_everything"] == 4, "a copy"


def fake(arguments):
    """A parser that refuses sigma -1 and puts the data's option into the tree."""
    given = dict(argument[2:].split("=") for argument in arguments)
    if given.get("sigma") == "-1":
        raise InputError("sigma must be positive")
    return {**reseeded(TREE, 0), "wandb": {"group": None}, "data": {"resize": given.get("data.resize")}}


def test_cells_with_the_same_data_follow_each_other():
    options = parse(["--vary", "sigma=1,2", "--vary", "data.resize=8,16", "--repeats", "2", "--out", "name"])
    cells = plan(options, fake)
    assert [cell.settings["data.resize"] for cell in cells] == ["8"] * 4 + ["16"] * 4
    assert [cell.tree["seed_everything"] for cell in cells[:2]] == [4, 5]
    assert all(cell.tree["wandb"]["group"] == "name" for cell in cells)
    assert all(cell.tree["trainer"]["devices"] == 1 for cell in cells), "one process"


def test_a_refused_cell_is_kept_with_its_reason_and_all_of_them_are_an_error():
    refused, accepted = plan(parse(["--vary", "sigma=-1,2"]), fake)
    assert (refused.tree, refused.error) == (None, "sigma must be positive")
    assert accepted.error is None
    with pytest.raises(InputError, match="no cell of the sweep can be run: sigma must be positive"):
        plan(parse(["--vary", "sigma=-1"]), fake)


@pytest.mark.parametrize(
    ("arguments", "changes", "words"),
    [
        (["--vary", "seed_everything=1,2", "--repeats", "2"], {}, "--repeats sets the seeds"),
        (["--vary", "model.encoder.seed=1,2", "--repeats", "2"], {}, "--repeats sets the seeds"),
        (["--vary", "a=1", "--repeats", "2"], {"seed_everything": False}, "needs a seed"),
        (["--vary", "a=1"], {"seed_everything": True}, "needs a seed"),
        (["--vary", "a=1"], {"trainer": {"devices": 2, "num_nodes": 1}}, "one process"),
        (["--vary", "a=1"], {"trainer": {"devices": 1, "num_nodes": 2}}, "one process"),
        (["--vary", "a=" + ",".join(map(str, range(200))), "--vary", "b=" + ",".join(map(str, range(200)))], {}, "40,000"),
    ],
)
def test_sweeps_that_cannot_be_repeated_or_run(arguments, changes, words):
    with pytest.raises(InputError, match=words):
        plan(parse(arguments), lambda _: {**reseeded(TREE, 0), **changes})


def test_differences_are_those_that_change_a_result():
    other = reseeded(TREE, 2) | {"wandb": {"group": "other"}}
    assert differences(TREE, other) == ["model.encoder.seed: 7, now 9", "seed_everything: 4, now 6"]
    assert differences(TREE, {**TREE, "wandb": {}}) == []
