"""What W&B keeps of an offline run, read from its ``.wandb`` file."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record


def records(file: Path) -> Iterator[Record]:
    """W&B's own messages of an offline run: a log of LevelDB, in blocks of 32768 bytes, after 7 bytes of header."""
    content, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:  # the end of a block is padding
            place += left
            continue
        size, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        whole += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a full record, or the last part of one
            yield Record.FromString(whole)
            whole = b""


def logged(file: Path) -> dict[str, list[float]]:
    """The numbers in the history of an offline run."""
    found: dict[str, list[float]] = {}
    for record in records(file):
        for item in record.history.item:
            value = json.loads(item.value_json)
            if isinstance(value, (int, float)):
                found.setdefault(item.key or "/".join(item.nested_key), []).append(value)
    return found


def settings(file: Path) -> tuple[dict[str, Any], str, list[str]]:
    """The configuration, the group and the tags of an offline run."""
    config: dict[str, Any] = {}
    group, tags = "", list[str]()
    for record in records(file):
        config |= {item.key: json.loads(item.value_json) for item in (*record.config.update, *record.run.config.update)}
        if record.HasField("run"):
            group, tags = record.run.run_group, list(record.run.tags)
    return config, group, tags
