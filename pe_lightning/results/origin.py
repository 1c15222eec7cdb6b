"""Where the results of a run come from: date, command and git commit."""

from __future__ import annotations

import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path


def origin() -> dict[str, str | None]:
    """Entries of ``metrics.json``.

    Returns:
        ``date`` in ISO format and UTC; ``command``, the command line of this process; ``git_commit`` of the working
        directory, ``None`` outside of a repository.
    """
    program = Path(sys.argv[0])
    called = ["python", "-m", program.parent.name] if program.name == "__main__.py" else [program.name]
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        commit = found.stdout.strip() if found.returncode == 0 else None
    except OSError:  # there is no git
        commit = None
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join([*called, *sys.argv[1:]]),
        "git_commit": commit,
    }
