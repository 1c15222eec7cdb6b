"""Configuration files that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from pe_lightning.errors import InputError
from pe_lightning.results.config_files import read_config

DAMAGED = {
    "empty": (b"", "holds no settings by name"),
    "zero bytes": (b"\x00\x00", "it is not YAML"),
    "unfinished": (b"a: [", "it is not YAML"),
    "not UTF-8": (b"a: \xff\xfe", "it is not UTF-8 text"),
    "deep": (b"[" * 800 + b"]" * 800, "levels, or refers to itself"),
    "recursive": (b"a: &a [*a]", "refers to itself"),
    "list": (b"- 1\n", "holds no settings by name"),
    "number as a key": (b"1: 2\n", "holds no settings by name"),
    "digits": (b"seed_everything: " + b"9" * 100_000, "Exceeds the limit"),
    "date": (b"a: 2001-99-99\n", "holds a value that cannot be read"),
    "code": (b"!!python/object/apply:os.getcwd []", "it is not YAML"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_configurations(case: str, tmp_path: Path) -> None:
    content, words = DAMAGED[case]
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(InputError) as error:
        read_config(tmp_path / "config.yaml")
    message = str(error.value)
    assert "config.yaml" in message
    assert words in message
    assert "\n" not in message
    assert len(message) < 600
