"""The size and shape of the code: lines by folder, import circles, the longest class, the base class of encoders.

    python benchmarks/rooms.py            # packages, tests and benchmarks, by folder and in total
    python benchmarks/rooms.py --files    # and what each file is

Code is what is left without docstrings, comments and empty lines. A circle is a set of modules of which each imports the
next, at the top of its file, in a function, or for type checkers (lazy names of an ``__init__`` apart).
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from pathlib import Path

import numpy as np
from harness import ROOT, make_parser, print_row, print_titles
from scipy.sparse.csgraph import connected_components

PACKAGES = ("pe_lightning", "pe_fill", "pe_papers")
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


def module(path: Path) -> str:
    """The name by which a file is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path, modules: dict[str, int]) -> set[str]:
    """The modules that a file imports."""
    nodes, found = [ast.parse(path.read_text())], set()
    while nodes:
        node = nodes.pop()
        if path.name == "__init__.py" and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        nodes += ast.iter_child_nodes(node)  # type: ignore[arg-type]
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else str(node.module) for name in names}
    return found & modules.keys()


def circles(files: list[Path]) -> list[list[str]]:
    """The sets of modules that import each other."""
    modules = {module(path): number for number, path in enumerate(files)}
    imports = np.zeros((len(files), len(files)), bool)
    for path, row in zip(files, imports, strict=True):
        row[[modules[name] for name in imported(path, modules)]] = True
    _, labels = connected_components(imports, connection="strong")
    sets = [[name for name, number in modules.items() if labels[number] == label] for label in set(labels)]
    return [names for names in sets if len(names) > 1]


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--files", action="store_true")
    options = parser.parse_args()
    rooms: dict[str, list[tuple[str, tuple[int, int, int, str]]]] = defaultdict(list)
    totals: dict[str, list[tuple[str, tuple[int, int, int, str]]]] = defaultdict(list)
    for top in (*PACKAGES, "tests", "benchmarks"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts, counts = path.relative_to(ROOT).parts, count(path)
            rooms[f"{top}/{parts[1]}" if len(parts) > 2 else f"{top}, modules"].append((path.name, counts))
            totals[f"**{top}**"].append((path.name, counts))
    print_titles("folder", "files", "lines", "code", "docstrings and comments")
    for room, files in [*rooms.items(), *totals.items()]:
        print_row(room, len(files), *(sum(counts[n] for _, counts in files) for n in range(3)))  # type: ignore[misc]
    for room, files in rooms.items() if options.files else ():
        print(f"\n{room}")
        print_titles("file", "lines", "code", "docstrings and comments", "what it is")
        for name, counts in files:
            print_row(name, *counts)
    sources = [path for top in PACKAGES for path in sorted((ROOT / top).rglob("*.py"))]
    found = circles(sources)
    print(f"\nimport circles: {len(found)}")
    for names in found:
        print("   ", ", ".join(names))
    classes = ((node, path) for path in sources for node in ast.walk(ast.parse(path.read_text())))
    bodies = ((n.end_lineno - n.lineno + 1, n.name, path) for n, path in classes if isinstance(n, ast.ClassDef))  # type: ignore[operator]
    for lines, name, path in sorted(bodies, reverse=True)[:3]:
        print(f"long class: {lines} lines, {name} of {path.relative_to(ROOT)}")
    print(f"encoders/base.py: {count(ROOT / 'pe_lightning/encoders/base.py')[0]} lines")
