"""Lines of packages, tests and benchmarks: all, code, docstrings and comments, by folder; and what each file is.

    python benchmarks/rooms.py            # folders
    python benchmarks/rooms.py --files    # files too

Code is what is left without docstrings, comments and empty lines.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from pathlib import Path

from harness import ROOT, make_parser, print_row, print_titles

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def count(path: Path) -> tuple[int, int, int, str]:
    """All lines of a file, those of code, those of docstrings and comments, and its first sentence."""
    text = path.read_text()
    tree, code, remarks = ast.parse(text), set(), set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        lines = range(token.start[0], token.end[0] + 1)
        if token.type == tokenize.COMMENT:
            remarks.update(lines)
        elif token.type not in LAYOUT:
            code.update(lines)
    for node in ast.walk(tree):  # docstrings of modules, classes, functions and attributes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            remarks.update(range(node.lineno, node.end_lineno + 1))  # type: ignore[operator]
    sentence = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ")
    return len(text.splitlines()), len(code - remarks), len(remarks), sentence


def main() -> None:
    """Prints a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--files", action="store_true")
    options = parser.parse_args()
    rooms: dict[str, list[tuple[Path, tuple[int, int, int, str]]]] = defaultdict(list)
    for top in ("pe_lightning", "pe_papers", "tests", "benchmarks"):
        for path in sorted((ROOT / top).rglob("*.py")):
            inside = path.relative_to(ROOT)
            rooms[str(Path(*inside.parts[: 2 if top.startswith("pe_") and len(inside.parts) > 2 else 1]))].append(
                (inside, count(path))
            )
    print_titles("folder", "files", "lines", "code", "docstrings and comments")
    for room, files in rooms.items():
        print_row(room, len(files), *(sum(counts[n] for _, counts in files) for n in range(3)))  # type: ignore[misc]
    for room, files in rooms.items() if options.files else ():
        print(f"\n{room}")
        print_titles("file", "lines", "code", "docstrings and comments", "what it is")
        for path, counts in files:
            print_row(path.name, *counts)


if __name__ == "__main__":
    main()
