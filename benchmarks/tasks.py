"""What each encoder of positions costs in a training step of the attention tasks, at equal width.

    python benchmarks/tasks.py                        # all tasks, two minutes
    python benchmarks/tasks.py --tasks detection

Models of one task take turns, a step each, on one batch; times are those of the processor, medians over the steps, in
milliseconds and relative to tables of vectors (Embed). The encoders are the rows of ``pe-lightning reproduce l-tables``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from harness import in_turns, machine, make_parser, print_row, print_titles

from pe_papers import tasks
from pe_papers.reproduce.definition import load

BLOCKS = ("layout", "classification", "generation", "detection")


def stepper(model: tasks.AttentionTask, data: tasks.TaskDataModule) -> Callable[[], None]:
    """A step of training on the first batch."""
    model.build(data.info)
    batch = next(iter(data.train_dataloader()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        (model.loss_sum(batch) / max(batch["total"], 1) + model.positions.penalty()).backward()
        optimizer.step()

    return step


def main() -> None:
    """Prints a table for each task."""
    parser = make_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=BLOCKS, default=BLOCKS, metavar="TASK")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    print(machine())
    few = {"LayoutDataModule": {"num_train": 64, "num_test": 4}, "ShapesDataModule": {"num_train": 64, "num_test": 4}}
    for block in options.tasks:
        steps: dict[str, Callable[[], None]] = {}
        for entry in load("l-tables").entries():
            tree, name = entry.tree(), entry.labels.get("encoder", "")
            if entry.labels["block"] != block or name in steps:
                continue
            torch.manual_seed(0)
            kind = tree["data"]["class_path"]
            data = getattr(tasks, kind)(**{**tree["data"].get("init_args", {}), **few.get(kind, {})})
            steps[name] = stepper(getattr(tasks, tree["model"]["class_path"])(**tree["model"]["init_args"]), data)
        in_turns(steps, 2)  # warms up
        medians = in_turns(steps, options.steps)
        table = next(name for name in medians if name.startswith("Embed"))
        print()
        print_titles(block, "ms a step", f"/ {table}")
        for name, seconds in medians.items():
            print_row(name, 1000 * seconds, seconds / medians[table])


if __name__ == "__main__":
    main()
