"""The comparison of networks with published scores runs, and names the scores of the definitions of ``reproduce``."""

from pathlib import Path

import pytest
from PIL import Image


def test_each_network_is_compared_with_its_published_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import networks

    Image.linear_gradient("L").convert("RGB").resize((16, 16)).save(tmp_path / "ramp.png")
    names = list(networks.published_scores())
    networks.compare_with_published(str(tmp_path), names, count=1, steps=1, size=16)
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    assert {row[0].removeprefix("| ") for row in rows} == set(names)
    scores = [(row[0].removeprefix("| "), row[1]) for row in rows]
    assert ("sine, identity", "38.70") in scores
    assert ("relu, rff", "25.57") in scores
    assert ("finer, identity", "") in scores
    assert all(float(row[5]) < 60 for row in rows)
