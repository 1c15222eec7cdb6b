"""Copies of text tables with other values; series whose times are the axis, and absent rows."""

import logging

import numpy as np
import pytest
from signals.sources.test_tables import write

from pe_fill.filling import fill
from pe_fill.formats.editable import read_original
from pe_fill.formats.points import PointSource
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile


def edited(path, fills="nan"):
    return read_original(SourceFile(path, str(path)), Missing(fills))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "cp1252"])
def test_a_copy_has_the_encoding_of_the_file(tmp_path, encoding):
    text = "station;größe\nZürich;1,5\nGenève;\nBâle;2,5\n"
    path = write(tmp_path / "a.csv", text.encode(encoding))
    original = edited(path)
    assert original.names == ("größe",)
    original.write(tmp_path / "b.csv", np.where(original.missing, 2, original.values))
    assert (tmp_path / "b.csv").read_bytes() == text.replace("Genève;", "Genève;2,0").encode(encoding)


def test_blank_lines_of_one_column_are_missing_values(tmp_path):
    original = edited(write(tmp_path / "a.csv", "\nv\n1.0\n\n\n4.0\n\n"))
    assert original.missing.ravel().tolist() == [False, True, True, False]
    original.write(tmp_path / "b.csv", np.where(original.missing, 2, original.values))
    assert (tmp_path / "b.csv").read_text() == "\nv\n1.0\n2.0\n2.0\n4.0\n\n"


def test_unequal_times_are_the_axis(tmp_path, caplog):
    days = np.array([0, 1, 2, 5, 7, 7.5, 11, 12])
    dates = np.datetime64("2024-01-01T00:00") + (days * 24).astype("m8[h]")
    path = write(
        tmp_path / "a.csv", "time,v\n" + "".join(f"{date},{value}\n" for date, value in zip(dates, days, strict=True))
    )
    with caplog.at_level(logging.INFO):
        (axis,) = edited(path).axes
    assert "their times are the axis" in caplog.text
    np.testing.assert_allclose(np.diff(axis.samples), np.diff(days) * 86_400)
    numbers = write(tmp_path / "b.csv", "t,v\n" + "".join(f"{day},{2 * day}\n" for day in days))
    original = edited(numbers)
    assert (original.names, original.axes[0].samples) == (("v",), tuple(days.tolist()))
    days = np.sort(np.random.default_rng(0).choice(400, 90, replace=False)) / 10
    values = np.where(np.isin(np.arange(90), (30, 31, 60)), np.nan, np.sin(days / 3))
    table = write(tmp_path / "c.csv", "t,v\n" + "".join(f"{day},{value}\n" for day, value in zip(days, values, strict=True)))
    filled = fill(str(table), folds="none").values.ravel()
    np.testing.assert_allclose(filled, np.sin(days / 3), atol=0.01)  # 0.1 by the numbers of the rows


ROWS = {
    "hours": (np.arange("2024-03-01T00", "2024-03-02T00", dtype="M8[h]"), " "),
    "months": (np.arange("2020-01", "2022-01", dtype="M8[M]").astype("M8[D]"), "T"),
    "ends of months": ((np.arange("2020-02", "2022-01", dtype="M8[M]").astype("M8[D]") - np.timedelta64(1, "D")), "T"),
    "business days": (np.busday_offset("2024-01-01", np.arange(30)), "T"),
    "descending": (np.arange("2024-03-01", "2024-04-01", dtype="M8[D]")[::-1], "T"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_absent_rows_of_a_regular_series_are_missing(tmp_path, caplog, kind):
    """They are said, and the copy has them, dated as the others."""
    dates, separator = ROWS[kind]
    lines = [f"{str(date).replace('T', separator)};ok;{number},5\r\n" for number, date in enumerate(dates)]
    text = "date;flag;v\r\n" + "".join(lines)
    assert edited(write(tmp_path / "a.csv", text)).missing.sum() == 0
    assert [(axis.samples, axis.time) for axis in edited(tmp_path / "a.csv").axes] == [(None, True)]
    gone = text.replace(lines[4], "").replace(lines[5], "").replace(lines[9], "")
    with caplog.at_level(logging.INFO):
        original = edited(write(tmp_path / "b.csv", gone))
    assert f"3 row(s) are absent, the first at {lines[4].split(';')[0]}" in caplog.text
    assert np.flatnonzero(original.missing).tolist() == [4, 5, 9]
    original.write(tmp_path / "c.csv", np.where(original.missing, np.arange(len(dates))[:, None] + 0.5, original.values))
    expected = text
    for line in (lines[4], lines[5], lines[9]):
        expected = expected.replace(line, line.replace("ok", ""))
    assert (tmp_path / "c.csv").read_bytes().decode() == expected


def test_rows_whose_times_are_not_taken_are_named(tmp_path, caplog):
    unsorted = write(tmp_path / "a.csv", "day,v\n2024-01-03,1\n2024-01-01,2\n2024-01-02,3\n")
    uneven = write(tmp_path / "b.csv", "day,v\n2024-01-01,1\n2024-01-02,2\n2024-01-09,3\n2024-01-10,4\n")
    with caplog.at_level(logging.INFO):
        edited(unsorted)
    assert "neither ascend nor descend" in caplog.text
    assert "--coordinates day" in caplog.text
    assert "--config points/closed_form --data.coordinates day" in str(PointSource.alternative(uneven))
