"""The option ``compile``: the same fit, few programs, checkpoints as without it; what torch.compile wraps is refused."""

import copy
import os
import pickle
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import GAU, MODULES, MakeTrainer, fit, signals
from stopping import run_command
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals import Batching
from pe_lightning.signals.batches import GridBatch
from pe_lightning.training import ComplexLinear, CoordinateModule, SimpleMLP, TensorDataModule
from pe_lightning.training.steps import CompiledErrors

LEARNED = {**GAU, "trainable": True}


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.GraphModule]:
    """The programs that torch.compile makes, which are run as they are traced."""
    made: list[torch.fx.GraphModule] = []

    def backend(program: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        made.append(program)
        return program.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    return made


def weights(module: CoordinateModule) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in module.networks.state_dict().items()}


@pytest.mark.slow  # traces for seconds
@pytest.mark.parametrize(
    ("make", "count", "batching", "precision", "shapes"),
    [
        (lambda **more: SimpleMLP(GAU, 1, 8, **more), 1, Batching(), "32-true", 1),
        (lambda **more: SimpleMLP(LEARNED, 1, 8, **more), 2, Batching("points", 25), "32-true", 2),
        (lambda **more: ComplexLinear(LEARNED, 1, 6, **more), 2, Batching("blocks", [3, 4]), "bf16-mixed", 2),
    ],
    ids=["full", "points", "blocks"],
)
def test_a_compiled_fit_is_the_same_with_one_program_for_each_shape_of_a_batch(
    make: Callable[..., CoordinateModule],
    count: int,
    batching: Batching,
    precision: str,
    shapes: int,
    programs: list[torch.fx.GraphModule],
    make_trainer: MakeTrainer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    data = TensorDataModule(signals(count, 16, 8), batching=batching)
    fits = []
    for given in ({}, {"compile": True}):
        torch.manual_seed(0)
        fits.append(make(**given))
        fit(fits[-1], data, make_trainer, 9, precision=precision)
    plain, compiled = map(weights, fits)
    assert plain.keys() == compiled.keys()
    torch.testing.assert_close(plain, compiled, rtol=1e-5, atol=1e-6)
    assert len(programs) == 1 + shapes  # the first is of the check of the compiler
    assert caplog.text.count("the first step compiles its program, which takes 5 s to a minute") == 1


@pytest.mark.slow
def test_checkpoints_do_not_depend_on_it(
    programs: list[torch.fx.GraphModule], make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    data, module = TensorDataModule(signals(2, 8, 6)), SimpleMLP(GAU, 1, 8, compile=True)
    fit(module, data, make_trainer, 4).save_checkpoint(path := tmp_path / "last.ckpt")
    half = weights(module)
    resumed = pickle.loads(pickle.dumps(copy.deepcopy(module)))
    make_trainer(max_steps=8, num_sanity_val_steps=0).fit(resumed, data, ckpt_path=path)
    torch.manual_seed(0)
    fit(whole := SimpleMLP(GAU, 1, 8, compile=True), data, make_trainer, 8)
    assert all(torch.equal(x, weights(whole)[name]) for name, x in weights(resumed).items())
    programs.clear()
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["state_dict"] = {f"networks._orig_mod.{name[9:]}": x for name, x in checkpoint["state_dict"].items()}
    torch.save(checkpoint, wrapped := tmp_path / "wrapped.ckpt")
    for file, given in ((path, {}), (path, {"compile": False}), (wrapped, {})):
        loaded = SimpleMLP.load_from_checkpoint(file, weights_only=True, **given)
        assert loaded.hparams["compile"] is not bool(given)
        assert all(torch.equal(x, half[name]) for name, x in weights(loaded).items())
        assert loaded(torch.rand(3, 2)).shape == (2, 3, 2)
    assert not programs  # predictions are not compiled


def test_programs_of_other_models_do_not_count(programs: list[torch.fx.GraphModule]) -> None:
    class Own:
        device = torch.device("cpu")

        def __init__(self, factor: int) -> None:
            self.factor = factor

        def errors(self, batch: GridBatch) -> Tensor:
            return self.factor * batch.values

    batch = GridBatch((torch.zeros(2),), torch.ones(1, 2, 1))
    for factor in range(9):
        assert torch.equal(CompiledErrors()(Own(factor), batch), factor * batch.values)


def test_wrapped_modules_and_linear_layers_are_refused(
    programs: list[torch.fx.GraphModule], make_trainer: MakeTrainer
) -> None:
    data, module = TensorDataModule(signals(1, 8, 6)), MODULES["simple"]()
    with pytest.raises(InputError, match=r"a Trainer: pass them without it; SimpleMLP\(\.\.\., compile=True\)"):
        fit(torch.compile(module), data, make_trainer, 1)
    fit(module, data, make_trainer, 1)  # the module itself is as before
    module.networks = torch.compile(module.networks)
    with pytest.raises(InputError, match=r"SimpleMLP or a part of it"):
        fit(module, data, make_trainer, 2)
    with pytest.raises(InputError, match=r"does nothing for a single linear layer.*leave out --model\.compile"):
        ComplexLinear(GAU, compile=True)
    with pytest.raises(InputError, match=r"compile must be false or true; got 'max'"):
        SimpleMLP(GAU, compile="max")


def test_errors_that_cannot_be_compiled_are_refused(programs: list[torch.fx.GraphModule], make_trainer: MakeTrainer) -> None:
    class Reading(SimpleMLP):
        def errors(self, batch: GridBatch) -> Tensor:
            with open(os.devnull) as file:
                return super().errors(batch) + len(file.read())

    with pytest.raises(InputError, match=r"compile: torch\.compile does not take.*leave out --model\.compile"):
        fit(Reading(GAU, 1, 8, compile=True), TensorDataModule(signals(1, 8, 6)), make_trainer, 1)


@pytest.mark.slow  # starts a process, and compiles for seconds
@pytest.mark.parametrize("has_compiler", [True, False])
def test_a_fit_is_compiled_and_ends_at_once_without_a_compiler(has_compiler: bool, tmp_path: Path) -> None:
    program = (
        "import torch, pe_lightning as p\n"
        "def fit(compile):\n"
        "    torch.manual_seed(0)\n"
        "    model = p.SimpleMLP('identity', depth=1, hidden_size=8, activation='sine', compile=compile)\n"
        "    return p.fit(torch.linspace(0, 1, 192).reshape(1, 8, 8, 3), model=model, max_steps=5).networks.parameters()\n"
        "for one, other in zip(fit(True), fit(False)):\n"
        "    torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)\n"
    )
    Path(tmp_path, "program.py").write_text(program)
    missing = {} if has_compiler else {"CXX": str(tmp_path / "c++"), "PATH": str(tmp_path)}
    # one process compiles: others would import torch
    done = run_command(tmp_path, "program.py", environment={"TORCHINDUCTOR_COMPILE_THREADS": "1", **missing})
    assert (done.returncode == 0) is has_compiler, done.stderr
    if not has_compiler:
        assert re.search(r"InputError: compile: .* needs a C\+\+ compiler.*leave out --model\.compile", done.stderr)
