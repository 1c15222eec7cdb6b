"""Text tables as signals: headers, delimiters, columns, and every kind of bad cell."""

import json
import logging

import numpy as np
import pytest
from source_checks import refused, stored, unit

from pe_lightning.signals.axes import Axis
from pe_lightning.signals.sources import RowSource
from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.signals.sources.tables import Table


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def columns_of(path):
    return {column.name: column.values.tolist() for column in Table.open(SourceFile(path, str(path))).columns()}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", " ", ", "])
@pytest.mark.parametrize(("end", "last", "mark"), [("\n", "", ""), ("\r\n", "\r\n\r\n", "\ufeff"), ("\r", "\r", "")])
def test_delimiters_ends_and_marks(tmp_path, delimiter, end, last, mark):
    rows = [["time", "temp"], ["0", "1.5"], ["1", "-2e3"], ["2", ".25"]]
    text = mark + end.join(delimiter.join(row) for row in rows) + last
    assert columns_of(write(tmp_path / "a.csv", text)) == {"time": [0, 1, 2], "temp": [1.5, -2000, 0.25]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2\n3,4\n", {"0": [1, 3], "1": [2, 4]}),
        ("1\n2\n", {"": [1, 2]}),
        ("x\n1\n2\n", {"x": [1, 2]}),
        ("date,2001,x\n1,2,3\n4,5,6\n", {"date": [1, 4], "2001": [2, 5], "x": [3, 6]}),
        ("# made by hand\n# more\n1 2\n3 4\n", {"0": [1, 3], "1": [2, 4]}),
        ("  1 2\n 30 4\n", {"0": [1, 30], "1": [2, 4]}),
        ('"a, b","c"\n"1","2"\n"3",4\n', {"a, b": [1, 3], "c": [2, 4]}),
        ('a;"say ""hi"""\n1;2\n3;4\n', {"a": [1, 3], 'say "hi"': [2, 4]}),
        ("2020-01-01 10:00,1\n2020-01-02 10:00,2\n", {"": [1, 2]}),
        ("a,,b\n1,2,3\n4,5,6\n", {"a": [1, 4], "1": [2, 5], "b": [3, 6]}),
        ("1,2,\n3,4,\n", {"0": [1, 3], "1": [2, 4]}),
        ("t;x\n0;1,5\n1;-2,25e1\n", {"t": [0, 1], "x": [1.5, -22.5]}),
        ("1,5;2,5\n2,5;3\n", {"0": [1.5, 2.5], "1": [2.5, 3]}),
        ("1,5 2,5\n2,5 3,5\n", {"0": [1.5, 2.5], "1": [2.5, 3.5]}),
        ("x\ty\n1,5\t2\n2\t3\n", {"x": [1.5, 2], "y": [2, 3]}),
        ('"1,5","2,5"\n"2,5","3,5"\n', {"0": [1.5, 2.5], "1": [2.5, 3.5]}),
    ],
)
def test_headers_quotes_and_comments(tmp_path, text, expected):
    assert columns_of(write(tmp_path / "a.txt", text)) == expected


@pytest.mark.parametrize(
    ("dates", "first", "last"),
    [
        (["2024-01-01", "2024-01-02", "2024-01-03"], "2024-01-01", "2024-01-03"),
        (["2024/01/01 12:00", "2024/01/01 06:00", "2024/01/01 00:00"], "2024-01-01T12", "2024-01-01T00"),
        (["2024-01-01", "2024-02-01", "2024-03-01"], None, None),
        (["2024-01-01", "", "2024-01-03"], None, None),
    ],
)
def test_dates_at_equal_distances_are_the_axis(tmp_path, dates, first, last):
    text = "day,x\n" + "".join(f"{day},{row}\n" for row, day in enumerate(dates))
    axes = RowSource(str(write(tmp_path / "a.csv", text))).read().axes
    shown = [(axis.name, *axis.restore(axis.grid())[[0, -1]]) for axis in axes]
    assert shown == ([] if first is None else [("day", np.datetime64(first), np.datetime64(last))])


@pytest.mark.parametrize("step", [1_000, 20, 1])
def test_times_keep_their_resolution(tmp_path, step):
    """Microseconds and nanoseconds of today, which a float64 of seconds since 1970 has not."""
    dates = np.datetime64("2024-05-01T12:00:00.000000250", "ns") + step * np.arange(9).astype("timedelta64[ns]")
    text = "when,x\n" + "".join(f"{date},{row % 3}\n" for row, date in enumerate(dates))
    (axis,) = RowSource(str(write(tmp_path / "a.csv", text))).read().axes
    np.testing.assert_array_equal(axis.restore(axis.grid()), dates)
    np.testing.assert_allclose(axis.to_unit(dates), np.arange(9) / 9, atol=1e-6)
    assert Axis.from_dict(json.loads(json.dumps(axis.to_dict()))) == axis


@pytest.mark.parametrize(
    ("header", "days", "options", "axis", "names"),
    [
        ("day,x\n", np.linspace(3, 17, 8), {}, ("day", 3, 17), ("a-x",)),
        ("day,x\n", np.linspace(3, 17, 8), {"select": ["day", "x"]}, None, ("a-day", "a-x")),
        ("day,x\n", np.linspace(3, 15, 7), {}, None, ("a-day", "a-x")),
        ("day,x\n", np.arange(8) ** 2, {}, None, ("a-day", "a-x")),
        ("", np.linspace(8, 1, 8), {}, ("0", 8, 1), ("a",)),
    ],
)
def test_numbers_at_equal_distances_in_the_first_column_are_the_axis(tmp_path, caplog, header, days, options, axis, names):
    text = header + "".join(f"{day},{day % 3}\n" for day in days)
    with caplog.at_level(logging.INFO):
        raw = RowSource(str(write(tmp_path / "a.csv", text)), **options).read()
    assert raw.names == names
    assert [(one.name, *one.restore(one.grid())[[0, -1]]) for one in raw.axes] == ([] if axis is None else [axis])
    assert ("--data.select" in caplog.text) == (axis is not None)


def test_what_numpy_writes(tmp_path):
    array = np.random.default_rng(0).normal(size=(2_000, 3))
    for delimiter in (" ", ",", "\t"):
        np.savetxt(tmp_path / "a.txt", array, delimiter=delimiter, header="x y z")
        np.testing.assert_array_equal(stored(RowSource(str(tmp_path / "a.txt")).read())[..., 0], array.T)


def test_every_column_is_a_signal_with_its_own_range(tmp_path, caplog):
    path = write(tmp_path / "größe 1.csv", "day,temp/°C,hum\nmon,10,0.1\ntue,30,0.300000001\nwed,20,0.2\n")
    with caplog.at_level(logging.INFO):
        raw = RowSource(str(path)).read()
    assert raw.names == ("größe 1-temp_°C", "größe 1-hum")
    assert (raw.shape, raw.stored, raw.media) == ((2, 3, 1), "float64", "array")
    assert (raw.scaling.low, raw.scaling.high) == ((10, 0.1), (30, 0.300000001))
    np.testing.assert_allclose(unit(raw)[..., 0], [[0, 1, 0.5], [0, 1, 0.5]], atol=1e-6)
    assert stored(raw)[1, 1, 0] == 0.300000001  # in double precision
    assert [("column 'day'" in text, "left out" in text) for text in caplog.messages] == [(True, True)]


@pytest.mark.parametrize(
    ("chosen", "names"), [(["b"], ("a-b",)), ([2], ("a-c",)), (["c", 0], ("a-c", "a-a")), (["b", "c"], ("a-b", "a-c"))]
)
def test_columns_by_name_or_position(tmp_path, chosen, names):
    assert RowSource(write(tmp_path / "a.csv", "a,b,c\n1,2,3\n4,5,6\n"), select=chosen).read().names == names


def test_tables_of_different_lengths(tmp_path):
    write(tmp_path / "a.csv", "1\n2\n"), write(tmp_path / "b.csv", "1\n2\n3\n")
    assert RowSource(tmp_path, length=2).read().shape == (2, 2, 1)


def test_comments_are_above_the_header_only(tmp_path, caplog):
    """A row of one column may be #N/A, and a name may begin with #."""
    assert columns_of(write(tmp_path / "a.csv", "# made by hand\nv\n1\n#N/A\n3\n"))["v"][::2] == [1, 3]
    assert np.isnan(columns_of(tmp_path / "a.csv")["v"][1])
    assert columns_of(write(tmp_path / "b.csv", "# all\nname,x\n#0,1.5\n#1,2\nB,3\n")) == {"x": [1.5, 2, 3]}
    for text in ("x\n1\n# more\n2\n", "1,2\n# more\n3,4\n", "1 2\n# more\n3 4\n", "t,x\n1,2\n# the end\n"):
        refused(lambda text=text: columns_of(write(tmp_path / "c.csv", text)), "comments only above the header", "line")
    refused(lambda: columns_of(write(tmp_path / "c.csv", "t,x\n")), "holds no rows; its columns: t, x")


@pytest.mark.parametrize(
    ("encoding", "guess"),
    [("utf-8-sig", ""), ("utf-16", ""), ("utf-16-be", "utf-16-be"), ("utf-16-le", "utf-16-le"), ("cp1252", "cp1252")],
)
def test_encodings(tmp_path, caplog, encoding, guess):
    """A guess is named."""
    path = write(tmp_path / "a.csv", "station;größe\nZürich;1,5\nBâle;2,5\n".encode(encoding))
    with caplog.at_level(logging.INFO):
        assert columns_of(path) == {"größe": [1.5, 2.5]}
    assert (f"is not UTF-8, and is read as {guess}" in caplog.text) == bool(guess)


def test_blank_lines_are_refused_where_there_are_several_columns(tmp_path):
    found = columns_of(write(tmp_path / "a.csv", "\nv\n1.0\n\n\n4.0\n\n"))["v"]
    assert np.isnan(found).tolist() == [False, True, True, False]
    refused(lambda: columns_of(write(tmp_path / "c.csv", "a,b\n1,2\n\n3,4\n")), "line 3: 0 cell(s)")
