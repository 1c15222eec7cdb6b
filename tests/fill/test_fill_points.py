"""``pe-lightning fill`` for scattered points: maps and tables of places, equal to results in Python; refusals."""

import csv
from pathlib import Path

import numpy as np
import pytest

import pe_fill
from pe_lightning.__main__ import main

POINTS = np.random.default_rng(5).uniform([-20, 30], [40, 60], (80, 2))
COLUMNS = ["--coordinates", "lon,lat", "--values", "temp"]


def temperature(points: np.ndarray) -> np.ndarray:
    return 15 + 10 * np.sin(points[:, 0] / 20) * np.cos(points[:, 1] / 15)


@pytest.fixture(autouse=True)
def _stations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = np.c_[POINTS, temperature(POINTS)]
    np.savetxt("stations.csv", table, delimiter=",", header="lon,lat,temp", comments="")
    Path("places.csv").write_text("id,lat,lon\nA,45,3\nB,,4\nC,50,70\n")


@pytest.mark.slow
def test_the_command_writes_what_python_returns(capsys: pytest.CaptureFixture[str]) -> None:
    """A map beside a picture; the columns of the places, their values and standard deviations; held-out scores."""
    assert main(["fill", "stations.csv", *COLUMNS, "--grid", "6,4", "--out", "map.csv"]) == 0
    assert main(["fill", "stations.csv", *COLUMNS, "--at", "places.csv", "--out", "values.csv", "--folds", "none"]) == 0
    printed = capsys.readouterr().out
    assert "80 points, temp at (lon, lat)" in printed
    assert "delaunay" in printed
    assert "1 of 3 places have a missing coordinate" in printed
    assert "1 of 3 places are outside" in printed
    fit = pe_fill.fit_points({"lon": POINTS[:, 0], "lat": POINTS[:, 1]}, {"temp": temperature(POINTS)})
    with open("map.csv") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row["temp"]) for row in rows], fit.grid((6, 4)).values["temp"].ravel(), rtol=1e-6)
    with open("values.csv") as file:
        places = list(csv.DictReader(file))
    assert [(row["id"], row["lat"], row["lon"]) for row in places] == [("A", "45", "3"), ("B", "", "4"), ("C", "50", "70")]
    assert places[1]["temp"] == ""
    assert float(places[0]["temp"]) == pytest.approx(fit.predict([[3, 45]])[0, 0], rel=1e-6)
    if fit.has_std:
        assert places[1]["temp_std"] == ""
        assert float(places[0]["temp_std"]) == pytest.approx(fit.std([[3, 45]])[0, 0], rel=1e-4)
    assert fit.score[0] == pytest.approx(fit.scores[0].errors.item() * np.ptp(temperature(POINTS)))
    assert Path("map_map.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--coordinates", "lon,lat", "--grid", "4,4"], "need --values: --coordinates lon,lat --values temp"),
        (["--values", "temp", "--grid", "4,4"], "need --coordinates"),
        (["--out", "map.nc"], "'map.nc' is a map: if its rows are scattered points, add --coordinates lon,lat"),
        ([], "no cell is empty: if its rows are scattered points, add --coordinates lon,lat --values temp"),
        (["--coordinates", "lon,lat", "--values", "lon", "--grid", "4,4"], "'lon' is named as a coordinate and as a value"),
        ([*COLUMNS, "--grid", "1000000,1000000"], "of memory are free: set fewer"),
        (COLUMNS, "one of --grid 400,600, --spacing 0.05 and --like raster.tif for a map, or --at FILE"),
        ([*COLUMNS, "--grid", "4,4", "--region", "1,2,4,3"], "--region is W,E,S,N"),
        ([*COLUMNS, "--spacing", "0"], "--spacing is a positive distance"),
        ([*COLUMNS, "--like", "no.tif"], "no such file"),
        ([*COLUMNS, "--grid", "4,4", "--missing", "mask.png"], "numbers, such as -9999"),
        ([*COLUMNS, "--grid", "400"], "one number of samples for each of lon, lat"),
        ([*COLUMNS, "--grid", "4,many"], "such as 400,600; got '4,many'"),
        ([*COLUMNS, "--grid", "4,4", "--out", "map.jpg"], "written as .nc, .tif"),
        ([*COLUMNS, "--at", "places.csv", "--out", "values.nc"], ".csv or .npy"),
        ([*COLUMNS, "--at", "stations", "--out", "values.csv"], "no such file"),
        (["--coordinates", "lon,lat", "--values", "tmp", "--grid", "4,4"], "'tmp'; did you mean 'temp'"),
        ([*COLUMNS, "--grid", "4,4", "--upscale", "2"], "--upscale: not for tables of points"),
        ([*COLUMNS, "--grid", "4,4", "--folds", "blocks"], "random or none"),
        ([*COLUMNS, "--grid", "4,4", "--out", "places.csv"], "exists"),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(options: list[str], words: str, capsys) -> None:
    before = {path: path.read_bytes() for path in Path().iterdir()}
    out = [] if "--out" in options else ["--out", "out.csv"]
    assert main(["fill", "stations.csv", *options, *out]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert words in message
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


@pytest.mark.slow
def test_a_table_of_places_is_noticed_and_few_points_have_no_standard_deviations(capsys) -> None:
    rows = Path("stations.csv").read_text().splitlines()
    Path("gap.csv").write_text("\n".join([*rows[:40], ",,", *rows[40:]]) + "\n")
    assert main(["fill", "gap.csv", "--out", "series.csv", "--folds", "none", "--no_std"]) == 0
    assert "if they are scattered points, add --coordinates lon,lat --values temp" in capsys.readouterr().out
    Path("three.csv").write_text("\n".join(rows[:4]) + "\n")
    assert main(["fill", "three.csv", *COLUMNS, "--grid", "3,3", "--out", "map.csv", "--folds", "none"]) == 0
    assert "no standard deviations: the points are too few" in capsys.readouterr().out
    assert Path("map.csv").read_text().startswith("lon,lat,temp\n")


@pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
def test_values_that_mark_missing_ones(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """Stations with -9999 and -999: named where they are used, and left out where they are given."""
    marked = np.r_[temperature(POINTS)[:-6], [-9999] * 3, [-999] * 3]
    np.savetxt("marked.csv", np.c_[POINTS, marked], delimiter=",", header="lon,lat,temp", comments="", fmt="%.17g")
    options = ["fill", "marked.csv", *COLUMNS, "--grid", "6,4", "--model", "exact", "--folds", "none"]
    assert main([*options, "--missing", "-9999,-999", "--out", "a.csv"]) == 0
    printed = "".join(capsys.readouterr()) + caplog.text
    assert "far outside" not in printed
    given = {"lon": POINTS[:-6, 0], "lat": POINTS[:-6, 1]}
    fit = pe_fill.fit_points(given, {"temp": marked[:-6]}, model="exact")
    found = np.genfromtxt("a.csv", delimiter=",", names=True)["temp"]
    np.testing.assert_allclose(found, fit.grid((6, 4), std=False).values["temp"].ravel(), rtol=1e-6)
    caplog.clear()
    assert main([*options, "--missing=-999", "--out", "b.csv"]) == 0
    printed = "".join(capsys.readouterr()) + caplog.text
    assert "-9999 in 3 of 80 samples is far outside the others" in printed
    assert "--missing=-9999" in printed
    caplog.clear()
    pe_fill.fit_points(POINTS[:-3], marked[:-3], model="exact")
    printed = "".join(capsys.readouterr()) + caplog.text
    assert "-9999 in 3 of 77 samples is far outside the others" in printed
    assert "put NaN in its place" in printed
    assert "--missing" not in printed


@pytest.mark.slow
def test_maps_of_a_region_at_a_spacing_and_like_a_raster(capsys: pytest.CaptureFixture[str]) -> None:
    """NetCDF is (lat, lon) with CF attributes; a raster gives its pixels and its coordinate reference system."""
    xarray = pytest.importorskip("xarray", reason="of the extra geo")
    rasterio = pytest.importorskip("rasterio", reason="of the extra geo")
    options = ["fill", "stations.csv", "--coordinates", "lat,lon", "--values", "temp", "--folds", "none"]
    assert main([*options, "--region", "-10,20,35,50", "--spacing", "5,10", "--out", "map.nc"]) == 0
    fit = pe_fill.fit_points({"lat": POINTS[:, 1], "lon": POINTS[:, 0]}, {"temp": temperature(POINTS)})
    with xarray.open_dataset("map.nc", engine="h5netcdf") as found:
        assert found["temp"].dims == found["temp_std"].dims == ("lat", "lon")
        np.testing.assert_array_equal(found["lat"], [35, 40, 45, 50])
        np.testing.assert_array_equal(found["lon"], [-10, 0, 10, 20])
        expected = fit.grid({"lon": found["lon"].values, "lat": found["lat"].values})
        np.testing.assert_allclose(found["temp"], expected.values["temp"], rtol=1e-6)
        assert found["lon"].attrs == {"standard_name": "longitude", "units": "degrees_east", "axis": "X"}
        assert found["temp"].attrs["ancillary_variables"] == "temp_std"
        mapping = {**found["temp"].encoding, **found["temp"].attrs}["grid_mapping"]
        assert found[mapping].attrs["grid_mapping_name"] == "latitude_longitude"
    turn, crs = rasterio.Affine(2.5, 0, -12, 0, -1.5, 51), "EPSG:3035"
    with rasterio.open(
        "like.tif", "w", driver="GTiff", height=5, width=4, count=1, dtype="uint8", transform=turn, crs=crs
    ) as tiff:
        tiff.write(np.zeros((5, 4), "u1"), 1)
    assert main([*options, "--like", "like.tif", "--out", "raster.tif"]) == 0
    with rasterio.open("raster.tif") as tiff:
        assert (tiff.shape, tiff.crs, tiff.descriptions) == ((5, 4), rasterio.CRS.from_string(crs), ("temp", "temp_std"))
        assert tiff.transform.almost_equals(turn)
        pixels = {"lat": 51 - 1.5 * (np.arange(5) + 0.5), "lon": -12 + 2.5 * (np.arange(4) + 0.5)}
        np.testing.assert_allclose(tiff.read(1), fit.grid(pixels).values["temp"], rtol=1e-6)
    with rasterio.open("like.tif", "r+") as tiff:
        tiff.transform = rasterio.Affine(1000, 0, 5e5, 0, -1000, 5e6)  # of points in degrees
    assert main([*options, "--like", "like.tif", "--out", "other.tif"]) == 2
    assert "lat of the map is 4.9955e+06 to 4.9995e+06, and of the points" in capsys.readouterr().err
    assert not Path("other.tif").exists()


@pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
@pytest.mark.parametrize(("start", "region"), [(0, "-60,60,-30,30"), (-180, "120,-120,-30,30")])
def test_regions_beyond_the_longitudes_of_the_points(start: float, region: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Across the date line, or with other longitudes than the points have: these are then periodic."""
    xarray = pytest.importorskip("xarray", reason="of the extra geo")
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(start, start + 360, 150), rng.uniform(-60, 60, 150)

    def field(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
        return 10 + 3 * np.cos(5 * np.radians(lon)) + lat / 30

    table = np.c_[lon, lat, field(lon, lat)]
    np.savetxt("globe.csv", table, delimiter=",", header="lon,lat,temp", comments="", fmt="%.9g")
    options = ["fill", "globe.csv", "--coordinates", "lon,lat", "--values", "temp", "--folds", "none", "--grid", "7,5"]
    assert main([*options, f"--region={region}", "--out", "globe.nc"]) == 0
    assert "taken as periodic" in capsys.readouterr().out
    Path("nowhere.csv").write_text("lon,lat\n")
    assert main([*options[:-2], "--model", "exact", "--at", "nowhere.csv", "--out", "at.csv"]) == 0
    with xarray.open_dataset("globe.nc", engine="h5netcdf") as found:
        assert (np.diff(found["lon"]) == 20).all()
        expected = field(found["lon"].values, found["lat"].values[:, None])
        np.testing.assert_allclose(found["temp"], expected, atol=0.2)
