"""What to type: for words of other programs, and as examples in the help. Other packages add hints by entry points."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pe_lightning.registry import HINTS, load_entry_points


@dataclass(frozen=True)
class Hints:
    """What to type for words of other programs, and examples of commands.

    Args:
        words: For each word given as a verb or an option: pairs of an option and what to type, for verbs that have
            the option. An empty option holds for every verb, and for the word as a verb.
        examples: Lines in the help of a verb; under the empty name, in the help of the command.
        removed: For names and modules of classes that are gone: a sentence that says what to type.
    """

    words: Mapping[str, Sequence[tuple[str, str]]]
    examples: Mapping[str, Sequence[str]]
    removed: Mapping[str, str] = field(default_factory=dict)


_OUTPUT = (("--out", "--out OUT"), ("--trainer", "--trainer.default_root_dir FOLDER"))
_RATE = (("--trainer", "--model NAME --model.optimizer Adam --model.optimizer.lr 0.001"),)
FRAMEWORK = Hints(
    words={
        **dict.fromkeys(("mask", "missing"), (("--data", "--data.missing MASK"),)),
        **dict.fromkeys(("o", "out", "output"), _OUTPUT),
        **dict.fromkeys(("lr", "learning_rate"), _RATE),
        "train": (("--trainer", "--trainer.max_steps N"), ("", "pe-lightning fit FILE")),
        "epochs": (("--trainer", "--trainer.max_epochs N"),),
        "steps": (("--trainer", "--trainer.max_steps N"),),
        "batch_size": (("--trainer", "--data.batching.kind points --data.batching.size N"),),
        "seed": (("--seed_everything", "--seed_everything 0"),),
        "gpus": (("--trainer", "--trainer.devices N"),),
        "resume_with_other_data": (("--ckpt_path", "--init CKPT_PATH in place of --ckpt_path"),),
        "float32_matmul_precision": (
            ("--trainer", "--trainer.callbacks+ MatmulPrecision --trainer.callbacks.precision high"),
        ),
    },
    examples={
        "": (
            "pe-lightning fit --config image/demo         train on a sample photograph by a recipe of the package",
            "pe-lightning fit my.jpg --encoder tri        solve exactly: pictures, sound, tables, videos, volumes",
            "pe-lightning compare runs/ --by encoder.name",
            "pe-lightning predict --ckpt_path RUN/checkpoints/last.ckpt --scale 2",
        ),
        "fit": (
            "pe-lightning fit --config image/demo           a recipe, with a sample that comes with the package",
            "pe-lightning fit my.jpg --encoder tri          an exact fit of pictures, sound, tables, videos, volumes",
            "pe-lightning fit my.jpg                        the fit that suits the kind of the file",
            "pe-lightning fit --config image/demo --encoder rff --encoder.sigma 30 --data.paths my.jpg",
        ),
        "validate": ("pe-lightning validate --ckpt_path RUN/checkpoints/last.ckpt",),
        "test": ("pe-lightning test --ckpt_path RUN/checkpoints/last.ckpt",),
        "predict": (
            "pe-lightning predict --ckpt_path RUN/checkpoints/last.ckpt --scale 2",
            "pe-lightning predict --ckpt_path RUN/checkpoints/last.ckpt --output_shape 1024 1024 --output_format npy",
        ),
    },
)


def _every() -> list[Hints]:
    return [FRAMEWORK, *load_entry_points(HINTS, "hints", kind=Hints)]


def hint(word: str, options: Collection[str] = ()) -> str | None:
    """What to type for a word of another program, given to a verb with these options, or as a verb."""
    found = [pair for hints in _every() for pair in hints.words.get(word, ())]
    return next((text for option, text in found if not option or option in options), None)


def examples(verb: str = "") -> list[str]:
    """Lines of examples in the help of a verb, or in the help of the command."""
    return [f"  {line}" for hints in _every() for line in hints.examples.get(verb, ())]
