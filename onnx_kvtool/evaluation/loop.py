"""A first run, the decode steps after it, and the same in another runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.choices import RuntimeName
from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.machine import Progress
from onnx_kvtool.evaluation.report import Comparison, TraceEntry, type_facts
from onnx_kvtool.evaluation.runner import Runner
from onnx_kvtool.model_io.model import clone
from onnx_kvtool.runtime.engine.borrowed import element_type
from onnx_kvtool.runtime.engine.program import Trace, root
from onnx_kvtool.runtime.errors import CannotDraw, RunFailed
from onnx_kvtool.runtime.kernels.kernel import Named, Value
from onnx_kvtool.symbolic.dimensions import names_in
from onnx_kvtool.verification.comparison.differences import compare, compare_form
from onnx_kvtool.verification.report import FirstMismatch, OutputReport

# Inputs that are drawn, and steps, need what is known of caches; a run on what is given does not.
if TYPE_CHECKING:
    from onnx_kvtool.verification.comparison.tolerances import Measure
    from onnx_kvtool.verification.inputs.plan import InputPlan

# The inputs of the first run: given, or drawn to fit the given ones.


def plan_with(model: ir.Model, given: Named) -> InputPlan:
    """Return the plan of the inputs of `model`; open types and ranks are those of given values.

    Raises:
        UsageError: If an input is not a tensor, or neither declared nor given with type and rank.
    """
    from onnx_kvtool.verification.inputs.plan import plan

    open_ = [
        value.name
        for value in model.graph.inputs
        if value.name in given and (value.dtype is None or value.shape is None)
    ]
    if open_:
        model = clone(model)
        for value in model.graph.inputs:
            array = given.get(value.name or "")
            if value.name in open_ and isinstance(array, np.ndarray):
                found = element_type(array.dtype)
                if value.dtype is None and found is not None:
                    value.type = ir.TensorType(found)
                if value.shape is None:
                    value.shape = ir.Shape([None] * array.ndim)
    try:
        return plan(model)
    except CannotDraw as error:
        raise UsageError(error.message, help=error.help) from error


def bound_sizes(known: InputPlan, given: Named, dims: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of symbolic dimensions that the user has fixed.

    Raises:
        UsageError: If two of these give a dimension different sizes.
    """
    sizes = dict(dims)
    source = dict.fromkeys(dims, "`--dim` says")
    for spec in known.inputs:
        value = given.get(spec.name)
        if not isinstance(value, np.ndarray):
            continue
        for axis, (dim, size) in enumerate(zip(spec.shape, value.shape, strict=False)):
            if not isinstance(dim, str) or names_in(dim) != (dim,):
                continue
            if sizes.setdefault(dim, size) != size:
                raise UsageError(
                    f"input `{spec.name}` has size {size} in dimension {axis}, `{dim}`, "
                    f"expected {sizes[dim]} as {source[dim]}"
                )
            source.setdefault(dim, f"`{spec.name}` has")
    return sizes


def drawn_feeds(
    known: InputPlan,
    given: Named,
    missing: Sequence[str],
    seed: int,
    sizes: Mapping[str, int],
) -> Iterator[dict[str, Value]]:
    """Yield inputs for a first run, by the likeliest reading of the model's dimensions first.

    Raises:
        UsageError: If no reading allows inputs.
    """
    from onnx_kvtool.verification.inputs.cases import CASES
    from onnx_kvtool.verification.inputs.drawing import draw
    from onnx_kvtool.verification.inputs.symbols import attempts

    failure: CannotDraw | None = None
    drew = False
    # The first case is a prompt for two empty caches, which leaves room for decode steps.
    for case, reading in attempts(known, CASES[0], sizes):
        try:
            values = draw(known, case, seed, reading)
        except CannotDraw as error:
            failure = failure or error
            continue
        drew = True
        feeds = {**{name: values[name] for name in missing}, **given}
        # In the order of the model, what is fed to other values after its inputs.
        yield {name: feeds[name] for name in (*values, *given) if name in feeds}
    if not drew and failure is not None:
        raise UsageError(failure.message, help=failure.help) from failure


# Values that the receiver may change.


def apart_from(values: Named, others: Named) -> dict[str, Value]:
    """Return values that share no memory with `others`, copied where they may."""
    taken = {id(root(other)) for other in others.values() if isinstance(other, np.ndarray)}
    return {
        name: value.copy() if isinstance(value, np.ndarray) and id(root(value)) in taken else value
        for name, value in values.items()
    }


def owned(value: Value) -> Any:
    """Return a value whose arrays the caller may write into, of the byte order of the machine."""
    if isinstance(value, list):
        return [owned(item) for item in value]
    if isinstance(value, np.ndarray):
        if value.dtype.byteorder in "<>":  # weights come with the order of the file, spelt out
            return value.astype(value.dtype.newbyteorder("="))
        if not (value.flags.owndata and value.flags.writeable):
            return value.copy()
    return value


# A first run and the decode steps after it.


Watch = Callable[[int, Named, Named], None]
"""Called after each run with its number, its inputs and its outputs, before buffers are reused."""


@dataclass(slots=True)
class Outcome:
    """The results of the runs.

    Attributes:
        inputs: The inputs of the last run; it may have written into its caches.
        values: The outputs of the last run.
        warnings: The warnings of all runs, each once.
        trace: The nodes that ran, over all runs.
    """

    inputs: dict[str, Value]
    values: dict[str, Value]
    warnings: tuple[Diagnostic, ...] = ()
    trace: list[TraceEntry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How to run a model.

    Attributes:
        random: Whether to draw inputs that are not given.
        seed: Seed of the drawn inputs.
        dims: Sizes of symbolic dimensions.
        trace: Whether to report every node that runs.
        steps: Decode steps after the first run.
        runtime: The runtime.
        compare: The runtime to compare with; None for none.
    """

    random: bool = False
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    trace: bool = False
    steps: int = 0
    runtime: RuntimeName = "reference"
    compare: RuntimeName | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """The runs of a part.

    Attributes:
        runner: The part.
        settings: How to run it; a number of rows that they fix does not grow.
        plan: The plan of the inputs; None without steps.
        watch: Called after every run; None for nobody. With it, caches are not updated in place.
        progress: Called with each run.
    """

    runner: Runner
    settings: RunSettings
    plan: InputPlan | None
    watch: Watch | None
    progress: Progress

    def run(self, candidates: Iterable[dict[str, Value]]) -> Outcome:
        """Run the part, with each present fed back to its past in every step.

        The arrays of the first run are only read; from the first step on, the caches are updated in
        place, as nobody else has them.

        Args:
            candidates: Inputs of the first run; the first ones that work are used.

        Raises:
            RunFailed: If the first run fails on all of them, for the first reason; if a step fails,
                or has no room in a cache or a table of positions.
        """
        failure: RunFailed | None = None
        for inputs in candidates:
            outcome = Outcome(inputs, {})
            try:
                self._run(outcome, 0, ())
                break
            except RunFailed as error:
                failure = failure or error
        else:
            assert failure is not None
            raise failure
        for step in range(1, self.settings.steps + 1):
            self._step(outcome, step)
        return outcome

    def _step(self, outcome: Outcome, step: int) -> None:
        from onnx_kvtool.verification.inputs.stepping import advance

        assert self.plan is not None
        # A present that lies in an array of the caller must not be written into.
        if step == 1:
            outcome.values = apart_from(outcome.values, outcome.inputs)
        following = advance(
            self.plan,
            outcome.inputs,
            outcome.values,
            seed=self.settings.seed + 1000 * step,
            dims=self.settings.dims,
        )
        if following is None:
            raise RunFailed(
                f"decode step {step} of {self.settings.steps} finds no room: a cache or a table of "
                f"positions is full, or a present does not fit its past",
                help=f"ask for `--steps {step - 1}`" if step > 1 else "leave `--steps` out",
            )
        outcome.inputs, outcome.values = dict(following), {}
        caches = () if self.watch else tuple(pair.past for pair in self.plan.pairs)
        self._run(outcome, step, caches)

    def _run(self, outcome: Outcome, step: int, give_up: tuple[str, ...]) -> None:
        if self.settings.steps:
            self.progress("running, step", step + 1, self.settings.steps + 1)
        else:
            self.progress("running")
        trace: list[TraceEntry] = []
        observe = (lambda seen: trace.append(_entry(seen, step))) if self.settings.trace else None
        run = self.runner.run(outcome.inputs, give_up=give_up, observe=observe)
        outcome.values = run.values
        outcome.warnings = tuple(dict.fromkeys((*outcome.warnings, *run.warnings)))
        outcome.trace += trace
        if self.watch is not None:
            self.watch(step, outcome.inputs, outcome.values)


def _entry(seen: Trace, step: int) -> TraceEntry:
    outputs = tuple(type_facts(name, value) for name, value in seen.outputs if name)
    return TraceEntry(seen.location, outputs, seen.seconds, seen.runtime, step)


# The outputs of one runtime compared with those of another, run by run.


@dataclass(slots=True)
class Versus:
    """Runs another runtime on the inputs of the first one, and compares the outputs.

    Attributes:
        other: The part in the other runtime, which gives the expected values.
        outputs: Names of the outputs to compare.
        measure: The tolerance of each output.
    """

    other: Runner
    outputs: Sequence[str]
    measure: Measure
    _seen: dict[str, OutputReport] = field(default_factory=dict)
    _different: set[str] = field(default_factory=set)

    def watch(self, step: int, inputs: Named, values: Named) -> None:
        """Compare the outputs of one run.

        Raises:
            RunFailed: If the other runtime fails on these inputs.
        """
        try:
            expected = self.other.run(inputs).values
        except RunFailed as error:
            place = f"{self.other.runtime}: "
            told = error.message if error.message.startswith(place) else place + error.message
            raise RunFailed(f"the runtime to compare with fails: {told}") from error
        where = "in the first run" if step == 0 else f"in decode step {step}"
        for name in self.outputs:
            before = self._seen.get(name, OutputReport(name, True, 0.0))
            self._seen[name] = self._compared(before, expected[name], values[name], where)

    def _compared(
        self, before: OutputReport, expected: Value, actual: Value, where: str
    ) -> OutputReport:
        for value in (expected, actual):
            if not isinstance(value, np.ndarray):
                raise RunFailed(
                    f"output `{before.name}` is a {type(value).__name__}, and only tensors can be "
                    f"compared"
                )
        found = (
            compare_form(before.name, expected, actual)
            if before.name in self.measure.random
            else compare(
                before.name,
                expected,
                actual,
                self.measure.of(expected, before.name),
                exact=before.name in self.measure.moved,
            )
        )
        if not found.within:
            self._different.add(before.name)
        largest = (
            None
            if before.max_abs_diff is None or found.max_abs_diff is None
            else max(before.max_abs_diff, found.max_abs_diff)
        )
        mismatch = before.first_mismatch
        if mismatch is None and found.first_mismatch is not None:
            mismatch = FirstMismatch(found.first_mismatch, where)
        equal = bool(before.bit_equal) and found.bit_equal
        return OutputReport(before.name, equal, largest, mismatch)

    def report(self) -> Comparison:
        """Return the comparison of all runs."""
        return Comparison(
            "different" if self._different else "equal",
            self.other.runtime,
            tuple(self._seen.values()),
        )
