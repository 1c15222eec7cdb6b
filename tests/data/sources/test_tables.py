"""Text tables as signals: headers, delimiters, columns, and every kind of bad cell."""

import logging
import pickle

import numpy as np
import pytest

from pe_lightning.data.sources.tables import read_table, read_tables
from pe_lightning.data.values import load
from pe_lightning.errors import InputError


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def columns_of(path, *args):
    return {column.name or column.index: column.values.tolist() for column in read_table(path, *args)}


def refused(path, *parts, call=read_tables, **arguments):
    with pytest.raises(InputError) as error:
        call(path if call is read_table else str(path), **arguments)
    for part in parts:
        assert part in str(error.value), str(error.value)


# -- reading --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", " ", ", ", "   "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_delimiters_ends_and_marks(tmp_path, delimiter, end, last, mark):
    rows = [["time", "temp"], ["0", "1.5"], ["1", "-2e3"], ["2", ".25"]]
    text = mark + end.join(delimiter.join(row) for row in rows) + last.replace("\n", end)
    assert columns_of(write(tmp_path / "a.csv", text)) == {"time": [0, 1, 2], "temp": [1.5, -2000, 0.25]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2\n3,4\n", {0: [1, 3], 1: [2, 4]}),
        ("1\n2\n", {0: [1, 2]}),
        ("x\n1\n2\n", {"x": [1, 2]}),
        ("date,2001,x\n1,2,3\n4,5,6\n", {"date": [1, 4], "2001": [2, 5], "x": [3, 6]}),
        ("# made by hand\n1 2\n# more\n3 4\n", {0: [1, 3], 1: [2, 4]}),
        ("  1 2\n 30 4\n", {0: [1, 30], 1: [2, 4]}),
        ('"a, b","c"\n"1","2"\n"3",4\n', {"a, b": [1, 3], "c": [2, 4]}),
        ('a;"say ""hi"""\n1;2\n3;4\n', {"a": [1, 3], 'say "hi"': [2, 4]}),
        ("2020-01-01 10:00,1\n2020-01-02 10:00,2\n", {1: [1, 2]}),
        ("a,,b\n1,2,3\n4,5,6\n", {"a": [1, 4], 1: [2, 5], "b": [3, 6]}),
        ("1,2,\n3,4,\n", {0: [1, 3], 1: [2, 4]}),
    ],
)
def test_headers_quotes_and_comments(tmp_path, text, expected):
    assert columns_of(write(tmp_path / "a.txt", text)) == expected


def test_what_numpy_writes(tmp_path):
    array = np.random.default_rng(0).normal(size=(20, 3))
    for delimiter in (" ", ",", "\t"):
        np.savetxt(tmp_path / "a.txt", array, delimiter=delimiter, header="x y z")
        np.testing.assert_array_equal(np.stack([c.values for c in read_table(tmp_path / "a.txt")], 1), array)


def test_every_column_is_a_signal_with_its_own_range(tmp_path, caplog):
    path = write(tmp_path / "größe 1.csv", "day,temp/°C,hum\nmon,10,0.1\ntue,30,0.300000001\nwed,20,0.2\n")
    with caplog.at_level(logging.INFO):
        raw = read_tables(str(path))
    assert raw.names == ("größe 1-temp_°C", "größe 1-hum")
    assert (raw.shape, raw.stored, raw.media, raw.array) == ((2, 3, 1), "float64", "array", None)
    assert (raw.scaling.low, raw.scaling.high) == ((10, 0.1), (30, 0.300000001))
    np.testing.assert_allclose(load(raw)[..., 0], [[0, 1, 0.5], [0, 1, 0.5]], atol=1e-6)
    assert np.concatenate(list(raw.blocks()))[4, 0] == 0.300000001  # in double precision
    assert ["column 'day' left out" in record.getMessage() for record in caplog.records] == [True]
    np.testing.assert_array_equal(load(pickle.loads(pickle.dumps(raw))), load(raw))


@pytest.mark.parametrize(
    ("chosen", "names"),
    [("b", ("a-b",)), (2, ("a-c",)), (["c", 0], ("a-c", "a-a")), (["b", "c"], ("a-b", "a-c"))],
)
def test_columns_by_name_or_position(tmp_path, chosen, names):
    assert read_tables(str(write(tmp_path / "a.csv", "a,b,c\n1,2,3\n4,5,6\n")), chosen).names == names


def test_names_of_columns_without_header(tmp_path):
    write(tmp_path / "a.csv", "1\n2\n"), write(tmp_path / "b.csv", "1,2\n3,4\n")
    (tmp_path / "c.csv").symlink_to(tmp_path / "a.csv")
    assert read_tables(str(tmp_path)).names == ("a", "b-0", "b-1", "c")
    assert read_tables([str(tmp_path / "a.csv"), str(tmp_path / "a.csv")]).names == ("a-1", "a-2")


def test_a_given_range_and_a_length(tmp_path):
    path = str(write(tmp_path / "a.csv", "1,2\n3,4\n9,9\n"))
    raw = read_tables(path, value_range=[0, 4], length=2)
    np.testing.assert_allclose(load(raw)[..., 0], [[0.25, 0.75], [0.5, 1]])
    refused(path, "column 0", "values from 1.0 to 9.0, outside of value_range [0.0, 4.0]", "[0.0, 9.0]", value_range=[0, 4])
    refused(path, "length 4 is more than the 3 samples", "set length: 3", length=4)


# -- what cannot be read --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments", "parts"),
    [
        ("a,b\n1,2\n\n3,4\n", {}, ["line 3: 1 cell(s), but line 1 has 2", "a comma"]),
        ("a,b\n1,2\n1,2,3\n4,5\n", {}, ["line 3: 3 cell(s), but line 1 has 2"]),
        ("# c\n\na b\n1 2\n1\n", {}, ["line 5: 1 cell(s), but line 3 has 2", "spaces"]),
        ("x\n1\n\n2\n", {}, ["line 3, column 'x'", "missing"]),
        ("a,b\n1,2\n3,\n", {}, ["line 3, column 'b': the value is missing or not finite ('')"]),
        ("1,2\n3,NaN\n", {}, ["line 2, column 1", "'NaN'"]),
        ("1,2\n3,-inf\n", {}, ["line 2, column 1", "'-inf'"]),
        ("a,b\n1,2\n3,x4\n", {}, ["line 3, column 'b': 'x4' is not a number"]),
        ("a,b\n1,2\n3,1_000\n", {}, ["'1_000' is not a number"]),
        ("a;b\n1;2,5\n2;3\n", {}, ["line 2, column 'b': '2,5' is not a number (decimals are written with a point"]),
        ("a;b\n1,5;2,5\n2,5;3,5\n", {}, ["no column of numbers (decimals are written with a point"]),
        ("a,b\nx,y\n", {}, ["no column of numbers"]),
        ("a,b\n", {}, ["holds no numbers, only a header"]),
        ("", {}, ["holds no numbers: it is empty"]),
        ("\n \n", {}, ["it is empty"]),
        ("a,b\n1,2\n", {}, ["has 1 sample(s); a signal needs at least 2"]),
        ("a,b\n1,2\n1,3\n", {}, ["column 'a'", "the value 1.0 alone; choose other columns"]),
        ('a,b\n1,"2\n3",4\n', {}, ["line 2: a quote is not closed"]),
        ("temp,hum\n1,2\n3,4\n", {"columns": "tmp"}, ["no column 'tmp'", "did you mean 'temp'?", "Columns: temp, hum"]),
        ("temp,hum\n1,2\n3,4\n", {"columns": 2}, ["no column 2 in", "which has 2: 0 to 1. Columns: temp, hum"]),
        ("temp,hum\n1,2\n3,4\n", {"columns": -1}, ["no column -1"]),
        ("temp,hum\n1,2\n3,4\n", {"columns": [0, "temp"]}, ["must be distinct"]),
        ("temp,hum\n1,2\n3,4\n", {"columns": []}, ["at least one; got []"]),
        ("temp,hum\n1,2\n3,4\n", {"columns": [0.5]}, ["a column is a name or a position, got 0.5"]),
        ("1,2\n3,4\n", {"columns": "a"}, ["no column 'a'", "has no header; give positions: 0 to 1"]),
        ("a,a\n1,2\n3,4\n", {"columns": "a"}, ["has 2 columns 'a'; give the position instead: one of [0, 1]"]),
        ("day,b\nx,2\ny,4\n", {"columns": "day"}, ["line 2, column 'day': 'x' is not a number"]),
        ("1,2\n3,4\n", {"value_range": [3]}, ["value_range must be [low, high]"]),
        (b"a\xff,b\n1,2\n", {}, ["is not UTF-8 text (byte 1)"]),
        (b"a\x00,b\n1,2\n", {}, ["zero bytes"]),
    ],
)
def test_bad_tables(tmp_path, text, arguments, parts):
    refused(write(tmp_path / "a.csv", text), *parts, **arguments)


def test_tables_of_different_lengths(tmp_path):
    write(tmp_path / "a.csv", "1\n2\n"), write(tmp_path / "b.csv", "1\n2\n3\n")
    refused(tmp_path, "2 different lengths", "Set length: 2")
    assert read_tables(str(tmp_path), length=2).shape == (2, 2, 1)


def test_files_that_cannot_be_opened(tmp_path):
    refused(tmp_path, "no table in the folder")
    refused(tmp_path / "a.csv", "cannot open", "No such file", call=read_table)


def test_a_long_table_is_read_in_seconds(tmp_path):
    array = np.random.default_rng(0).normal(size=(100_000, 4))
    np.savetxt(tmp_path / "a.csv", array, delimiter=",")
    np.testing.assert_array_equal(np.stack([c.values for c in read_table(tmp_path / "a.csv")], 1), array)
