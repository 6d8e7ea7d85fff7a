"""The settings and the report of a comparison of two models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import onnx_ir as ir

from onnx_kvtool.core.choices import RuntimeChoice
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.machine import Budget, Progress, silent
from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.core.reporting import Covered, Shown, Shrunken
from onnx_kvtool.verification.comparison.differences import Mismatch

if TYPE_CHECKING:
    from onnx_kvtool.analysis.caches.cache import RotatedCache

# The settings of a comparison.


STEPS = 2
"""Decode steps after each first run: one that reads what the first run wrote, and one that reads
what a step wrote."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How two models are compared.

    Attributes:
        cases: Number of sets of inputs, at least 1; None for the usual ones.
        steps: Decode steps after the first run of each case; None for the usual number.
        seed: Seed of the inputs that are drawn.
        dims: Sizes for symbolic dimensions, by name.
        positions: Inputs that are positions which count up by one, whatever the graph says of them.
        rotated: Caches whose rows A keeps in order and B as a circular cache.
        unpadded: Inputs that are 1 throughout, because no row is padding.
        is_in_range: Whether no start lies below 0, where a scatter counts from the end.
        runtime: What runs both; `auto` for onnxruntime where it runs both, else the reference.
        rtol: Relative tolerance for what is computed; None for that of the types.
        atol: Absolute tolerance for what is computed; None for that of the types.
        widened: Element type that B has where A has bfloat16; None where it has the same.
        is_a_right: Whether A is right by definition, so that nothing is said of models if A
            does not run; else one that runs where the other does not is different.
        progress: Told of what is begun.
        budget: Memory and time that the comparison may take.
        thorough: Whether mistakes are planted at every place and in all cases, not in a sample.
        strict: Whether the caller fails where something was not covered.
        matching: Returns the name in B of each value of A whose node is matched to one of B; asked
            for models that have other names for most values. None where nobody can say.
    """

    cases: int | None = None
    steps: int | None = None
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    positions: frozenset[str] = frozenset()
    rotated: tuple[RotatedCache, ...] = ()
    unpadded: frozenset[str] = frozenset()
    is_in_range: bool = False
    runtime: RuntimeChoice = "auto"
    rtol: float | None = None
    atol: float | None = None
    widened: ir.DataType | None = None
    is_a_right: bool = False
    progress: Progress = silent
    budget: Budget = field(default_factory=Budget)
    thorough: bool = False
    strict: bool = False
    matching: Callable[[], Mapping[str, str]] | None = None


# The report of a comparison.


@dataclass(frozen=True, slots=True)
class FirstMismatch(Record):
    """The first element of an output that exceeds its tolerance.

    Attributes:
        mismatch: Its index, its value in A (`expected`) and in B (`actual`).
        run: The run that showed it, as text.
    """

    mismatch: Mismatch
    run: str

    JSON = (Key("mismatch", parts=("index", "expected", "actual")), "run")


@dataclass(frozen=True, slots=True)
class OutputReport(Record):
    """How one output compared over all runs.

    Attributes:
        name: Name.
        bit_equal: Whether shape, dtype and every bit agreed in every run; None if never compared.
        max_abs_diff: Largest absolute difference over elements that are finite in both; 0.0 for
            strings; None if shapes or dtypes differ, or if never compared.
        first_mismatch: First element that exceeds the tolerance; None if there is none, or if
            shapes or dtypes differ.
    """

    name: str
    bit_equal: bool | None = None
    max_abs_diff: float | None = None
    first_mismatch: FirstMismatch | None = None


@dataclass(frozen=True, slots=True)
class EarliestDifference(Record):
    """The first value, in the order of A, that both models name and that differs.

    Attributes:
        a: Where A computes it.
        b: Where B computes it.
        mismatch: First element that differs; None if shapes or dtypes do.
        reason: What differs, as text.
    """

    a: Location
    b: Location
    mismatch: Mismatch | None
    reason: str

    JSON = ("a", "b", Key("mismatch", "first_mismatch"), "reason")


@dataclass(frozen=True, slots=True)
class TwinReport(Record):
    """How the float32 twins of two models of a 16-bit type compared.

    Attributes:
        dtype: The type of the models, `float16` or `bfloat16`.
        max_abs_diff: Largest difference between the twins, over the outputs that need not be
            bit-identical.
        rounding: Largest difference between A and its own twin on the same inputs: the rounding of
            the type itself.
        overflows: Elements that are finite in the twin of A but not in A, over all runs.
    """

    dtype: str
    max_abs_diff: float
    rounding: float
    overflows: int


@dataclass(frozen=True, slots=True)
class VerifyReport(Shown):
    """How model B compared with model A.

    Attributes:
        status: `equal`, `different`, or `unrunnable` (`detail` has the reason).
        a: Path of A; `-` for standard input, "" for a model in memory.
        b: Path of B, likewise.
        runtime: The runtime of both, such as `onnxruntime 1.31.1`; None if nothing ran.
        cases: Number of seeded input sets.
        steps: Number of runs, decode steps included, over all cases.
        seed: Seed of the inputs.
        shrunken: What is smaller in the copies that ran instead of the models; empty if the models
            ran, or copies that differ only in the values of weights.
        shrunk: Whether copies ran instead of the models.
        outputs: Every output of A, in order.
        max_abs_diff: Largest difference over the outputs that need not be bit-identical; None if
            nothing ran.
        earliest: The earliest node whose value differs; None without a difference, or if none can
            be named (see `notes`).
        twins: Comparison of the float32 twins of models of a 16-bit type; None for others, or if
            twins did not run.
        detail: What differs, or why the models cannot run; None for equal models.
        notes: Notes.
        needed: Bytes of memory for the smallest run if that exceeds the limit, otherwise 0.
        covered: What the comparison covered; None if nothing ran.
        a_fails: Whether A loaded unchanged, and failed on all inputs.
        insufficient: What `--strict` requires and the runs do not show; None without `--strict`, or
            if nothing is missing.

    Examples:
        >>> report = kv.verify("decoder.onnx", "decoder.onnx", cases=1, steps=0)
        >>> report.status, report.cases, [output.name for output in report.outputs][:1]
        ('equal', 1, ['logits'])
    """

    status: Literal["equal", "different", "unrunnable"]
    a: str = ""
    b: str = ""
    runtime: str | None = None
    cases: int = 0
    steps: int = 0
    seed: int = 0
    shrunken: tuple[Shrunken, ...] = ()
    shrunk: bool = False
    outputs: tuple[OutputReport, ...] = ()
    max_abs_diff: float | None = None
    earliest: EarliestDifference | None = None
    twins: TwinReport | None = None
    detail: str | None = None
    notes: tuple[str, ...] = ()
    needed: int = 0
    covered: Covered | None = None
    a_fails: bool = False
    insufficient: str | None = None
