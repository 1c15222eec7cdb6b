"""The promises of docs/architecture.md: three packages, and parts that import from their row of the table and below."""

from __future__ import annotations

import ast
import importlib
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pe_lightning"


def rows() -> dict[str, int]:
    """Row of the table by part of the package: the name of a folder, or of a file without its suffix."""
    lines = [line for line in (ROOT / "docs/architecture.md").read_text().splitlines() if line.startswith("| `")]
    names = [re.findall(r"`(\w+)(?:/|\.py)`", line.split("|")[1]) for line in lines]
    return {name: number for number, row in enumerate(names) for name in row}


def imported(file: Path) -> set[str]:
    """Parts of the package that a file imports, at any place in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if modules == ["pe_lightning"]:
            modules = [f"pe_lightning.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in modules if name.startswith("pe_lightning.")}
    return found


def test_every_part_of_the_package_is_in_the_table() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {name for name in parts if not name.startswith("__")} - {"py"} == rows().keys()


def test_parts_import_from_their_row_and_from_rows_below() -> None:
    row = rows()
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {part}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if (own := file.relative_to(PACKAGE).parts[0].removesuffix(".py")) in row
        for part in sorted(imported(file) & row.keys())
        if row[part] < row[own]
    ]
    assert wrong == []


def test_no_imports_go_in_a_circle() -> None:
    """At any place in a file, also for type checkers; an ``__init__`` may name for type checkers what it imports lazily."""
    files = [file for package in ("pe_lightning", "pe_fill", "pe_papers") for file in (ROOT / package).rglob("*.py")]
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}
    graph: dict[str, set[str]] = {}
    for module, file in modules.items():
        statements = ast.parse(file.read_text()).body
        if file.name == "__init__.py":
            statements = [node for node in statements if ast.unparse(node).partition(":")[0] != "if TYPE_CHECKING"]
        nodes = [node for statement in statements for node in ast.walk(statement)]
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                paths = [f"{node.module}.{alias.name}" for alias in node.names]
                names |= {path if path in modules else str(node.module) for path in paths}
        graph[module] = names & modules.keys()
    TopologicalSorter(graph).prepare()  # its error names the circle


def test_the_framework_knows_no_other_package() -> None:
    """Neither an import nor a name, but in the messages about what has moved or is to be installed."""
    assert [str(file) for file in PACKAGE.rglob("*.py") if "pe_papers" in file.read_text()] == []
    naming = {str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if "pe_fill" in file.read_text()}
    assert naming == {"__init__.py", "estimators/linear.py"}
    assert [str(file) for file in (ROOT / "pe_papers").rglob("*.py") if "pe_fill" in file.read_text()] == []
    assert [str(file) for file in (ROOT / "pe_fill").rglob("*.py") if "pe_papers" in file.read_text()] == []


def test_a_name_that_has_moved_says_where_it_is() -> None:
    with pytest.raises(ImportError, match=r"pe_lightning\.fill is pe_fill\.fill now: from pe_fill import fill"):
        importlib.import_module("pe_lightning").fill  # noqa: B018  # as `from pe_lightning import fill` asks for it


def test_lightning_is_imported_by_training_and_the_rows_above_it_only() -> None:
    row = rows()
    importing = {
        part
        for file in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(import|from) lightning\b", file.read_text(), re.MULTILINE)
        and row.get(part := file.relative_to(PACKAGE).parts[0].removesuffix(".py"), 0) > row["training"]
    }
    assert importing == set()


@pytest.mark.parametrize("package", ["pe_fill", "pe_papers"])
def test_the_packages_on_the_framework_use_documented_names_alone(package: str) -> None:
    """What a stranger's plug-in can use: names of the modules in the reference, of their ``__all__`` if there is one."""
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    documented = {*re.findall(r"^::: (pe_lightning[.\w]*)$", pages, re.MULTILINE), "pe_lightning"}
    wrong = []
    for file in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            named = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if module.partition(".")[0] != "pe_lightning":
                wrong += [f"{file.name}: import {name}" for name in named if not module and name.startswith("pe_lightning.")]
                continue
            public: list[str] = []
            if module in documented:
                loaded = importlib.import_module(module)
                public = getattr(loaded, "__all__", [name for name in vars(loaded) if not name.startswith("_")])
            wrong += [
                f"{file.name}: {module}.{name}"
                for name in named
                if name not in public and f"{module}.{name}" not in documented
            ]
    assert wrong == []
