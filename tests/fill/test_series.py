"""Rows by the fit of points in time: seasons of even and uneven rows, given periods, axes that repeat."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pe_fill
from pe_fill.formats.point_axes import periods_of_grid, periods_of_points
from pe_fill.members.member import Gaps
from pe_fill.members.seasonal import SeasonalMember
from pe_fill.mixture.limits import beyond_limits, check_dates
from pe_fill.request import FillRequest
from pe_fill.verbs.fill_points import lengths_of, region_of
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.signals import Axis

DAYS = np.arange(120)
SEASON = 10 * np.sin(2 * np.pi * DAYS / 12) + DAYS / 30 + np.random.default_rng(0).normal(0, 1, 120)
"""Twelve samples a period, a trend, and noise of 1."""
LOST = (DAYS >= 40) & (DAYS < 58)


def rows(times: list[str]) -> str:
    cells = ["" if lost else f"{value:.4f}" for lost, value in zip(LOST, SEASON, strict=True)]
    return "time,v\n" + "".join(f"{time},{cell}\n" for time, cell in zip(times, cells, strict=True))


def error(filled: Any) -> float:
    return float(np.sqrt(np.mean((filled.values.ravel() - SEASON)[LOST] ** 2)))


@pytest.mark.slow
def test_a_gap_longer_than_a_period_is_filled_by_the_season_with_and_without_times(tmp_path: Path) -> None:
    """Noise alone is 1; without a season the error is 3 or more."""
    found = pe_fill.fill(np.where(LOST, np.nan, SEASON), std=True)
    (signal,) = found.signals
    assert signal.periods[0] == pytest.approx(12, rel=0.01)
    assert signal.model.weights["seasonal"] > 0.3
    assert error(found) < 1.3
    inside = np.abs(found.values - SEASON)[LOST] <= 1.645 * found.std[LOST]
    assert inside.mean() > 0.7
    moved = (np.datetime64("2020-01-01T00:00") + DAYS * 1440 + np.random.default_rng(1).integers(-600, 600, 120)).astype(str)
    (tmp_path / "a.csv").write_text(rows(moved.tolist()))
    uneven = pe_fill.fill(tmp_path / "a.csv", folds="none", std=True, periodic="time=12d")
    assert uneven.signals[0].periods == pytest.approx([12 * 86_400])
    assert error(uneven) < 1.5
    assert (uneven.std[LOST] > 0).all()


def test_members_of_uneven_rows_and_seasons_without_a_period_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(rows([f"2020-01-01T{n // 60:02}:{n % 60:02}" for n in 3 * DAYS + DAYS % 2]))
    with pytest.raises(InputError, match="at unequal distances: leave members out"):
        pe_fill.fill(tmp_path / "a.csv", members=["fourier"])
    with pytest.raises(InputError, match="has no period for the member 'seasonal'"):
        pe_fill.fill(np.where(LOST, np.nan, DAYS / 30), members=["seasonal"], periodic="none")
    with pytest.raises(InputError, match="the member 'patches' fills signals of 2 axes"):
        pe_fill.fill(np.where(LOST, np.nan, DAYS / 30), members=["patches"])


def test_a_season_of_every_second_sample_has_half_the_period_in_samples() -> None:
    season, known = torch.sin(torch.arange(0, 120, 2) * torch.pi / 12)[:, None], torch.ones(60, dtype=torch.bool)
    known[20:36] = False
    member = SeasonalMember(season.repeat_interleave(2, 0), torch.arange(120) % 2 == 0, [24.0])
    made = member(Gaps(season * known[:, None], known, ~known, step=2))
    assert float((made - season).abs().max()) < 0.05


def test_periods_have_one_meaning_for_rows_and_grids() -> None:
    hours, globe = Axis("time", 0.0, 9 * 3600.0, 10, time=True), Axis("lon", 0.0, 270.0, 4)
    assert periods_of_grid("time=2h,time=1d", [hours], 1)[0] == (7200.0, 86_400.0)
    assert periods_of_grid("none", [hours], 1) == ((), (hours,))
    assert periods_of_grid("lon", [Axis("lat", 0.0, 9.0, 10), globe], 2)[1][1] == Axis("lon", 0.0, 360.0, 4, periodic=True)
    for given, axes, count, words in (
        ("time=2", [hours], 1, "of dates with a unit, NAME=24h"),
        ("lon=90", [globe, hours], 2, "its samples cover 360"),
        ("lon", [Axis("lon", 0.0, 710.0, 72)], 1, "a row has a season with NAME=PERIOD"),
        ("lon", (), 2, "whose axes have names"),
        ("day=7", (), 1, "the axes are row"),
    ):
        with pytest.raises(InputError, match=words):
            periods_of_grid(given, axes, count)


def test_periods_of_points_are_seasons_where_coordinates_go_on() -> None:
    """Numbers within a period, and degrees, repeat; dates and longer numbers have a season, in ``fit_points`` too."""
    columns = {"lon": np.array([-190.0, 190.0]), "hour": np.array([0.0, 23.0]), "day": DAYS, "time": 86_400.0 * DAYS}
    dated = {name: name == "time" for name in columns}
    found = periods_of_points("lon,hour=24,day=12,time=12d,time=1y", columns, dated)
    assert found == ({"lon": 360.0, "hour": 24.0}, {"day": [12.0], "time": [12 * 86_400.0, 365.2425 * 86_400]})
    for given in (True, "days", "day=", "time", "time=12", "day=12d", "hour=-1", "hour=inf"):
        with pytest.raises(InputError, match=r"NAME=24h .* the axes are day \(numbers\), time \(dates\)"):
            periods_of_points(given, {"day": DAYS, "time": DAYS}, {"day": False, "time": True})
    fit = pe_fill.fit_points({"day": DAYS[~LOST]}, SEASON[~LOST], periodic="day=12")
    assert fit.seasons == {"day": (12.0,)}
    assert [axis.name for axis in fit.axes] == ["day"]
    assert np.sqrt(np.mean((fit.predict(DAYS[LOST]) - SEASON[LOST]) ** 2)) < 1.5


@pytest.mark.slow
def test_a_fit_has_the_season_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By command, with predictions at dates in a gap: without the season their error is 3 or more."""
    monkeypatch.chdir(tmp_path)
    days = (np.datetime64("2020-01-01") + DAYS).astype(str).tolist()
    Path("a.csv").write_text(rows(days))
    Path("places.csv").write_text("time\n" + "\n".join(np.array(days)[LOST]) + "\n")
    options = [
        "--data.coordinates",
        "time",
        "--data.values",
        "v",
        "--data.periodic",
        "time=12d",
        "--trainer.logger",
        "false",
    ]
    assert main(["fit", "a.csv", *options]) == 0
    (checkpoint,) = Path("runs").rglob("last.ckpt")
    assert main(["predict", "--ckpt_path", str(checkpoint), "--at", "places.csv"]) == 0
    found = np.genfromtxt(next(Path("runs").rglob("places.csv")), delimiter=",", names=True, dtype=None, encoding=None)
    assert np.sqrt(np.mean((found["v"] - SEASON[LOST]) ** 2)) < 1.8
    points = np.genfromtxt(next(Path("runs").rglob("points.csv")), delimiter=",", names=True, dtype=None, encoding=None)
    assert points.dtype.names[:2] == ("time", "v")
    assert points["time"][0] == "2020-01-01"
    assert main(["predict", "--ckpt_path", str(checkpoint), "--output_shape", "4", "3"]) == 2


def test_gaps_longer_than_the_limit_are_left_and_far_samples_too() -> None:
    missing = np.array([0, 1, 1, 0, 1, 1, 1, 0, 1], bool)
    assert np.flatnonzero(beyond_limits(missing, (), 2, None)).tolist() == [4, 5, 6]
    assert np.flatnonzero(beyond_limits(missing, (), None, 1)).tolist() == [5]
    hours = Axis("time", 0.0, 8 * 3600.0, 9, time=True)
    assert np.flatnonzero(beyond_limits(missing, [hours], "2h", None)).tolist() == [4, 5, 6]
    uneven = Axis("time", 0.0, 80.0, 9, time=True, samples=(0, 1, 2, 3, 4, 5, 6, 7, 80))
    assert np.flatnonzero(beyond_limits(missing, [uneven], None, "1min")).tolist() == [8]
    plane = np.zeros((12, 12), bool)
    plane[2, :] = plane[4:9, 3:8] = True  # a scratch stays a short gap, however long it is
    assert (beyond_limits(plane, (), 3, None) == plane & (np.arange(12)[:, None] > 3)).all()
    turn = Axis("lon", 0.0, 360.0, 9, periodic=True)
    seam = np.array([1, 1, 0, 0, 1, 1, 0, 0, 1], bool)
    assert np.flatnonzero(beyond_limits(seam, [turn], 2, None)).tolist() == [0, 1, 8], "a gap of three over the seam"
    assert np.flatnonzero(beyond_limits(seam, [turn], None, 1)).tolist() == [0]
    assert not beyond_limits(np.array([1, 1, 0, 1], bool), [Axis("lon", 0.0, 360.0, 4, periodic=True)], None, 2).any()
    for given in (0, -1, "abc", "3 weeks", 2.5, True):
        with pytest.raises(InputError, match="max_gap is a"):
            FillRequest(max_gap=given)
    with pytest.raises(InputError, match="one axis of dates"):
        check_dates([Axis("x", 0.0, 8.0, 9)], None, "3h")


def test_cells_beyond_the_limit_stay_as_the_file_has_missing_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.add.outer(np.arange(30.0), np.arange(32.0))
    values[3, 4:20] = values[12:22, 8:20] = np.nan
    np.save(tmp_path / "a.npy", values)
    np.save(tmp_path / "b.npy", np.nan_to_num(values, nan=-9).astype(np.int16))
    for name, marks in (("a", []), ("b", ["--missing", "-9"])):
        out = tmp_path / f"{name}_out.npy"
        options = [*marks, "--max_gap", "4", "--folds", "none", "--no_std", "--out", str(out)]
        assert main(["fill", str(tmp_path / f"{name}.npy"), *options]) == 0
        assert "120 stay missing, beyond the limit" in capsys.readouterr().out
        found = np.load(out).astype(float)
        left = ~np.isfinite(found) | (found == -9)
        assert left.sum() == 120
        assert left[12:22, 8:20].all()
    masked = pe_fill.fill(np.nan_to_num(values), np.isnan(values), max_distance=2, folds="none")
    assert np.isnan(masked.values[masked.left]).all()
    assert np.isfinite(masked.values[~masked.left]).all()
    (tmp_path / "c.csv").write_text(rows([f"2020-01-01T{n // 60:02}:{n % 60:02}" for n in DAYS]))
    assert main(["fill", str(tmp_path / "c.csv"), "--max_gap", "17min", "--out", str(tmp_path / "d.csv")]) == 0
    assert "18 stay missing" in capsys.readouterr().out
    assert (tmp_path / "c.csv").read_text() == (tmp_path / "d.csv").read_text()


def test_lengths_and_regions_along_dates() -> None:
    assert lengths_of("spacing", "90min", {"time": True}) == {"time": 5400.0}
    assert region_of("1970-01-01,1970-01-02", {"time": 0}) == {"time": (0.0, 86_400.0)}
    for given, dated in (("1", True), ("1h", False), ("0h", True), ("1h,2h", True)):
        with pytest.raises(InputError, match="--spacing is a positive distance"):
            lengths_of("spacing", given, {"time": dated})
    with pytest.raises(InputError, match="of dates 2024-01-01"):
        region_of("noon,1970-01-02", {"time": 0})


@pytest.mark.slow
def test_a_table_of_times_is_resampled_and_maps_are_empty_far_from_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(rows([f"2020-01-01T{n // 60:02}:{n % 60:02}" for n in 3 * DAYS + DAYS % 2]))
    options = ["--spacing", "10min", "--max_distance", "3min", "--periodic", "none", "--folds", "none"]
    assert main(["fill", "a.csv", *options, "--out", "b.csv"]) == 0
    found = np.genfromtxt("b.csv", delimiter=",", names=True, dtype=None, encoding=None)
    assert found["time"][:2].tolist() == ["2020-01-01", "2020-01-01T00:10:00.000"]
    empty = np.isnan(found["v"])
    assert f"{empty.sum()} of {len(empty)} samples are farther than 3min: left empty" in capsys.readouterr().out
    assert 4 <= empty.sum() <= 6  # of 54 minutes without points
    places = np.random.default_rng(0).uniform([172, -20], [188, -10], (60, 2))
    places[:, 0] = (places[:, 0] + 180) % 360 - 180
    np.savetxt("p.csv", np.c_[places, places[:, 1]], delimiter=",", header="lon,lat,v", comments="")
    assert main(["fill", "p.csv", "--coordinates", "lon,lat", "--values", "v", "--grid", "8,5", "--folds", "none",
                 "--max_distance", "1", "--out", "map.csv"]) == 0  # fmt: skip
    grid = np.genfromtxt("map.csv", delimiter=",", names=True)
    assert grid["lon"].min() > 171
    assert grid["lon"].max() < 189
    offset = (grid["lon"][:, None] - places[:, 0] + 180) % 360 - 180
    near = np.hypot(offset, grid["lat"][:, None] - places[:, 1]).min(1) <= 1
    np.testing.assert_array_equal(np.isfinite(grid["v"]), near)
