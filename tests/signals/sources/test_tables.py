"""Text tables as signals: headers, delimiters, columns, and every kind of bad cell."""

import logging

import numpy as np
import pytest
from source_checks import refused, stored, unit

from pe_fill.estimators.filling import fill
from pe_fill.formats.original import read_original
from pe_lightning.signals.sources import RowSource
from pe_lightning.signals.sources.missing import Missing
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
    assert (raw.shape, raw.stored, raw.media, raw.array) == ((2, 3, 1), "float64", "array", None)
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


def edited(path, fills="nan"):
    return read_original(SourceFile(path, str(path)), Missing(fills))


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
    """A guess is named, and a copy has the encoding of the file."""
    text = "station;größe\nZürich;1,5\nGenève;\nBâle;2,5\n"
    path = write(tmp_path / "a.csv", text.encode(encoding))
    with caplog.at_level(logging.INFO):
        original = edited(path)
    assert (f"is not UTF-8, and is read as {guess}" in caplog.text) == bool(guess)
    assert original.names == ("größe",)
    original.write(tmp_path / "b.csv", np.where(original.missing, 2, original.values))
    assert (tmp_path / "b.csv").read_bytes() == text.replace("Genève;", "Genève;2,0").encode(encoding)


def test_blank_lines_of_one_column_are_missing_values(tmp_path):
    original = edited(write(tmp_path / "a.csv", "\nv\n1.0\n\n\n4.0\n\n"))
    assert original.missing.ravel().tolist() == [False, True, True, False]
    original.write(tmp_path / "b.csv", np.where(original.missing, 2, original.values))
    assert (tmp_path / "b.csv").read_text() == "\nv\n1.0\n2.0\n2.0\n4.0\n\n"
    refused(lambda: columns_of(write(tmp_path / "c.csv", "a,b\n1,2\n\n3,4\n")), "line 3: 0 cell(s)")


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
    "ends of months": ((np.arange("2020-02", "2022-01", dtype="M8[M]").astype("M8[D]") - 1), "T"),
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
    assert edited(tmp_path / "a.csv").axes == ()
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
        RowSource(str(uneven)).read()
    assert "neither ascend nor descend" in caplog.text
    assert "--coordinates day" in caplog.text
    assert "--config points/closed_form --data.coordinates day" in caplog.text
