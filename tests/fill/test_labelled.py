"""Labelled arrays: NetCDF, Zarr and GeoTIFF at their own coordinates, filled in files and in memory; refusals."""

import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import pe_fill
import pe_lightning
from pe_fill import LabelledDataModule
from pe_fill.filling import read_file
from pe_fill.formats.labelled import LabelledSource, axes_of
from pe_fill.formats.netcdf import edit_labelled, original_of, packed_values
from pe_fill.formats.points import PointSource
from pe_fill.formats.times import Clock
from pe_fill.results.before_after import draw_before_after
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.signals import Axis
from pe_lightning.signals.sources.rows import RowSource
from pe_lightning.training import ComplexLinear

xarray = pytest.importorskip("xarray", reason="of the extra geo")
h5netcdf = pytest.importorskip("h5netcdf", reason="of the extra geo")
rasterio = pytest.importorskip("rasterio", reason="of the extra geo")

LATITUDES = np.array([60.0, 57, 55, 54.5, 50, 47, 46, 44, 43, 40, 36, 35])
LONGITUDES = np.linspace(-10, 20, 14)


def field() -> np.ndarray:
    return 15 + 5 * np.sin(LONGITUDES / 9) * np.cos(LATITUDES[:, None] / 9)


@pytest.fixture
def sst():
    """Sea-surface temperatures of two days with gaps, at uneven descending latitudes."""
    values = np.stack([field(), field() + 1]).astype(np.float32)
    values[np.random.default_rng(3).random(values.shape) < 0.2] = np.nan
    days = np.array(["2024-01-01", "2024-01-02"], "datetime64[ns]")
    coordinates = {"time": days, "lat": LATITUDES, "lon": LONGITUDES}
    return xarray.DataArray(values, coordinates, ("time", "lat", "lon"), "sst", {"units": "degC"})


def written(array, path: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr 3 warns about the metadata that xarray consolidates
        if path.suffix == ".zarr":
            array.to_dataset().to_zarr(path)
        else:
            array.to_dataset().assign(depth=("lat", LATITUDES)).to_netcdf(path, engine="h5netcdf")
    return str(path)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_signals_are_at_the_coordinates_of_the_file(sst, suffix, tmp_path):
    pytest.importorskip("zarr" if suffix == ".zarr" else "h5netcdf", reason="of the extra geo")
    data = LabelledDataModule(written(sst, tmp_path / f"a{suffix}"), variable="sst", dims="lat,lon", sampling="random")
    data.prepare()
    lat, lon = data.info.axes
    assert data.info.names == ("sst-0", "sst-1")
    np.testing.assert_allclose(lat.restore(data.signals.axes[0].double().numpy()), LATITUDES, rtol=1e-6)
    np.testing.assert_allclose(lon.restore(data.signals.axes[1].double().numpy()), LONGITUDES, rtol=1e-5, atol=1e-5)
    assert (lat.samples is None, lon.samples is None) == (False, True)
    assert data.signals.num_missing == np.isnan(sst.values).sum((1, 2)).tolist()
    swapped = LabelledSource(written(sst, tmp_path / f"b{suffix}"), "sst", ["lon", "lat"]).read()
    assert swapped.grid == (14, 12)


def test_the_exact_fit_has_features_at_uneven_coordinates(tmp_path):
    """NumPy's least squares of Gaussians at the scaled latitudes and longitudes of the file."""
    array = xarray.DataArray(field(), {"lat": LATITUDES, "lon": LONGITUDES}, ("lat", "lon"), "sst")
    data = LabelledDataModule(written(array, tmp_path / "a.nc"), variable="sst", sampling={"name": "grid", "stride": 1})
    encoders = [{"name": "gau", "num_features": k, "sigma": 0.2} for k in (5, 6)]
    model = pe_lightning.fit(data, model=ComplexLinear(encoders, solver="exact", ridge=1e-6, center=False))
    unit = [(LATITUDES - 60) / (35 - 60) * 11 / 12, np.arange(14) / 14]
    features = [np.exp(-((u[:, None] - np.arange(k) / k) ** 2) / (2 * 0.2**2)) for u, k in zip(unit, (5, 6), strict=True)]
    joint = np.kron(*features)
    known = (field() - field().min()) / np.ptp(field())
    root = np.sqrt(1e-6 * (joint**2).sum(1).mean()) * np.eye(30)
    weight = np.linalg.lstsq(np.vstack([joint, root]), np.r_[known.ravel(), np.zeros(30)], rcond=None)[0]
    with torch.no_grad():
        found = model.predict_step([torch.tensor(u, dtype=torch.float32) for u in unit])[0, ..., 0].numpy()
    np.testing.assert_allclose(found.ravel(), joint @ weight, atol=2e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
def test_a_filled_array_keeps_known_values_coordinates_and_attributes(sst, tmp_path, monkeypatch):
    """In memory and by command alike; uneven latitudes are used as they are, which their numbers would not be.

    A file with the name of deviations that the result does not need is no obstacle.
    """
    monkeypatch.chdir(tmp_path)
    sst["lat"] = 60 - 25 * (np.arange(12) / 11) ** 3
    truth = np.stack([15 + 5 * np.sin(LONGITUDES / 9) * np.cos(sst["lat"].values[:, None] / 9) + day for day in (0, 1)])
    sst.values[np.isfinite(sst.values)] = truth[np.isfinite(sst.values)]
    options = {"dims": ["lat", "lon"], "folds": "none", "model": "exact"}
    filled = pe_fill.xarray.fill(sst, **options)
    known = np.isfinite(sst.values)
    assert filled.attrs == {"units": "degC"}
    assert filled.dtype == sst.dtype
    assert filled.dims == sst.dims
    assert filled.coords.equals(sst.coords)
    np.testing.assert_array_equal(filled.values[known], sst.values[known])
    error = np.abs(filled.values - truth)[~known].mean()
    counted = pe_fill.xarray.fill(sst.assign_coords(lat=np.arange(12.0)), **options)
    assert error < 0.01
    assert np.abs(counted.values - filled.values)[~known].mean() > 0.001, "the latitudes matter"
    path = written(sst, tmp_path / "a.nc")
    Path("b_std.npy").touch()
    options = ["--variable", "sst", "--dims", "lat,lon", "--folds", "none", "--model", "exact"]
    assert main(["fill", path, *options, "--out", "b.nc"]) == 0
    with xarray.open_dataset("b.nc", engine="h5netcdf") as result:
        np.testing.assert_array_equal(result["sst"].values, filled.values)
        assert result["sst"].attrs["units"] == "degC"
        np.testing.assert_array_equal(result["depth"].values, LATITUDES)


@pytest.mark.parametrize(("dims", "south_first"), [(("lat", "lon"), False), (("lat", "lon"), True), (("lon", "lat"), True)])
def test_pictures_of_a_filled_array_have_north_at_the_top(dims, south_first):
    array = xarray.DataArray(np.full((12, 14), 0.1), {"lat": LATITUDES, "lon": LONGITUDES}, ("lat", "lon"))
    array[:2, :3] = 0.9
    array[5, 5] = np.nan
    array = (array.sortby("lat") if south_first else array).transpose(*dims)
    original = original_of(array, dims)
    pixels = np.asarray(draw_before_after(original, np.nan_to_num(original.values, nan=0.1)).convert("L")).astype(float)
    after = pixels[-12 * 18 :, -14 * 18 :]  # enlarged 18 times
    assert after[:36, :54].min() > 200
    assert after[36:].max() < 50


def test_a_geotiff_has_the_centres_of_its_pixels(tmp_path):
    values = np.where(field() > 19, -9999.0, field())
    options = {"height": 12, "width": 14, "count": 1, "dtype": "float64", "nodata": -9999.0, "crs": "EPSG:4326"}
    path = tmp_path / "a.tif"
    with rasterio.open(path, "w", driver="GTiff", transform=rasterio.Affine(2, 0, -10, 0, -1, 60), **options) as tiff:
        tiff.write(values, 1)
    raw = LabelledSource(str(path)).read()
    y, x = raw.axes
    assert (y.low, y.high, x.low, x.high) == (59.5, 48.5, -9, 17)
    read = next(raw.blocks())[..., 0]
    np.testing.assert_array_equal(np.isnan(read), values == -9999)
    np.testing.assert_array_equal(read[values != -9999], values[values != -9999])


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (lambda a: a, {}, "2 variables: choose one by variable. It holds: sst, depth"),
        (lambda a: a, {"variable": "sts"}, "no variable 'sts'; did you mean 'sst'"),
        (lambda a: a, {"variable": "sst", "dims": "lat,long"}, "no dimension 'long'; did you mean 'lon'"),
        (lambda a: a[:1], {"variable": "sst", "dims": "time"}, "'time' of 'sst' has one sample"),
        (lambda a: a.expand_dims(z=[1, 2]), {"variable": "sst"}, "name 1 to 3 of them as axes by dims"),
        (lambda a: a, {"variable": "sst", "dims": "lon", "periodic": "lon=5"}, "'lon=5' is a season, which a fit has of"),
        (lambda a: a * np.nan, {"variable": "sst"}, "sst is missing everywhere"),
        (lambda a: a * 0 + 3, {"variable": "sst"}, "sst is 3 everywhere"),
        (lambda a: a.assign_coords(lon=LONGITUDES % 7), {"variable": "sst"}, "neither ascend nor descend"),
        (lambda a: a.assign_coords(lon=0 * LONGITUDES), {"variable": "sst"}, "'lon': they have one value"),
        (
            lambda a: a.assign_coords(lon=LONGITUDES.clip(LONGITUDES[1])),
            {"variable": "sst"},
            "samples [0] and the next are equal",
        ),
        (lambda a: a.assign_coords(lon=[np.nan, *LONGITUDES[1:]]), {"variable": "sst"}, "'lon': 1 of 14 are missing"),
    ],
)
def test_arrays_that_cannot_be_read_are_refused(sst, change, arguments, words, tmp_path):
    path = written(change(sst), tmp_path / "a.nc")
    with pytest.raises(InputError) as error:
        LabelledSource(path, **arguments).read()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_labelled_array_is_refused(tmp_path):
    (tmp_path / "a.dat").write_text("1")
    with pytest.raises(InputError, match=r"no labelled array; these are .nc"):
        LabelledSource(str(tmp_path / "a.dat")).read()
    with pytest.raises(InputError, match="no such file"):
        LabelledSource(str(tmp_path / "a.nc")).read()
    with pytest.raises(InputError, match=r"takes an xarray.DataArray, got ndarray"):
        pe_fill.xarray.fill(np.zeros((3, 3)))


def packed_file(path: Path, **attributes) -> tuple[np.ndarray, np.ndarray]:
    """A NetCDF file of packed temperatures, of integers beyond 2^53 and of a group; the temperatures and the gaps."""
    known = np.random.default_rng(0).random((12, 14)) > 0.15
    stored = np.where(known, np.rint(field() * 1000), -32768).astype("i2")
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"lat": 12, "lon": 14}
        for name, column in (("lat", LATITUDES), ("lon", LONGITUDES)):
            file.create_variable(name, (name,), "f8", data=column)
        variable = file.create_variable("t", ("lat", "lon"), "i2", data=stored, fillvalue=np.int16(-32768), compression=4)
        variable.attrs.update({"scale_factor": np.float32(1e-3), "add_offset": np.float32(1e5), "units": "K", **attributes})
        file.create_variable("count", ("lat", "lon"), "i8", data=2**53 + 1 + 2 * np.arange(168).reshape(12, 14))
        file.create_group("station").create_variable("height", ("lat",), "f4", data=LATITUDES)
    return stored, known


def test_known_samples_other_variables_and_groups_of_netcdf_are_equal_to_the_bit(tmp_path, monkeypatch):
    """Packed by a scale and an offset of float32; deviations are a second variable."""
    monkeypatch.chdir(tmp_path)
    stored, known = packed_file(Path("a.nc"))
    assert main(["fill", "a.nc", "--variable", "t", "--folds", "none", "--out", "b.nc"]) == 0
    with h5py.File("a.nc") as before, h5py.File("b.nc") as after:
        found = after["t"][...]
        assert found.dtype == stored.dtype
        np.testing.assert_array_equal(found[known], stored[known])
        np.testing.assert_allclose(found[~known] / 1000, field()[~known], atol=0.3)
        np.testing.assert_array_equal(after["count"][...], before["count"][...])
        np.testing.assert_array_equal(after["station/height"][...], before["station/height"][...])
        assert {key: str(value) for key, value in after["t"].attrs.items()} == {
            k: str(v) for k, v in before["t"].attrs.items()
        }
        assert after["t"].compression == "gzip"
        np.testing.assert_array_equal(after["t_std"][...] > 0, ~known)
        assert after["t_std"].attrs["units"] == "K"
    assert not list(Path().glob("*_std.*"))


def test_packed_values_are_clipped_and_are_no_fill_value():
    int16, attributes = np.dtype("i2"), {"scale_factor": np.float32(0.5), "_FillValue": np.int16(-32768)}
    assert packed_values(np.array([1e6, -1e6, 3.1]), int16, attributes).tolist() == [32767, -32767, 6]
    attributes |= {"valid_range": np.array([0, 100], "i2"), "missing_value": np.int16(6)}
    assert packed_values(np.array([1e6, -1e6, 3.1]), int16, attributes).tolist() == [100, 0, 7]
    unsigned = packed_values(np.array([200.0, 300, 255]), np.dtype("i1"), {"_Unsigned": "true", "_FillValue": np.int8(-1)})
    assert unsigned.view("u1").tolist() == [200, 254, 254]
    assert packed_values(np.array([1e30]), np.dtype("i8"), {})[0] == 2**63 - 1024
    assert packed_values(np.array([1.25]), np.dtype(">f4"), {"add_offset": 1})[0] == 0.25


@pytest.mark.parametrize("kind", ["link", "external", "virtual"])
def test_netcdf_that_is_stored_in_other_files_is_refused(tmp_path, kind):
    packed_file(tmp_path / "a.nc")
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.zeros((12, 14))
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        if kind == "link":
            file["y"] = h5py.ExternalLink("other.h5", "x")
        elif kind == "external":
            file.create_dataset("y", (12, 14), "f8", external=[(str(tmp_path / "other.h5"), 0, 1344)])
        else:
            layout = h5py.VirtualLayout((12, 14), "f8")
            layout[...] = h5py.VirtualSource("other.h5", "x", (12, 14))
            file.create_virtual_dataset("y", layout)
    with pytest.raises(InputError, match="other files, which are not read"):
        LabelledSource(str(tmp_path / "a.nc"), "t").read()


def test_gdal_reads_geotiff_only(tmp_path):
    """A virtual raster and a web service named .tif would read other files, or the network."""
    vrt = '<VRTDataset rasterXSize="4" rasterYSize="4"><VRTRasterBand dataType="Byte" band="1"><SimpleSource>'
    vrt += "<SourceFilename>/vsicurl/http://localhost:9/a.tif</SourceFilename></SimpleSource></VRTRasterBand></VRTDataset>"
    for text in (vrt, "<GDAL_WMS><Service name='TMS'><ServerUrl>http://localhost:9/</ServerUrl></Service></GDAL_WMS>"):
        (tmp_path / "a.tif").write_text(text)
        with pytest.raises(InputError, match="cannot read"):
            LabelledSource(str(tmp_path / "a.tif")).read()


@pytest.mark.parametrize("year", ["0001", "9999"])
def test_dates_of_any_year(tmp_path, year):
    """A map of dates that nanoseconds cannot hold is written, plotted and read again."""
    days = np.datetime64(f"{year}-01-01", "s") + np.arange(0, 31_000_000, 500_000).astype("timedelta64[s]")
    rows = "\n".join(f"{day},{np.sin(place / 9)}" for place, day in enumerate(days))
    (tmp_path / "a.csv").write_text(f"time,v\n{rows}\n")
    points = ["--coordinates", "time", "--values", "v", "--grid", "20", "--folds", "none"]
    assert main(["fill", str(tmp_path / "a.csv"), *points, "--out", str(tmp_path / "m.nc")]) == 0
    assert (tmp_path / "m_map.png").exists()
    (axis,) = LabelledSource(str(tmp_path / "m.nc"), "v").read().axes
    assert axis.time
    np.testing.assert_array_equal(axis.restore([0, 1 - 1 / axis.size]), days[[0, -1]])


@pytest.mark.parametrize(("unit", "step"), [("us", 1), ("ns", 100), ("us", 1000), ("us", 2500)])
def test_close_dates_keep_their_distances(tmp_path, unit, step):
    """By every reader; a double of seconds since 1970 has a resolution of 240 ns."""
    dates = np.datetime64("2024-01-01T12:00", unit) + np.arange(30) * np.timedelta64(step, unit)
    wave = np.sin(np.arange(30) / 4)
    rows = [f"{date},{value:.6f}\n" for date, value in zip(dates, wave, strict=True)]
    (tmp_path / "a.csv").write_text("time,v\n" + "".join(rows))
    (tmp_path / "b.csv").write_text("time,v\n" + "".join(rows[:9] + rows[11:]))
    array = xarray.DataArray(wave, {"time": dates}, ("time",), "v")
    path = str(tmp_path / "a.nc")
    array.to_netcdf(path, engine="h5netcdf")
    original = read_file(tmp_path / "b.csv")
    points = PointSource(str(tmp_path / "b.csv"), "time", "v").read()
    axes = [
        RowSource(str(tmp_path / "a.csv")).read().axes[0],
        *original.axes,
        *original_of(array, None).axes,
        *LabelledSource(path).read().axes,
        points.axes[0],
    ]
    seconds = dates - dates[0]
    for axis in axes:
        assert axis.samples is None
        np.testing.assert_allclose(axis.length * (1 - 1 / axis.size), seconds[-1] / np.timedelta64(1, "s"), rtol=1e-12)
        np.testing.assert_array_equal(axis.restore(axis.to_unit(dates)), dates)
        assert Axis.from_dict(axis.to_dict()) == axis
    np.testing.assert_array_equal(axis.restore(points.points[:, 0]), np.delete(dates, [9, 10]))
    assert original.missing.ravel().nonzero()[0].tolist() == [9, 10]
    original.write(tmp_path / "c.csv", np.where(original.missing, wave[:, None], original.values))
    assert (tmp_path / "c.csv").read_text() == (tmp_path / "a.csv").read_text()


def test_the_region_of_a_map_of_close_dates(tmp_path):
    dates = np.datetime64("2024-01-01T12:00", "us") + np.arange(30)
    rows = "".join(f"{date},{np.sin(place / 4)}\n" for place, date in enumerate(dates))
    (tmp_path / "a.csv").write_text(f"time,v\n{rows}")
    region = ["--spacing", "1e-6s", "--region", f"{dates[3]},{dates[6]}", "--folds", "none"]
    assert main(["fill", str(tmp_path / "a.csv"), *region, "--out", str(tmp_path / "m.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy")["time"], dates[3:7])


def test_calendars_without_our_dates_are_numbers(tmp_path, caplog):
    array = xarray.DataArray(field()[:, 0], {"time": np.arange(12)}, ("time",), "v")
    array["time"].attrs = {"units": "days since 2000-01-01", "calendar": "360_day"}
    (axis,) = LabelledSource(written(array.drop_vars([]), tmp_path / "a.nc"), "v").read().axes
    assert (axis.low, axis.high, axis.time) == (0, 11, False)


@pytest.mark.parametrize("form", ["NETCDF3_CLASSIC", "NETCDF3_64BIT"])
def test_netcdf_3_is_read_and_becomes_netcdf_4(sst, tmp_path, form):
    packed = {"sst": {"dtype": "int16", "scale_factor": 0.01, "add_offset": 20.0, "_FillValue": -32768}}
    sst[:1].to_dataset().to_netcdf(tmp_path / "a.nc", engine="scipy", format=form, encoding=packed)
    data = LabelledDataModule(str(tmp_path / "a.nc"), dims="lat,lon", sampling="random")
    assert data.signals.num_missing == [np.isnan(sst[0].values).sum()]
    original = edit_labelled(str(tmp_path / "a.nc"), dims=["lat", "lon"])
    original.write(tmp_path / "b.nc", np.where(original.missing, 12.34, original.values))
    with xarray.open_dataset(tmp_path / "b.nc", engine="h5netcdf", decode_cf=False) as found:
        assert (found.sst.attrs["_FillValue"], found.sst.dtype) == (-32768, np.dtype("i2"))
    again = edit_labelled(str(tmp_path / "b.nc"), dims=["lat", "lon"])
    np.testing.assert_allclose(again.values, np.where(original.missing, 12.34, original.values), atol=1e-9)
    (tmp_path / "c.nc").write_bytes(b"CDF\x05" + bytes(40))
    with pytest.raises(InputError, match="64-bit data: convert it by nccopy -k nc4"):
        edit_labelled(str(tmp_path / "c.nc"))


def test_times_keep_their_resolution():
    """Microseconds of today: rows of a table with an absent one, and a coordinate of NetCDF."""
    dates = np.datetime64("2024-05-01T12:00:00.000250", "ns") + 1_000 * np.arange(9).astype("timedelta64[ns]")
    assert Clock.from_times("when", dates).axis is None, "at equal distances"
    assert Clock.from_times("when", np.delete(dates, 3)).absent.tolist() == [3]
    (axis,) = axes_of(xarray.DataArray(np.arange(9.0), [("when", dates)], name="x"), ["when"])
    assert axis.samples is None
    np.testing.assert_array_equal(axis.restore(axis.grid()), dates)


def test_variables_that_describe_others_are_no_data(tmp_path, caplog):
    """Bounds, and latitudes of a curvilinear grid, of which the axes are the numbers of samples, with a notice."""
    y, x = np.mgrid[:8, :9] / 9
    dataset = xarray.Dataset(
        {
            "sst": (("y", "x"), np.where(y + x > 1.2, np.nan, x * y), {"coordinates": "lat lon"}),
            "bounds_of_x": (("x", "n"), x[:2].T),
        },
        {"x": ("x", np.arange(9.0), {"bounds": "bounds_of_x"})},
    )
    for name in ("lat", "lon"):
        dataset[name] = (("y", "x"), 40 + 20 * y + x)
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    for read in (LabelledSource(str(tmp_path / "a.nc")).read, lambda: edit_labelled(str(tmp_path / "a.nc"))):
        caplog.clear()
        with caplog.at_level("INFO"):
            axes = read().axes
        assert [(axis.name, axis.high) for axis in axes] == [("y", 7), ("x", 8)]
        assert "dimension 'y' of 'sst' has coordinates of several dimensions (lat, lon)" in caplog.text
        assert "dimension 'x'" not in caplog.text
    dataset.to_netcdf(tmp_path / "b.nc", group="forecast/day1", engine="h5netcdf")
    with pytest.raises(
        InputError, match=r"holds 0 variables.*/forecast/day1 \(sst.*group='/forecast/day1'\).to_netcdf\('day1.nc'\)"
    ):
        LabelledSource(str(tmp_path / "b.nc")).read()
    with pytest.raises(InputError, match=r"no variable 'sst'. Its groups do: /forecast/day1 \(sst"):
        LabelledSource(str(tmp_path / "b.nc"), "sst").read()


def test_numbers_for_missing_values_of_an_array_are_refused():
    array = xarray.DataArray(np.where(np.arange(30) % 7, np.arange(30.0), -9999), [("x", np.arange(30))])
    with pytest.raises(InputError, match=r"missing: .*array.where\(array != -9999\)"):
        pe_fill.xarray.fill(array, missing=-9999)
