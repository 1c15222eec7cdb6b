"""Scattered points: tables of rows as signals, their axes in the user's units, exact fits, and refusals."""

import logging
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from pe_fill import PointsDataModule
from pe_fill.formats.point_axes import axes_of_points
from pe_fill.formats.points import PointArrays, PointSource
from pe_lightning import fit
from pe_lightning.errors import InputError
from pe_lightning.estimators import LinearRidge
from pe_lightning.signals import Axis, Batching, GridSampling, RandomSampling, SignalInfo
from pe_lightning.solvers import solve_grid
from pe_lightning.training import ComplexLinear, SignalDataModule, SimpleMLP

ROWS = "a,1,50,3.5,40\nb,3,52,,41\nc,2,51,5.5,42\nd,1,50,4.5,46\n"


def table(path: Path, rows: str = ROWS, header: str = "station,lon,lat,temp,hum\n") -> str:
    path.write_text(header + rows)
    return str(path)


def places_of(raw) -> np.ndarray:
    return np.stack([axis.restore(column) for axis, column in zip(raw.axes, raw.points.T, strict=True)], 1)


def test_rows_are_signals_at_places_in_the_users_units(tmp_path, caplog):
    """Missing numbers are left out and counted, rows at one place are averaged, or kept as they are."""
    path = table(tmp_path / "s.csv")
    with caplog.at_level(logging.INFO):
        raw = PointSource(path, "lon,lat", "temp, hum").read()
    assert (raw.names, raw.grid, raw.channels) == (("temp", "hum"), (2,), 1)
    np.testing.assert_allclose(places_of(raw), [[1, 50], [2, 51]])
    np.testing.assert_array_equal(np.stack(list(raw.blocks()))[..., 0], [[4.0, 5.5], [43.0, 42.0]])
    first, second = (record.getMessage() for record in caplog.records)
    assert "1 of 4 rows have a missing number" in first
    assert "2 rows share 1 place(s)" in second
    assert "at lon 1, lat 50, 'temp' by 1, 'hum' by 6" in second
    kept = PointSource(path, "lon,lat", "temp", duplicates="keep").read()
    assert np.stack(list(kept.blocks()))[0, :, 0].tolist() == [3.5, 5.5, 4.5]


def test_every_format_gives_the_same_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="of the extra geo")
    import pyarrow

    rng = np.random.default_rng(0)
    day = np.array(["2024-01-31", "2024-02-01T12:00", "2024-03-01"], "datetime64[s]")
    columns = {"x": rng.normal(size=3) * 1e6, "y": rng.normal(size=3), "v": rng.normal(size=3)}
    lines = ["\t".join(map(repr, row)) for row in zip(*(column.tolist() for column in columns.values()), strict=True)]
    (tmp_path / "a.tsv").write_text("x\ty\tv\n" + "\n".join(lines))
    np.savez(tmp_path / "a.npz", **columns)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["xy"], file["v"] = np.stack([columns["x"], columns["y"]], 1), columns["v"]
    parquet.write_table(pyarrow.table({**columns, "day": day}), tmp_path / "a.parquet")
    wanted = np.stack([columns["x"], columns["y"]], 1)
    for name, coordinates in (("a.tsv", "x,y"), ("a.npz", ["x", "y"]), ("a.h5", "xy"), ("a.parquet", "x,y")):
        raw = PointSource(str(tmp_path / name), coordinates, "v").read()
        np.testing.assert_allclose(places_of(raw), wanted, rtol=1e-12, err_msg=name)
        np.testing.assert_array_equal(next(raw.blocks())[:, 0], columns["v"], err_msg=name)
    (tmp_path / "day.csv").write_text("day,v\n" + "\n".join(f"{d}Z,{v}" for d, v in zip(day, columns["v"], strict=True)))
    for name in ("a.parquet", "day.csv"):
        raw = PointSource(str(tmp_path / name), "day", "v").read()
        assert raw.axes[0].restore(raw.points[:, 0]).tolist() == day.astype("datetime64[ms]").tolist()


def test_axes_are_affine_maps_that_a_checkpoint_holds():
    """The last sample of N lies at (N - 1) / N, as on a grid; axes of one unit have cells that are cubes."""
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(-20, 40, 200), rng.uniform(30, 50, 200)
    axes = axes_of_points(["lon", "lat"], [lon, lat], [False, False], {}, None)
    assert (axes[0].size, axes[1].size) == (25, 9)
    assert axes[0].to_unit(lon).max() == pytest.approx(24 / 25)
    assert axes[0].to_unit(lon).min() == 0
    np.testing.assert_allclose(axes[1].restore(axes[1].to_unit(lat)), lat)
    other = axes_of_points(["lon", "lat"], [lon, lat], [False, False], {}, False)
    assert (other[0].size, other[1].size) == (15, 15)
    (wrapped,) = axes_of_points(["lon"], [lon], [False], {"lon": 360.0}, None)
    assert (wrapped.low, wrapped.length) == (-180, 360)
    assert wrapped.to_unit([-180.0, 180.0, 190.0]) == pytest.approx([0, 0, 10 / 360])
    info = SignalInfo(("v",), (3, 2), 1, axes=(Axis("t", 5.0, 1.0, 3, time=True, samples=(5.0, 4.0, 1.0)), axes[1]))
    assert SignalInfo.from_dict(info.to_dict()) == info


def test_the_exact_fit_is_least_squares_of_the_features_at_scaled_places():
    """NumPy's least squares of the Kronecker products of Gaussians at affinely scaled coordinates, with a ridge."""
    rng = np.random.default_rng(1)
    x, y = rng.uniform(100, 700, 90), rng.uniform(-3, 3, 90)
    v = np.sin(x / 90) * y + 20
    encoders = [{"name": "gau", "num_features": k, "sigma": 0.2} for k in (5, 4)]
    data = SignalDataModule(PointArrays({"x": x, "y": y}, {"v": v}), sampling=GridSampling(1))
    model = fit(data, model=ComplexLinear(encoders, solver="exact", ridge=1e-3))

    def features(places: np.ndarray) -> np.ndarray:
        each = []
        for axis, column, k in zip(data.info.axes, places.T, (5, 4), strict=True):
            u = (column - axis.low) / ((axis.high - axis.low) * axis.size / (axis.size - 1))
            each.append(np.exp(-((u[:, None] - np.arange(k) / k) ** 2) / (2 * 0.2**2)))
        return (each[0][:, :, None] * each[1][:, None, :]).reshape(len(places), -1)

    known, wanted = features(np.stack([x, y], 1)), features(np.array([[300.0, 1.0], [650.0, -2.0]]))
    root = np.sqrt(1e-3 * (known**2).sum(1).mean() * np.eye(20))
    weights = np.linalg.lstsq(np.vstack([known, root]), np.r_[v - v.mean(), np.zeros(20)], rcond=None)[0]
    lon, lat = data.info.axes
    unit = torch.tensor(np.stack([lon.to_unit([300.0, 650.0]), lat.to_unit([1.0, -2.0])], 1))
    found = data.info.scaling.restore(model(unit.float()).detach()[0, :, 0].numpy(), 0)
    np.testing.assert_allclose(found, wanted @ weights + v.mean(), rtol=2e-3)


def test_held_out_rows_are_scored_and_points_are_batched(tmp_path, make_trainer):
    """Rows outside the split are scored, with any model; a checkpoint has the axes."""
    rng = np.random.default_rng(2)
    places = rng.uniform(0, 9, (60, 2))
    rows = "".join(f"s,{x},{y},{np.sin(x) + y},{x}\n" for x, y in places)
    data = PointsDataModule(table(tmp_path / "s.csv", rows), "lon,lat", "temp,hum", batching=Batching("points", 16))
    model = SimpleMLP("rff", depth=1, hidden_size=8)
    trainer = make_trainer(max_steps=4)
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    batch = data.evaluation_batch()
    assert int(batch.mask.sum()) == 12
    assert batch.mask.equal(~batch.train_mask)
    error = (model(batch.coords[0]) - batch.values)[:, batch.mask[0], 0].square().mean(1)
    torch.testing.assert_close(model.scores["test/psnr"], -10 * error.detach().double().log10(), rtol=1e-5, atol=1e-5)
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    again = SimpleMLP.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    assert again.info.axes == data.info.axes
    assert again.info.num_points == 60


ONE_PLACE = "a,1,50,3,1\nb,2,51,4,2\nc,1,50,5,3\n"


@pytest.mark.parametrize(
    ("rows", "arguments", "words"),
    [
        (ROWS, {"coordinates": "lon,latt"}, ["no column|0 columns", "'latt'", "did you mean 'lat'", "temp, hum"]),
        (ROWS, {"coordinates": "lon,lon"}, ["distinct names"]),
        (ROWS, {"coordinates": "station,lon,lat,temp"}, ["4 columns", "1 to 3 axes"]),
        (ROWS, {"values": "lon,temp"}, ["'lon' is named as a coordinate and as a value"]),
        ("", {}, ["has no rows of numbers below its header"]),
        (ROWS, {"values": "station"}, ["'station'", "line 2", "'a' is not a number"]),
        (ROWS, {"coordinates": "lon,station"}, ["line 2", "'a'", "a date in ISO 8601"]),
        ("a,1,50,,1\nb,2,51,,2\n", {}, ["none of 2 rows", "temp has none at all"]),
        ("a,1,50,3,1\nb,1,51,4,2\n", {}, ["'lon' is 1 in every row", "leave it out"]),
        ("a,1,50,3,1\nb,2,51,3,2\n", {}, ["'temp' is 3 in every row"]),
        ("a,-1.7e308,50,3,1\nb,1.7e308,51,4,2\n", {}, ["'lon'", "too far for float64", "another unit"]),
        (ONE_PLACE, {"duplicates": "error"}, ["2 rows share 1 place", "'temp' by 2", "duplicates: average or keep"]),
        (ROWS, {"duplicates": "mean"}, ["duplicates must be", "average"]),
        (ROWS, {"periodic": "long"}, ["periodic is NAME", "lon (numbers), lat", "got 'long'"]),
        (ROWS, {"periodic": "lon=-3"}, ["positive number", "'lon=-3'"]),
        (ROWS, {"periodic": "lon=24h"}, ["of dates with a unit", "'lon=24h'"]),
        (ROWS, {"periodic": "auto"}, ["named ones, such as time=24h"]),
    ],
)
def test_what_no_model_can_be_fitted_to_is_refused(rows, arguments, words, tmp_path):
    path = table(tmp_path / "s.csv", rows)
    with pytest.raises(InputError) as error:
        PointSource(path, **{"coordinates": "lon,lat", "values": "temp", **arguments}).read()
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert any(part in message for part in word.split("|")), message


def test_random_rows_are_not_those_that_the_same_seed_draws_first():
    """Coordinates drawn by NumPy with the seed of the split would be split into a left and a right part."""
    x = np.random.default_rng(0).uniform(size=500)
    data = SignalDataModule(PointArrays({"x": x}, {"v": np.sin(9 * x)}), sampling=RandomSampling(0.5, seed=0))
    held_out = data.evaluation_batch().coords[0, data.evaluation_batch().mask[0], 0]
    assert 0.4 < float((held_out < 0.5).double().mean()) < 0.6


def test_a_held_out_outlier_changes_no_trained_value(tmp_path):
    places, values = np.stack(np.divmod(np.arange(288), 18), 1), np.random.default_rng(0).random(288)

    def read(name):
        np.savetxt(tmp_path / name, np.c_[places, values], "%.9g", ",", header="y,x,v", comments="")
        return PointsDataModule(str(tmp_path / name), coordinates=["y", "x"], values=["v"])

    expected = (signals := read("a.csv").signals).train_batch().values
    values[np.flatnonzero(~signals.split.train_mask()[0].numpy())[3]] = 1e9
    assert torch.equal(read("b.csv").train_batch().values, expected)
    assert (float(expected.min()), float(expected.max())) == (0, 1)


def test_a_table_of_a_grid_is_the_grid(tmp_path):
    """Rows in any order, and without three of them."""
    places = np.random.default_rng(0).permutation([(x, y) for x in range(24) for y in range(20)])
    value = [np.sin(x / 5) * np.cos(y / 4) for x, y in places]
    for lost in (0, 3):
        rows = "".join(f"s,{x},{y},{v},0\n" for (x, y), v in zip(places[lost:], value[lost:], strict=True))
        data = PointsDataModule(
            table(tmp_path / f"{lost}.csv", rows), "lon,lat", "temp", sampling={"name": "grid", "stride": 1}
        )
        found = LinearRidge({"name": "gau", "width": "auto"}).fit(data.signals)
        coords = data.signals.points
        axes = [torch.unique(c) for c in coords.unbind(-1)]
        if not lost:
            whole = np.sin(np.arange(24) / 5)[:, None] * np.cos(np.arange(20) / 4)
            scaled = torch.from_numpy((whole - whole.min()) / np.ptp(whole)).float()[None, ..., None]
            expected = solve_grid(scaled, "gau", axes, sigma="auto")
        assert found.solution.solver == "grid"
        assert found.solution.choice["value"] == pytest.approx(expected.choice.report()["value"])
        torch.testing.assert_close(found.grid(axes), expected.predict(axes), atol=1e-4, rtol=0)
