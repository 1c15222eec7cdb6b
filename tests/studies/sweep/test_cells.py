"""The cells of a sweep: values, names, order of options, seeds and refusals."""

import copy
import logging

import pytest

from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.parser import parse, plain_values, prepare
from pe_lightning.errors import InputError
from pe_lightning.results.runs import recorder_of
from pe_lightning.studies.sweep.cells import (
    Cell,
    cell_name,
    checked,
    differences,
    make_cells,
    parse_varied,
    reseeded,
    split_values,
)
from pe_lightning.studies.sweep.running import CellRunner

TREE = {
    "seed_everything": 4,
    "trainer": {
        "devices": "auto",
        "num_nodes": 1,
        "callbacks": [{"class_path": "pe_lightning.RunRecorder", "init_args": {"wandb": {"group": None, "tags": ["mine"]}}}],
    },
    "model": {
        "class_path": "m",
        "init_args": {
            "encoder": {"class_path": "pe_lightning.encoders.RandomFourier", "init_args": {"seed": 7, "sigma": 1}}
        },
    },
    "data": {"init_args": {"sampling": {"init_args": {"seed": 5}}}},
}


def options(varied):
    """The options of each value of varied settings."""
    return {key: {value: (f"--{key}={value}",) for value in values} for key, values in varied.items()}


def resolve(arguments):
    """A parser that refuses sigma -1 and puts the data's option into the tree."""
    given = dict(argument[2:].split("=") for argument in arguments)
    if given.get("sigma") == "-1":
        raise InputError("sigma must be positive")
    return {**reseeded(TREE, 0), "data": {"resize": given.get("data.resize")}}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (" auto , 0.003,1e-3", ("auto", "0.003", "1e-3")),
        ("{name: gau, sigma: 1},[1, 2],tri", ("{name: gau, sigma: 1}", "[1, 2]", "tri")),
        ("[gau, 'a,]b'],null", ("[gau, 'a,]b']", "null")),
        ("it's,samples://coffee", ("it's", "samples://coffee")),
    ],
)
def test_values_are_split_at_commas_outside_of_brackets_and_quotes(text, values):
    assert split_values("key", text) == values


@pytest.mark.parametrize(
    ("varied", "fixed", "words"),
    [
        (["a="], [], "KEY=V1,V2"),
        (["a=gau,tri,"], [], "empty value"),
        (["a=[gau,tri"], [], "does not parse"),
        (["data.sampling=grid", "data.init_args.sampling=random"], [], "given twice"),
        (["model.ridge=1,2"], ["--model.init_args.ridge=3"], "--model.ridge is varied"),
        (["ckpt_path=a,b"], [], "ckpt_path cannot be varied"),
        (["a=1"], ["--ckpt_path", "x"], "--ckpt_path cannot be given"),
    ],
)
def test_refused_settings(varied, fixed, words):
    with pytest.raises(InputError, match=words):
        parse_varied(varied, fixed)


def test_names_of_cells_are_plain_distinct_and_short():
    assert cell_name({"model.encoder": "gau", "model.encoder.sigma": "1e-3"}, None) == "encoder-gau_sigma-1e-3"
    assert cell_name({"data.seed": "1", "model.seed": "2"}, 3) == "data.seed-1_model.seed-2_repeat-3"
    names = [cell_name({"a": value}, None) for value in ("[1, 2]", "[1 2]", "1-2", "../1-2", "1/2", "é" * 300, "é" * 301)]
    assert len(set(names)) == len(names)
    for name in names:
        assert "/" not in name
        assert ".." not in name
        assert len(name.encode()) <= 120


def test_a_repetition_changes_the_seed_and_that_of_the_encoder_and_not_of_the_sampling():
    again = reseeded(TREE, 2)
    assert again["seed_everything"] == 6
    assert again["model"]["init_args"]["encoder"]["init_args"] == {"seed": 9, "sigma": 1}
    assert again["data"] == TREE["data"]
    assert TREE["seed_everything"] == 4, "a copy"
    assert differences(TREE, again) == ["model.encoder.seed: 7, now 9", "seed_everything: 4, now 6"]
    renamed = copy.deepcopy(TREE)
    renamed["trainer"]["callbacks"][0]["init_args"]["wandb"]["group"] = "other"
    assert differences(TREE, renamed) == []
    # an encoder without a seed follows seed_everything
    for named, seeded in (
        ("rff", "rff"),
        ({"name": "rff", "seed": 3}, {"name": "rff", "seed": 5}),
        ([{"name": "gau"}],) * 2,
    ):
        called = {**TREE, "model": {"init_args": {"encoder": named}}}
        assert [reseeded(called, repeat)["model"]["init_args"]["encoder"] for repeat in (0, 2)] == [named, seeded]


def test_cells_with_the_same_data_follow_each_other_and_refused_ones_keep_their_reason():
    varied = {"sigma": ["1", "2"], "data.resize": ["8", "16"]}
    cells = make_cells(options(varied), [], 2, "name", resolve)
    assert [cell.settings["data.resize"] for cell in cells] == ["8"] * 4 + ["16"] * 4
    assert [cell.tree["seed_everything"] for cell in cells[:2]] == [4, 5]
    assert all(cell.tree["trainer"]["devices"] == 1 for cell in cells)
    refused, accepted = make_cells(options({"sigma": ["-1", "2"]}), [], 1, "name", resolve)
    assert (refused.tree, refused.error, accepted.error) == (None, "sigma must be positive", None)
    with pytest.raises(InputError, match="no cell of the sweep can be run: sigma must be positive"):
        make_cells(options({"sigma": ["-1"]}), [], 1, "name", resolve)


def test_repetitions_of_a_combination_are_a_group_in_wandb_with_tags_that_it_accepts():
    long = f"[{', '.join(100 * ['tri'])}]"
    cells = make_cells(options({"model.encoder": ["gau", long], "sigma": ["1"]}), [], 2, "name", resolve)
    settings = [recorder_of(cell.tree["trainer"]["callbacks"])["wandb"] for cell in cells]
    assert [found["group"] for found in settings[:2]] == ["name/encoder-gau_sigma-1"] * 2
    assert settings[0]["tags"] == ["mine", "name", "encoder=gau", "sigma=1"]
    assert settings[2]["group"] == settings[3]["group"]
    (group, tags), limits = (settings[2]["group"], settings[2]["tags"]), (128, 64)
    assert len(group) <= limits[0]
    assert max(map(len, tags)) == limits[1]


@pytest.mark.parametrize(
    ("varied", "repeats", "changes", "words"),
    [
        ({"model.encoder.seed": ["1", "2"]}, 2, {}, "--repeats sets the seeds"),
        ({"a": ["1"]}, 1, {"seed_everything": True}, "needs a fixed seed"),
        ({"a": ["1"]}, 1, {"trainer": {"devices": 2, "num_nodes": 1}}, "one device"),
    ],
)
def test_sweeps_that_cannot_be_repeated_or_run(varied, repeats, changes, words):
    with pytest.raises(InputError, match=words):
        make_cells(options(varied), [], repeats, "name", lambda _: {**reseeded(TREE, 0), **changes})


def test_an_option_added_to_the_package_is_a_difference_only_if_it_is_not_the_default():
    prepare()
    options = "--model ComplexLinear --model.encoder gau --data ImageDataModule --data.paths samples://astronaut"
    now = plain_values("fit", parse("fit", rewrite("fit", options.split())))
    before = copy.deepcopy(now)
    del before["data"]["init_args"]["missing"], before["model"]["init_args"]["center"]
    assert differences(before, now) == []
    now["data"]["init_args"]["missing"] = "black"
    now["trainer"]["max_steps"] = 7
    assert differences(before, now) == ["trainer.max_steps: 2000, now 7", "data.missing: nan, now black"]
    before["data"]["init_args"]["removed"] = 1  # no longer an option
    assert "data.removed: 1, now nothing" in differences(before, now)


def test_files_that_a_model_is_made_from_are_known_by_their_content(tmp_path):
    tree = {"model": {"init_args": {"pretrained": str(tmp_path / "prior.ckpt")}}}

    def digests():
        return list(Cell("a", {}, 0, (), tree).files.values())

    assert digests() == []
    (tmp_path / "prior.ckpt").write_bytes(b"one")
    first = digests()
    (tmp_path / "prior.ckpt").write_bytes(b"two")
    assert len(first) == len(digests()) == 1
    assert first != digests()


def test_messages_that_a_program_has_disabled_stay_so(tmp_path):
    logging.disable(logging.WARNING)
    try:
        assert "give --data DATA" in CellRunner().run({}, tmp_path).error
        assert logging.root.manager.disable == logging.WARNING
    finally:
        logging.disable(logging.NOTSET)


def test_the_configuration_of_a_cell_is_a_copy():
    tree = copy.deepcopy(TREE)
    assert checked(tree, 2, "name")["trainer"]["devices"] == 1
    assert tree == TREE
