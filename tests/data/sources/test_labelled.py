"""Labelled arrays: NetCDF, Zarr and GeoTIFF at their own coordinates, filled in files and in memory; what is refused."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import pe_lightning
from pe_lightning.__main__ import main
from pe_lightning.data import LabelledDataModule
from pe_lightning.data.sources.labelled import LabelledSource
from pe_lightning.errors import InputError
from pe_lightning.modules import ComplexLinear

xarray = pytest.importorskip("xarray", reason="of the extra geo")

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
    np.testing.assert_allclose(lat.restore(data.dataset.axes[0].double().numpy()), LATITUDES, rtol=1e-6)
    np.testing.assert_allclose(lon.restore(data.dataset.axes[1].double().numpy()), LONGITUDES, rtol=1e-5, atol=1e-5)
    assert (lat.samples is None, lon.samples is None) == (False, True)
    assert data.num_missing == np.isnan(sst.values).sum((1, 2)).tolist()
    swapped = LabelledSource(written(sst, tmp_path / f"b{suffix}"), "sst", ["lon", "lat"]).read()
    assert swapped.grid == (14, 12)


def test_the_exact_fit_has_features_at_uneven_coordinates(tmp_path):
    """NumPy's least squares of Gaussians at the scaled latitudes and longitudes of the file."""
    array = xarray.DataArray(field(), {"lat": LATITUDES, "lon": LONGITUDES}, ("lat", "lon"), "sst")
    data = LabelledDataModule(written(array, tmp_path / "a.nc"), variable="sst", sampling={"name": "grid", "stride": 1})
    encoders = [{"name": "gau", "num_features": k, "sigma": 0.2} for k in (5, 6)]
    model = pe_lightning.fit(data, model=ComplexLinear(encoders, warm_start=True, ridge=1e-6, center=False))
    unit = [(LATITUDES - 60) / (35 - 60) * 11 / 12, np.arange(14) / 14]
    features = [np.exp(-((u[:, None] - np.arange(k) / k) ** 2) / (2 * 0.2**2)) for u, k in zip(unit, (5, 6), strict=True)]
    joint = np.kron(*features)
    known = (field() - field().min()) / np.ptp(field())
    root = np.sqrt(1e-6 * (joint**2).sum(1).mean()) * np.eye(30)
    weight = np.linalg.lstsq(np.vstack([joint, root]), np.r_[known.ravel(), np.zeros(30)], rcond=None)[0]
    with torch.no_grad():
        found = model.predict_step([torch.tensor(u, dtype=torch.float32) for u in unit])[0, ..., 0].numpy()
    np.testing.assert_allclose(found.ravel(), joint @ weight, atol=2e-3)


def test_a_filled_array_keeps_known_values_coordinates_and_attributes(sst, tmp_path, monkeypatch):
    """In memory and by command alike; uneven latitudes are used as they are, which their numbers would not be."""
    monkeypatch.chdir(tmp_path)
    truth = np.stack([field(), field() + 1])
    filled = pe_lightning.xarray.fill(sst, dims=["lat", "lon"], folds="none")
    known = np.isfinite(sst.values)
    assert filled.attrs == {"units": "degC"}
    assert filled.dtype == sst.dtype
    assert filled.dims == sst.dims
    assert filled.coords.equals(sst.coords)
    np.testing.assert_array_equal(filled.values[known], sst.values[known])
    error = np.abs(filled.values - truth)[~known].mean()
    counted = pe_lightning.xarray.fill(sst.assign_coords(lat=np.arange(12.0)), dims=["lat", "lon"], folds="none")
    assert error < 0.8 * np.abs(counted.values - truth)[~known].mean()
    path = written(sst, tmp_path / "a.nc")
    assert main(["fill", path, "--variable", "sst", "--dims", "lat,lon", "--folds", "none", "--out", "b.nc"]) == 0
    with xarray.open_dataset("b.nc", engine="h5netcdf") as result:
        np.testing.assert_array_equal(result["sst"].values, filled.values)
        assert result["sst"].attrs["units"] == "degC"
        np.testing.assert_array_equal(result["depth"].values, LATITUDES)


def test_a_geotiff_has_the_centres_of_its_pixels(tmp_path):
    rasterio = pytest.importorskip("rasterio", reason="of the extra geo")
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
        (lambda a: a * np.nan, {"variable": "sst"}, "every value of sst is missing"),
        (lambda a: a * 0 + 3, {"variable": "sst"}, "sst is 3 everywhere"),
        (lambda a: a.assign_coords(lon=LONGITUDES % 7), {"variable": "sst"}, "'lon' neither ascends nor descends"),
        (lambda a: a.assign_coords(lon=0 * LONGITUDES), {"variable": "sst"}, "'lon' have one value"),
        (lambda a: a.assign_coords(lon=LONGITUDES.clip(LONGITUDES[1])), {"variable": "sst"}, "are equal at samples 0 and 1"),
        (lambda a: a.assign_coords(lon=[np.nan, *LONGITUDES[1:]]), {"variable": "sst"}, "'lon' are missing"),
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
        pe_lightning.xarray.fill(np.zeros((3, 3)))
