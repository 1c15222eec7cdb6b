"""A typed function becomes a verb: its signature is the syntax, its docstring the help."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from pe_lightning.cli.verbs import call
from pe_lightning.errors import InputError

GIVEN: list[Any] = []


def pack(
    paths: list[Path], /, *others: str, kind: Literal["zip", "tar"] = "zip", level: int = 3, names: list[str] | None = None,
    force: bool = False,
) -> int:  # fmt: skip
    """Packs files.

      pe-lightning pack a b

    Args:
        paths: What is packed.
        *others: Go to the archiver.
        kind: The ``format``.
        level: How much.
        names: What they are called.
        force: Whether to replace.
    """
    GIVEN[:] = [paths, others, kind, level, names, force]
    return 7


def keep(place: str, /, *, cache_dir: str | None = None) -> None: ...


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("a b --force --level 9", [[Path("a"), Path("b")], (), "zip", 9, None, True]),
        ("--kind=tar a --level 1 b", [[Path("a"), Path("b")], (), "tar", 1, None, False]),
        ("a --names x y --names z", [[Path("a")], (), "zip", 3, ["x", "y", "z"], False]),
        ("a --x.y -1 b --q=2 -c f", [[Path("a"), Path("b")], ("--x.y", "-1", "--q=2", "-c", "f"), "zip", 3, None, False]),
    ],
)  # fmt: skip
def test_arguments_follow_the_signature(words, given):
    assert call("pack", pack, words.split()) == 7
    assert given == GIVEN


@pytest.mark.parametrize(
    ("function", "words", "told"),
    [
        (pack, "", "give PATHS; --help"),
        (pack, "a --level high", "level: expected int, got high"),
        (pack, "a --kind tra", "kind: expected one of 'zip', 'tar', got tra; did you mean 'tar'?"),
        (pack, "a --level", "--level: expected one argument"),
        (keep, "you me", "unknown argument 'me'"),
        (keep, "you --cach_dir x", "unknown option '--cach_dir'; did you mean '--cache_dir'?"),
    ],
)
def test_errors_are_one_line(function, words, told):
    with pytest.raises(InputError) as caught:
        call("verb", function, words.split())
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_docstring_is_the_help(capsys):
    with pytest.raises(SystemExit):
        call("pack", pack, ["--help"])
    shown = capsys.readouterr().out
    for part in ("Packs files.\n\n  pe-lightning pack a b", "What is packed.", "The format.", "further options: Go to"):
        assert part in shown
