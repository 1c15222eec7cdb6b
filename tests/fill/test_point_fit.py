"""Fits to scattered points from Python and by command: values in the user's units, maps, tables of places."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

import pe_fill
import pe_lightning
from pe_fill import Adaptive
from pe_fill.estimators.fitted_points import PointFit
from pe_fill.formats.points import PointArrays
from pe_fill.results.maps import PointMap, check_map
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.training import ComplexLinear, SignalDataModule, SimpleMLP

RNG = np.random.default_rng(0)
PLACES = RNG.uniform([-20, 30], [40, 60], (400, 2))


def weather(places: np.ndarray) -> np.ndarray:
    return 15 + 10 * np.sin(places[:, 0] / 20) * np.cos(places[:, 1] / 15)


def write_stations(path: Path) -> str:
    rows = "".join(f"{x!r},{y!r},{v!r}\n" for (x, y), v in zip(PLACES.tolist(), weather(PLACES).tolist(), strict=True))
    path.write_text("lon,lat,temp\n" + rows)
    return str(path)


@pytest.fixture(scope="module")
def fitted() -> PointFit:
    return pe_fill.fit_points({"lon": PLACES[:, 0], "lat": PLACES[:, 1]}, {"temp": weather(PLACES)}, model="exact")


def test_values_anywhere_in_the_users_units(fitted):
    """Columns by name in any order, arrays, one or several values; the order of the rows has no effect."""
    wanted = RNG.uniform([-15, 33], [35, 57], (20, 2))
    found = fitted.predict(wanted)
    assert found.shape == (20, 1)
    np.testing.assert_allclose(found[:, 0], weather(wanted), atol=0.05)
    np.testing.assert_array_equal(fitted.predict({"lat": wanted[:, 1], "lon": wanted[:, 0]}), found)
    order = RNG.permutation(len(PLACES))
    again = pe_fill.fit_points(PLACES[order], weather(PLACES)[order], model="exact").predict(wanted)
    np.testing.assert_allclose(again, found[:, 0], atol=2e-3)
    several = pe_fill.fit_points(PLACES, np.stack([weather(PLACES), PLACES[:, 0]], 1), model="exact")
    assert several.predict(wanted).shape == (20, 2)
    np.testing.assert_allclose(several.predict(wanted)[:, 1], wanted[:, 0], atol=0.5)
    days = np.datetime64("2024-01-01") + np.arange(60)
    series = pe_fill.fit_points({"day": days}, np.sin(np.arange(60) / 9))
    assert series.predict({"day": ["2024-01-11T12:00"]}) == pytest.approx(np.sin(10.5 / 9), abs=5e-3)


def test_a_map_has_its_coordinates_in_every_format(fitted, tmp_path):
    found = fitted.grid([7, 5], std=False)
    assert (found.axes["lon"][0], found.axes["lon"][-1]) == pytest.approx((PLACES[:, 0].min(), PLACES[:, 0].max()))
    lon, lat = np.meshgrid(*found.axes.values(), indexing="ij")
    np.testing.assert_allclose(found.values["temp"].ravel(), fitted.predict(np.stack([lon.ravel(), lat.ravel()], 1))[:, 0])
    found.std["temp"] = np.ones((7, 5))
    with found.write(tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[1]["lat"]) == found.axes["lat"][1]
    assert float(rows[5]["temp"]) == found.values["temp"][1, 0]
    assert rows[5]["temp_std"] == "1.0"
    table = np.load(found.write(tmp_path / "a.npy"))
    assert table.shape == (7, 5)
    assert table["temp"][2, 3] == found.values["temp"][2, 3]
    xarray = pytest.importorskip("xarray", reason="of the extra geo")
    rasterio = pytest.importorskip("rasterio", reason="of the extra geo")
    with xarray.open_dataset(found.write(tmp_path / "a.nc"), engine="h5netcdf") as dataset:
        assert dataset["temp"].sel(lon=found.axes["lon"][2], lat=found.axes["lat"][3]) == found.values["temp"][2, 3]
        assert set(dataset) == {"temp", "temp_std", "crs"}
    with rasterio.open(found.write(tmp_path / "a.tif")) as tiff:
        assert tiff.descriptions == ("temp", "temp_std")
        assert tiff.crs.to_epsg() == 4326
        row, column = map(int, tiff.index(found.axes["lon"][2], found.axes["lat"][3]))
        assert tiff.read(1)[row, column] == found.values["temp"][2, 3]


@pytest.mark.slow  # several fits
def test_a_checkpoint_predicts_what_python_does(tmp_path, monkeypatch):
    """fit and predict by command, at places and on a grid, against fit_points with the same rows."""
    monkeypatch.chdir(tmp_path)
    options = ["--data.coordinates", "lon,lat", "--data.values", "temp", "--data.sampling", "grid"]
    options += ["--data.sampling.stride", "1", "--encoder", "laplace", "--trainer.logger", "false"]
    assert main(["fit", write_stations(tmp_path / "s.csv"), *options]) == 0
    (checkpoint,) = Path("runs").rglob("last.ckpt")
    Path("places.csv").write_text("id,lat,lon\nA,45,3\nB,,4\nC,50,10\n")
    assert main(["predict", "--ckpt_path", str(checkpoint), "--at", "places.csv"]) == 0
    assert main(["predict", "--ckpt_path", str(checkpoint), "--output_shape", "4", "3"]) == 0
    with next(Path("runs").rglob("places.csv")).open() as file:
        rows = list(csv.DictReader(file))
    same = pe_fill.fit_points(*np.split(np.c_[PLACES, weather(PLACES)], [2], 1), model="exact", encoder="laplace")
    assert [(row["id"], row["lat"]) for row in rows] == [("A", "45"), ("B", ""), ("C", "50")]
    assert rows[1]["temp"] == ""
    found = [float(row["temp"]) for row in rows[::2]]
    np.testing.assert_allclose(found, same.predict([[3, 45], [10, 50]])[:, 0], rtol=1e-5)
    grid = np.load(next(Path("runs").rglob("map.npy")))
    np.testing.assert_allclose(grid["temp"], same.grid((4, 3), std=False).values["value"], rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda fit: fit.predict(np.zeros((3, 3))), r"shape \(P, 2\), for lon, lat; got \(3, 3\)"),
        (lambda fit: fit.predict({"lon": [1.0]}), "lack lat; there are lon"),
        (lambda fit: fit.predict([[1.0, np.nan]]), "1 of 1 places have a missing coordinate"),
        (lambda fit: fit.predict({"lon": ["east"], "lat": [1.0]}), "'lon' holds"),
        (lambda fit: fit.grid([10]), "1 sizes, and the points have 2 axes: give one for each of lon, lat"),
        (lambda fit: fit.grid([10, 0]), "integer >= 1"),
        (lambda fit: pe_fill.fit_points(PLACES, weather(PLACES)[:9]), "one row per point"),
        (lambda fit: pe_fill.fit_points(np.zeros((5, 4)), np.zeros(5)), r"\(P, 1 to 3\)"),
        (lambda fit: pe_fill.fit_points(PLACES, weather(PLACES), model="best"), "model must be one of auto"),
        (lambda fit: check_map(Path("map.png")), "written as .nc, .tif"),
        (lambda fit: PointMap({"x": np.arange(3.0)}, {}).write("a.tif"), "two numeric axes"),
    ],
)
def test_wrong_arguments_are_refused(fitted, call, words):
    with pytest.raises(InputError, match=words):
        call(fitted)


def test_a_missing_package_is_named_with_its_extra(fitted, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "xarray", None)
    with pytest.raises(InputError, match=r"NetCDF needs the package xarray.*pip install 'pe-lightning\[geo\]'"):
        fitted.grid([2, 2], std=False).write("a.nc")


MIXED = [{"name": "linf"}, {"name": "gau", "sigma": 0.1}]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["laplace", MIXED, None], ids=["shifted", "linf", "adaptive"])
def test_the_seam_of_a_periodic_axis_has_no_jump(model):
    """Values on both sides of the date line agree, which those of a fit without a period do not."""
    longitudes, latitudes = RNG.uniform(-180, 180, 400), RNG.uniform(-60, 60, 400)
    values = np.cos(np.radians(longitudes) * 2 + 1) * np.cos(np.radians(latitudes))
    seam = {"lon": [180 - 1e-6, -180 + 1e-6, 180.0, 540.0], "lat": [20.0, 20.0, 20.0, 20.0]}
    jumps = []
    for periodic in ("lon", None):
        made = Adaptive() if model is None else ComplexLinear(model, solver="exact", ridge=1e-4)
        fit = pe_fill.fit_points({"lon": longitudes, "lat": latitudes}, values, model=made, periodic=periodic)
        found = fit.predict(seam)
        jumps.append(np.ptp(found))
        if periodic:
            assert fit.grid([4, 2], std=False).axes["lon"].tolist() == [-180, -90, 0, 90]
    # Adaptive is not continuous between its cells: at the seam as elsewhere
    assert jumps[0] < (0.03 if model is None else 1e-4)
    assert jumps[1] > max(1e-3, 2 * jumps[0])
    assert fit.axes[0].periodic is False


def test_a_perceptron_refuses_a_periodic_axis():
    data = SignalDataModule(PointArrays({"lon": PLACES[:, 0]}, {"temp": weather(PLACES)}, periodic="lon"), "grid")
    with pytest.raises(InputError, match="SimpleMLP has no periodic axes, and lon is one"):
        SimpleMLP("rff").build_from(data)


def test_encoders_without_periodic_features_say_which_have_them():
    with pytest.raises(InputError, match=r"'rff' has no periodic features.*use linf or a shifted"):
        pe_lightning.create_encoder("rff").periodic()
    x = torch.rand(7, dtype=torch.float64)
    features = pe_lightning.create_encoder("linf", num_features=8).periodic()
    torch.testing.assert_close(features(x), features(x + 1), atol=1e-9, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("frequency", [25, 6], ids=["rough", "smooth"])
def test_intervals_hold_their_share_where_stations_are_clustered_and_questions_are_everywhere(frequency):
    """Errors of held-out stations of a cluster are smaller than those between clusters, of smooth fields by far."""
    levels, shares = (0.5, 0.9, 0.95), []
    for seed in range(3):
        random = np.random.default_rng(seed)
        centres, waves, phase = random.random((8, 2)), random.normal(0, frequency, (300, 2)), random.uniform(0, 6.3, 300)

        def surface(places: np.ndarray) -> np.ndarray:
            return np.cos(places @ waves.T + phase).sum(1) / 12  # noqa: B023

        clusters = centres[random.integers(0, 8, 250)] + 0.03 * random.normal(size=(250, 2))
        places, wanted = np.concatenate([clusters, random.random((60, 2))]), random.random((600, 2))
        fit = pe_fill.fit_points(places, surface(places))
        errors, bounds = np.abs(fit.predict(wanted) - surface(wanted)), [fit.interval(wanted, level) for level in levels]
        shares.append([np.mean(errors <= (high - low) / 2) for low, high in bounds])
    assert np.mean(shares, 0) == pytest.approx(levels, abs=0.07)


@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.choice.ChoiceWarning")  # so few points
@pytest.mark.parametrize(("model", "counts"), [("auto", (2, 3, 6, 7)), ("adaptive", (6, 7, 10)), ("exact", (2, 3))])
def test_few_points_have_a_score_where_some_can_be_held_out(model, counts):
    for count in counts:
        fit = pe_fill.fit_points(RNG.random((count, 2)), RNG.random(count), model=model)
        assert np.isfinite(fit.predict(RNG.random((4, 2)))).all()
        assert np.isfinite(fit.score) == fit.has_scores == bool(fit.interpolation[0][0])
    assert fit.has_scores


@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.choice.ChoiceWarning")
def test_two_points_make_a_map_without_a_score(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x,y,v\n0,0,1\n1,1,2\n")
    assert main(["fill", "a.csv", "--coordinates", "x,y", "--values", "v", "--grid", "4,4", "--out", "b.npy"]) == 0
    assert "no score: too few points to hold some out" in capsys.readouterr().out
