"""Every format by one table: values that are read, messages about damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from file_formats import FORMATS, write_sample
from source_checks import refused, stored, unit

from pe_lightning.signals.sources import VideoSource
from pe_lightning.signals.sources.kinds import source_of

CHECKED = [name for name in FORMATS if name not in ("frames", "a.csv")]  # text, and a file per frame


@pytest.mark.parametrize("name", FORMATS)
def test_the_samples_of_a_file(tmp_path: Path, name: str) -> None:
    path, values = write_sample(tmp_path, name)
    raw = (VideoSource(path) if path.is_dir() else source_of(str(path))).read()
    assert raw.stored == values.dtype.name
    np.testing.assert_array_equal(stored(raw), values)
    for signal, (in_unit, expected) in enumerate(zip(unit(raw), values, strict=True)):
        assert 0 <= in_unit.min() < in_unit.max() <= 1
        low, high = raw.scaling.limits(signal)
        np.testing.assert_allclose(raw.scaling.restore(in_unit, signal), expected, rtol=0, atol=1e-6 * (high - low))


@pytest.mark.parametrize("name", CHECKED)
def test_truncated_files(tmp_path: Path, name: str) -> None:
    path, _ = write_sample(tmp_path, name)
    path.write_bytes(path.read_bytes()[: int(0.6 * path.stat().st_size)])
    refused(lambda: stored(source_of(str(path)).read()), path.name, "truncated, damaged")
