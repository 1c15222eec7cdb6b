"""``pe-lightning suggest`` on three sample images: the tables it prints, and its processor seconds.

python benchmarks/suggest.py
python benchmarks/suggest.py my.jpg --budget 20
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness import PHOTOGRAPHS, machine, make_parser, run


def main() -> None:
    """Runs it on every image."""
    parser = make_parser(__doc__)
    parser.add_argument("paths", nargs="*", default=[f"samples://{name}" for name in PHOTOGRAPHS[:3]])
    parser.add_argument("--budget", type=float, default=60.0)
    options = parser.parse_args()
    print(machine())
    for path in options.paths:
        with tempfile.TemporaryDirectory() as folder:
            given = path if "://" in path else str(Path(path).absolute())
            table, _, seconds = run("suggest", given, "--budget", str(options.budget), folder=Path(folder))
        print(f"{table}\n{path}: {seconds:.1f} core seconds\n", flush=True)


if __name__ == "__main__":
    main()
