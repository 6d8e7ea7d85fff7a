"""How two models compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from onnx_kvtool.core.covered import Covered
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.core.shown import Shown
from onnx_kvtool.core.shrunken import Shrunken
from onnx_kvtool.runtime.comparison.compare import Mismatch

__all__ = [
    "EarliestDifference",
    "FirstMismatch",
    "OutputReport",
    "TwinReport",
    "VerifyReport",
]


@dataclass(frozen=True, slots=True)
class FirstMismatch(Record):
    """The first element of one output that differs by more than it may.

    Attributes:
        mismatch: Its index, its value in A (`expected`) and in B (`actual`).
        run: The run in which it was found, in words.
    """

    mismatch: Mismatch
    run: str

    JSON = (Key("mismatch", parts=("index", "expected", "actual")), "run")


@dataclass(frozen=True, slots=True)
class OutputReport(Record):
    """How one output compared over all runs.

    Attributes:
        name: Its name.
        bit_equal: Whether shape, dtype and every bit agreed in every run; None when it was never
            compared.
        max_abs_diff: Largest absolute difference over all elements that are finite in both; 0.0
            for strings; None when shapes or dtypes differ or it was never compared.
        first_mismatch: The first element that breaks what was asked for; None when there is none,
            and when shapes or dtypes differ.
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
        mismatch: Its first element that differs; None if shapes or dtypes do.
        reason: What differs, in words.
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
        max_abs_diff: Largest difference between the twins, over the outputs that need not agree in
            every bit.
        rounding: Largest difference between A and its own twin on the same inputs: what the type
            itself costs.
        overflows: Elements of A that are not finite although those of its twin are, over all runs.
    """

    dtype: str
    max_abs_diff: float
    rounding: float
    overflows: int


@dataclass(frozen=True, slots=True)
class VerifyReport(Shown):
    """How model B compared with model A.

    Attributes:
        status: `equal`, `different`, or `unrunnable` with the reason in `detail`.
        a: Path of A, `-` for standard input, "" for a model in memory.
        b: Path of B, likewise.
        runtime: What ran both, such as `onnxruntime 1.31.1`; None when nothing was run.
        cases: Number of seeded sets of inputs that were run.
        steps: Number of runs over all cases, decode steps included.
        seed: Seed of the inputs.
        shrunken: What copies have less of that were run in place of the models; empty where the
            models were run as they are, or copies that differ in the values of weights alone.
        shrunk: Whether copies were run in place of the models.
        outputs: Every output of A, in order.
        max_abs_diff: Largest difference over the outputs that need not agree in every bit; None
            when nothing was run.
        earliest: The earliest node whose value differs; None when there is no difference or none
            can be named, which `notes` then says.
        twins: How the float32 twins of models of a 16-bit type compared; None for others, and when
            they were not run.
        detail: What differs, or why the models cannot be run; None for equal models.
        notes: What else a reader should know.
        needed: Bytes of memory that the smallest run would take, where they are more than allowed;
            else 0.
        covered: What the comparison covered; None when nothing was run.
        a_fails: Whether A was loaded as it is, and failed on all inputs that were drawn.
        insufficient: What `--strict` asked for and equal models do not show; None where nothing is
            missing, and where nobody asked.

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
    notes: tuple[str, ...] = field(default=())
    needed: int = 0
    covered: Covered | None = None
    a_fails: bool = False
    insufficient: str | None = None
