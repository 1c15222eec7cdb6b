"""The pages have the numbers of docs/results.yaml, and every number of the first pages is one of them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEASURED = re.compile(r"(?<![\d.])(?:\d+\.\d+|\d{1,3},\d{3})(?:(?= (?:dB|m|core|seconds))|(?=\*{0,2} *\|))")
"""Numbers with a unit, or in a cell of a table."""


def test_pages_have_the_numbers_of_the_file():
    import results

    found = results.read()
    wrong = [page.name for page in results.pages() if results.fill_in(page.read_text(), found) != page.read_text()]
    assert wrong == [], "python benchmarks/results.py --pages"


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/gallery.md"])
def test_every_number_of_the_first_pages_is_in_the_file(name):
    import results

    text = re.sub(r"^```.*?^```", "", (ROOT / name).read_text(), flags=re.DOTALL | re.MULTILINE)
    marked = results.MARKED.findall(text)
    assert MEASURED.findall(results.MARKED.sub("", text)) == []
    assert marked or name == "docs/index.md"


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_what_the_first_command_prints_is_what_was_measured(name):
    import results

    (shown,) = re.findall(r"^```text\n(.*?)^```", (ROOT / name).read_text(), re.DOTALL | re.MULTILINE)
    values = results.read()["first_fit"]["values"]
    for signal, method in {"astronaut": "trained", "bicubic interpolation": "bicubic"}.items():
        assert re.search(rf"^│ {signal} +│ +{values[method]['psnr']:.2f} dB │", shown, re.MULTILINE)


def test_every_measurement_has_an_entry_that_says_how_it_was_made():
    import results

    found = results.read()
    assert found.keys() == results.MEASUREMENTS.keys()
    for entry in found.values():
        assert entry.keys() == {"what", "command", "machine", "date", "core_seconds", "values"}


def test_numbers_are_written_with_the_decimals_of_the_page():
    import results

    file = {"a": {"values": {"b": {"psnr": 30.046, "numbers": 207_000}, "c": {"psnr": 28.6}}}}
    text = "**<!-- = a.b.psnr -->1.00 dB**, <!-- = a.b.numbers -->1, <!-- = a.b.psnr - a.c.psnr -->0.7"
    assert results.fill_in(text, file) == (
        "**<!-- = a.b.psnr -->30.05 dB**, <!-- = a.b.numbers -->207,000, <!-- = a.b.psnr - a.c.psnr -->1.4"
    )
    with pytest.raises(SystemExit, match=r"has no value 'a\.d\.psnr'"):
        results.fill_in("<!-- = a.d.psnr -->1", file)
    with pytest.raises(SystemExit, match=r"-1\.45 now: change the sentence"):
        results.fill_in("<!-- = a.c.psnr - a.b.psnr -->1", file)


def test_a_measurement_keeps_entries_that_another_process_wrote_in_the_meantime(tmp_path, monkeypatch):
    import results

    def measured(name, folder):
        results.FILE.write_text("b: 2\n")
        return {"core_seconds": 1, "values": {}}

    monkeypatch.setattr(results, "FILE", tmp_path / "results.yaml")
    monkeypatch.setattr(results, "measure", measured)
    monkeypatch.setattr(results, "write_pages", lambda found: None)
    monkeypatch.setattr("sys.argv", ["results.py", "--only", "sound"])
    results.main()
    assert results.read() == {"b": 2, "sound": {"core_seconds": 1, "values": {}}}
