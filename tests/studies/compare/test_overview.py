"""One table over data sets and protocols, with the gain over interpolation and rank correlations."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.studies.compare.overview import INTERPOLATION, make_overview
from pe_lightning.studies.compare.reading import find_runs

ENCODERS = {"gau": 4.0, "tri": 3.0, "rff": 1.0, "linf": 2.0, "logf": 0.5}


@pytest.fixture
def runs(make_run, tmp_path):
    """Two data sets of three signals and two seeds, for five encoders; the best interpolation has 20, 21, 22 dB."""
    generator = np.random.default_rng(0)
    scores = {}
    for data in ("one", "two"):
        for encoder, level in ENCODERS.items():
            for seed in (0, 1):
                values = (20 + level + np.arange(3) + generator.normal(0, 0.1, 3)).tolist()
                scores[encoder, data, seed] = values
                make_run(
                    f"{data}-{encoder}/{seed}",
                    values,
                    encoder={"name": encoder, "rank": level},
                    seed=seed,
                    paths=[data],
                    data_fingerprint=data,
                    baselines={
                        "nearest": {"test/psnr_per_signal": [1.0, 2.0, 3.0]},
                        "bicubic": {"test/psnr_per_signal": [20.0, 21.0, 22.0]},
                    },
                )
    return find_runs([tmp_path]).runs, scores


def test_means_errors_gains_and_correlations_are_those_of_scipy(runs):
    found, scores = runs
    overview = make_overview(found, ["encoder.name"], ["paths"], ["encoder.rank"])
    means, errors = overview.means(), overview.errors()
    assert [row for (row,) in means.index] == [*sorted(ENCODERS, key=ENCODERS.__getitem__, reverse=True), INTERPOLATION]
    own = np.mean([scores["rff", "one", seed] for seed in (0, 1)], 0)
    assert means[("one",)][("rff",)] == pytest.approx(own.mean())
    assert errors[("one",)][("rff",)] == pytest.approx(stats.sem(own))
    gains = np.mean([[scores["rff", data, seed] for seed in (0, 1)] for data in ("one", "two")], 1) - [20, 21, 22]
    middle, half = overview.gain_interval(("rff",))
    interval = stats.ttest_1samp(gains.ravel(), 0).confidence_interval(0.95)
    assert (middle - half, middle + half) == pytest.approx((interval.low, interval.high))
    assert overview.correlation("encoder.rank").tolist() == [pytest.approx(1.0)] * 2


def test_the_files_hold_the_table(runs, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["compare", ".", "--by", "encoder.name", "--across", "paths", "--against", "encoder.rank", "--out", "o"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "Rank correlation of encoder.rank with the score: one +1.00; two +1.00" in shown
    table = pd.read_csv("o/overview.csv", index_col=0)
    assert table.columns.tolist() == ["one", "two", "gain"]
    assert table.loc["gau", "gain"] == pytest.approx(4, abs=0.1)
    tex = (tmp_path / "o/overview.tex").read_text()
    assert r"\toprule" in tex
    assert r"$\pm$" in tex
    for name in ("score_vs_encoder_rank", "overview"):
        assert (tmp_path / f"o/{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert "| gau | 2" in (tmp_path / "o/overview.md").read_text()


def test_trained_samples_have_no_interpolation_to_beat(make_run, tmp_path):
    make_run("a/1", (30.0,), signals=["x"], protocol="all", baselines={"bicubic": {"test/psnr_per_signal": [140.0]}})
    make_run("b/1", (35.0,), signals=["x"], protocol="all", baselines={}, encoder={"name": "tri"})
    overview = make_overview(find_runs([tmp_path]).runs, ["encoder.name"], ["protocol"])
    assert overview.means().index.tolist() == [("tri",), ("gau",)], "best first"
    assert math.isnan(overview.means()["gain"].iloc[0])
    assert "nan" not in overview.texts().to_string()
    assert overview.texts().columns.tolist() == ["all"], "no column of gains"


def test_columns_of_different_data_and_missing_keys_are_refused(runs, capsys):
    with pytest.raises(InputError, match="differ in their data"):
        make_overview(runs[0], ["encoder.name"], ["model"])
    with pytest.raises(InputError, match=r"no run has the key 'encoder\.nam'"):
        make_overview(runs[0], ["encoder.nam"], ["paths"])
    assert main(["compare", ".", "--across", "paths"]) == 2
