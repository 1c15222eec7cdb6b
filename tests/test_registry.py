"""Names, what is said about wrong ones, and plugins: real distributions on sys.path, without mocks."""

from __future__ import annotations

import ast
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pe_lightning.errors import InputError
from pe_lightning.registry import REGISTRIES, PluginWarning, Registry, find_registry

GROUP = "tests.shapes"
Install = Callable[[str, str, str], None]


class Shape:
    """The base class of these tests."""


class Circle(Shape):
    """A shape with a misspellable argument."""

    def __init__(self, radius: float = 1.0, num_points: int = 8) -> None:
        self.radius = radius
        self.num_points = num_points


class Polygon(Shape):
    """A shape with a required argument."""

    def __init__(self, corners: int) -> None:
        self.corners = corners


@pytest.fixture
def shapes() -> Registry[Shape]:
    registry = Registry("shape", Shape, GROUP)
    registry.register("circle")(Circle)
    registry.register("polygon")(Polygon)
    return registry


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with one module and one entry point on sys.path, as pip would."""
    before = set(sys.modules)

    def install(module: str, source: str, entry_point: str) -> None:
        site = tmp_path / module
        info = site / f"{module}-1.5.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entry_point}\n")
        monkeypatch.syspath_prepend(str(site))

    yield install
    for name in set(sys.modules) - before:
        del sys.modules[name]


def message(error: pytest.ExceptionInfo[InputError]) -> str:
    return str(error.value)


def test_names(shapes: Registry[Shape]) -> None:
    assert shapes.names() == list(shapes) == ["circle", "polygon"]
    assert "circle" in shapes
    assert shapes.name_of(Circle) == "circle"
    assert shapes.name_of(Shape) == f"{__name__}.Shape"
    for name in ("circle", "Circle", f"{__name__}.Circle"):
        assert shapes.get(name) is Circle


def test_a_taken_name_is_an_error_that_names_both_classes(shapes: Registry[Shape]) -> None:
    class Disc(Shape):
        pass

    with pytest.raises(InputError, match=rf"{__name__}[.]Circle.*Disc"):
        shapes.register("circle")(Disc)
    assert shapes.get("circle") is Circle
    assert shapes.register("circle")(Circle) is Circle  # the same class again


def test_invalid_classes_and_names_are_not_registered(shapes: Registry[Shape]) -> None:
    class Half(Shape, ABC):
        @abstractmethod
        def area(self) -> float: ...

    for wrong in (int, Circle(), "circle"):
        with pytest.raises(InputError, match=rf"not a subclass of {__name__}\.Shape"):
            shapes.register("wrong")(wrong)  # type: ignore[type-var]
    for name in ("", "two words", "a.b", "1st", "a-b"):
        with pytest.raises(InputError, match="letters, digits and underscores"):
            shapes.register(name)(Circle)
    with pytest.raises(InputError, match="does not define area"):
        shapes.register("half")(Half)
    assert shapes.names() == ["circle", "polygon"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cirlce", "^unknown shape 'cirlce'; did you mean 'circle'[?] Registered: circle, polygon$"),
        ("zzz", "^unknown shape 'zzz'[.] Registered: circle, polygon$"),
        ("no_such_package.Circle", "No module named 'no_such_package'"),
        (f"{__name__}.Squircle", "has no attribute 'Squircle'"),
        ("..relative.Circle", "relative"),
        ("builtins.int", "cannot be used as shape: it is not a subclass"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_and_all(shapes: Registry[Shape], name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        shapes.get(name)


def test_a_module_in_the_current_folder_is_named_with_what_to_type(shapes: Registry[Shape], tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_shapes.py").write_text("")
    with pytest.raises(InputError, match=r"is in this folder.* type PYTHONPATH="):
        shapes.get("my_shapes.Circle")


def test_arguments_are_checked_before_the_class_is_called(shapes: Registry[Shape]) -> None:
    with pytest.raises(InputError, match=r"has no argument 'radios'; did you mean 'radius'[?] It takes: radius, num_points"):
        shapes.create("circle", radios=2.0)
    with pytest.raises(InputError, match="shape 'polygon' needs a value for 'corners'"):
        shapes.create("polygon")

    @shapes.register("free")
    class Free(Shape):
        def __init__(self, **options: int) -> None:
            self.options = options

    assert shapes.create("free", anything=1).options == {"anything": 1}  # only the class itself can tell


def test_a_description_is_resolved(shapes: Registry[Shape]) -> None:
    circle = Circle()
    assert shapes.resolve(circle) is circle
    assert isinstance(shapes.resolve("circle"), Circle)
    for key, arguments in (("name", {"corners": 3}), ("class_path", {"init_args": {"corners": 3}})):
        polygon = shapes.resolve({key: "polygon", **arguments})
        assert isinstance(polygon, Polygon)
        assert polygon.corners == 3
    for wrong in (None, {}, {"radius": 0.1}, ["circle"]):
        with pytest.raises(InputError, match="give a name such as 'circle'"):
            shapes.resolve(wrong)  # type: ignore[arg-type]


PLUGIN = f"from {__name__} import Shape\nclass Star(Shape):\n    pass\n"


def test_a_plugin_is_found_by_its_entry_point(shapes: Registry[Shape], install: Install) -> None:
    install("pe_star", PLUGIN, "star = pe_star:Star")
    assert shapes.get("circle") is Circle
    assert shapes.name_of(Circle) == "circle"
    assert "circle" in shapes
    assert "pe_star" not in sys.modules  # nothing is imported before somebody asks for it
    assert Registry("shape", Shape, GROUP).get("Star").__module__ == "pe_star"
    assert shapes.names() == ["circle", "polygon", "star"]
    assert type(shapes.create("star")).__module__ == "pe_star"
    assert shapes.broken() == {}


def test_a_broken_plugin_stops_only_those_who_ask_for_it(shapes: Registry[Shape], install: Install) -> None:
    install("pe_broken", "raise RuntimeError('needs a licence')", "aaa = pe_broken:Aaa")
    install("pe_star", PLUGIN, "star = pe_star:Star")
    with pytest.raises(PluginWarning):  # an error here, and still the other plugin is found
        shapes.names()
    assert "star" in shapes
    again = Registry("shape", Shape, GROUP)
    with pytest.warns(PluginWarning) as warned:
        assert again.names() == ["star"]
    parts = ["'aaa'", "pe_broken 1.5", "pe_broken:Aaa", "RuntimeError: needs a licence"]
    assert len(warned) == 1
    assert all(part in str(warned[0].message) for part in parts)
    assert isinstance(shapes.create("circle"), Circle)
    with pytest.raises(InputError) as error:
        shapes.create("aaa")
    assert all(part in message(error) for part in parts)
    assert shapes.broken() == {"aaa": message(error)}


@pytest.mark.parametrize(
    ("source", "entry_point", "reason"),
    [
        (PLUGIN, "circle = pe_bad:Star", r"'circle' is taken by .*Circle; register pe_bad\.Star under another name"),
        (f"from {__name__} import Shape\nStar = 3", "star = pe_bad:Star", "not a subclass of"),
        ("", "star = pe_bad", "registered no shape 'star'"),
        (PLUGIN, "two-words = pe_bad:Star", "not a plain word"),
    ],
)
def test_a_plugin_that_breaks_the_rules_is_left_out_with_a_warning(
    shapes: Registry[Shape], install: Install, source: str, entry_point: str, reason: str
) -> None:
    install("pe_bad", source, entry_point)
    with pytest.warns(PluginWarning, match=rf"(?s)distribution pe_bad 1\.5.*{reason}"):
        assert "circle" in shapes.names()
    assert shapes.get("circle") is Circle
    name = entry_point.split()[0]
    if name != "circle":
        with pytest.raises(InputError, match=reason):
            shapes.create(name)


ROOT = Path(__file__).parents[1]


def test_every_registry_is_listed_and_has_the_entry_point_group_of_its_name() -> None:
    """A registry made anywhere in the package is one that ``pe-lightning list`` shows and that plugins can extend."""
    made = set()
    for path in (ROOT / "pe_lightning").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Call):
                continue
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if getattr(node.value.func, "id", "").endswith("Registry"):
                made.add(f"{module}.{ast.unparse(target)}")
    assert made == set(REGISTRIES.values())
    for name in REGISTRIES:
        assert find_registry(name).group == f"pe_lightning.{name}"
        assert find_registry(name).names()


def test_the_documented_groups_are_the_registries() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    third_column = re.findall(r"^\|[^|]*\|[^|]*\| `pe_lightning\.(\w+)` \|$", text, re.MULTILINE)
    assert set(third_column) == set(REGISTRIES)
    assert "`pe_lightning.recipes`" in text
    assert "`pe_lightning.verbs`" in text
    assert "`pe_lightning.hints`" in text
