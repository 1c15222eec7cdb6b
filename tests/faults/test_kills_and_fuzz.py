"""Rows of ``benchmarks/faults.py``, at sizes that take a quarter of a minute each; the seed is printed with them."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.stress
PROGRAM = Path(__file__).parents[2] / "benchmarks/faults.py"
ROWS = {"fits": ["--kills", "4"], "readers": ["--mutations", "100"], "checkpoints": ["--mutations", "30"]}


@pytest.mark.parametrize("only", ROWS)
def test_every_attempt_holds(only):
    """Another seed each time: what fails is repeated by the command that is printed."""
    command = [sys.executable, str(PROGRAM), "--only", only, "--seed", str(random.randrange(10**6)), *ROWS[only]]
    print(" ".join(command))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, cwd=PROGRAM.parents[1])
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
