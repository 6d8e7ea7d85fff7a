"""What came of evaluating a model or an operator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from onnx_kvtool.core.diagnostic import AT_NODE, Diagnostic, Location
from onnx_kvtool.core.record import Key, Record, filled, read
from onnx_kvtool.core.reporting import Shown
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.runtime.engine.borrowed import element_type
from onnx_kvtool.runtime.kernels.kernel import Array, Value
from onnx_kvtool.runtime.sessions import Array as AnyArray
from onnx_kvtool.verification.comparison.differences import Mask, bits_differ
from onnx_kvtool.verification.report import OutputReport

# What is said of a value: its type, its shape, its extremes, and its elements if they are few.


SMALL = 64
"""Most elements of an output whose values are reported."""

Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class TypeFacts(Record):
    """A value without its elements.

    Attributes:
        name: Name.
        dtype: Element type (`float32`); None for a sequence or an absent value.
        shape: Dimensions; None for a sequence or an absent value.
        length: Number of elements of a sequence; None for other values.
    """

    name: str
    dtype: str | None
    shape: tuple[int, ...] | None
    length: int | None = None

    JSON: ClassVar[tuple[str | Key, ...]] = (
        "name", "dtype", "shape", Key("length", is_optional=True),
    )  # fmt: skip

    def __str__(self) -> str:
        if self.length is not None:
            return f"sequence of {self.length}"
        return "nothing" if self.dtype is None else f"{self.dtype} {self.shape}"


@dataclass(frozen=True, slots=True)
class Summary(Record):
    """A value in few words.

    Infinities and NaN are the text `inf`, `-inf` and `nan`, complex numbers such as `1+2j`.

    Attributes:
        type: What it is.
        min: Smallest element that is not NaN; None if there is none, and for strings and complex
            numbers.
        max: Largest element that is not NaN, likewise.
        nan: Number of elements that are NaN.
        values: The elements as nested lists if there are at most 64; None if there are more.
        items: Summaries of the elements of a sequence; None for other values.
    """

    type: TypeFacts
    min: Scalar | None = None
    max: Scalar | None = None
    nan: int = 0
    values: Any = None
    items: tuple[Summary, ...] | None = None

    JSON = (
        Key("type", parts=("name", "dtype", "shape", "length")),
        ...,
        Key("items", is_optional=True),
    )


def type_facts(name: str, value: Value) -> TypeFacts:
    """Return type and shape of a value."""
    if isinstance(value, list):
        return TypeFacts(name, None, None, len(value))
    if value is None:
        return TypeFacts(name, None, None)
    array: Array = np.asarray(value)
    found = element_type(array.dtype)
    dtype = str(array.dtype) if found is None else dtype_name(found)
    return TypeFacts(name, dtype, tuple(array.shape))


def summarize(name: str, value: Value) -> Summary:
    """Return the description of a value."""
    facts = type_facts(name, value)
    if isinstance(value, list):
        items = tuple(summarize(f"{name}[{i}]", item) for i, item in enumerate(value))
        return Summary(facts, items=items)
    if value is None:
        return Summary(facts)
    array: Array = np.asarray(value)
    values = _nested(array) if array.size <= SMALL else None
    if array.dtype == object or array.dtype.kind == "c":
        return Summary(facts, values=values)
    wide = _comparable(array)
    is_nan = np.isnan(wide) if wide.dtype.kind == "f" else np.zeros(wide.shape, np.bool_)
    kept = wide[~is_nan]
    low, high = (plain(kept.min()), plain(kept.max())) if kept.size else (None, None)
    return Summary(facts, low, high, int(np.count_nonzero(is_nan)), values)


def plain(element: Any) -> Scalar:
    """Return an element as JSON can hold it; a number that it cannot hold as text."""
    if isinstance(element, str):
        return element
    if isinstance(element, (bool, np.bool_)):
        return bool(element)
    array: np.ndarray[Any, Any] = np.asarray(element)
    if array.dtype.kind == "c":
        return str(complex(array)).strip("()")
    number = _comparable(array)
    if number.dtype.kind in "iu":
        return int(number)
    # With the digits that tell apart the values of its own type: 0.1, not 0.10000000149011612.
    short = float(str(array[()])) if array.dtype.isbuiltin != 2 else float(number)
    return short if math.isfinite(short) else str(short)


def _comparable(array: AnyArray) -> np.ndarray[Any, Any]:
    """Return an array in a type of numpy that has an order and holds every element."""
    if array.dtype.isbuiltin != 2:
        return array
    is_whole = "int" in array.dtype.name
    return array.astype(np.int64 if is_whole else np.float64)


def _nested(array: Array) -> Any:
    if array.ndim == 0:
        return plain(array[()])
    return [_nested(item) if array.ndim > 1 else plain(item) for item in array]


@dataclass(frozen=True, slots=True)
class TraceEntry(Record):
    """One node that ran.

    Attributes:
        location: The node.
        outputs: Outputs of the node.
        seconds: Wall time, bodies included.
        runtime: `kvtool`, or `onnx.reference` if kvtool has no kernel for the operator.
        step: The run: 0 for the first, then the number of the decode step.
    """

    location: Location
    outputs: tuple[TypeFacts, ...]
    seconds: float
    runtime: str
    step: int

    JSON = (AT_NODE, ...)


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """How the outputs compare with those of another runtime on the same inputs.

    Attributes:
        status: `equal` if every output agrees within its tolerance, otherwise `different`.
        runtime: The other runtime; its values are the expected ones.
        outputs: All outputs, over all runs.
    """

    status: Literal["equal", "different"]
    runtime: str
    outputs: tuple[OutputReport, ...]


@dataclass(frozen=True, slots=True)
class Update(Record):
    """A value before and after an operator wrote into it.

    Attributes:
        before: Name of the input.
        after: Name of the output.
        elements: Number of elements.
        written: Number of elements that changed in any bit; `changed` in JSON.
        indices: Indices of the changed elements along each axis.
        old: The input; None in a report that was read from JSON.
        new: The output, of the same shape and dtype; None likewise.
    """

    before: str
    after: str
    elements: int
    written: int
    indices: tuple[tuple[int, ...], ...]
    old: Array | None = field(default=None, repr=False, compare=False)
    new: Array | None = field(default=None, repr=False, compare=False)

    JSON = ("before", "after", "elements", Key("written", "changed"), "indices")

    @staticmethod
    def of(before: str, after: str, old: Array, new: Array) -> Update:
        """Return what became of `old`, called `before`."""
        differs = bits_differ(old, new)
        where = tuple(tuple(np.unique(axis).tolist()) for axis in np.nonzero(differs))
        return Update(
            before, after, int(differs.size), int(np.count_nonzero(differs)), where, old, new
        )

    @property
    def changed(self) -> Mask | None:
        """Which elements differ in a bit; None where the elements are unknown."""
        if self.old is None or self.new is None:
            return None
        return bits_differ(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Fed(TypeFacts):
    """What an input of the last run was fed.

    Attributes:
        name: Name.
        dtype: Element type (`float32`); null for a sequence or an absent value.
        shape: Dimensions; null for a sequence or an absent value.
        length: Number of elements of a sequence; null for other values.
        given: Whether the caller gave the first value; otherwise it is random.
    """

    given: bool = False

    JSON = (*TypeFacts.JSON, "given")


@dataclass(slots=True)
class EvalReport(Shown):
    """What came of `kvtool eval`.

    Attributes:
        model: Path of the model; `-` for standard input, "" for one in memory; None for a single
            operator.
        operator: The operator, with `opset` as its version of the default domain; None for a model.
        opset: The opset of a single operator; None for a model.
        runtime: The runtime and its version, such as `reference 0.1.0`.
        seed: Seed of the random inputs; None if there are none.
        steps: Decode steps after the first run.
        inputs: Inputs of the last run.
        trace: The nodes in execution order; empty without `--trace`.
        comparison: The comparison; None without `--compare`.
        updates: Caches before and after, for the TensorScatters that the caller named.
        warnings: Results that the specification leaves undefined, with the node; nodes in an order
            that cannot run.
        borrowed: Nodes that onnx.reference ran.
        saved: Path of the written `.npz` file; None if none.
        values: What was fetched from the last run, by name, in order; empty in a report that was
            read from JSON.
        said: What JSON said of them; None where `values` has them.

    Examples:
        >>> kv.EvalReport.from_json({"runtime": "reference 0.1.0", "outputs": []}).outputs
        ()
    """

    model: str | None = None
    operator: str | None = None
    opset: int | None = None
    runtime: str = ""
    seed: int | None = None
    steps: int = 0
    inputs: tuple[Fed, ...] = ()
    trace: tuple[TraceEntry, ...] = ()
    comparison: Comparison | None = None
    updates: tuple[Update, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    borrowed: tuple[Location, ...] = ()
    saved: str | None = None
    values: Mapping[str, Value] = field(default_factory=dict, repr=False)
    said: tuple[Summary, ...] | None = field(default=None, repr=False)

    JSON = (
        "model",
        "operator",
        "opset",
        "runtime",
        "seed",
        "steps",
        "inputs",
        "outputs",
        "trace",
        "comparison",
        "updates",
        "warnings",
        "borrowed",
        "saved",
    )

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> EvalReport:
        """Return the report that an object gives, without the elements of large values."""
        said = read(tuple[Summary, ...], data.get("outputs", ()))
        report: EvalReport = filled(cls, data, said=said)
        return report

    @property
    def outputs(self) -> tuple[Summary, ...]:
        """Summaries of the outputs. kvtool computes them on access, because that is slow."""
        if self.said is not None:
            return self.said
        return tuple(summarize(name, value) for name, value in self.values.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EvalReport):
            return NotImplemented
        if self.values and other.values and not _same(self.values, other.values):
            return False
        return self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment] # as of every dataclass that can change


def _same(a: Any, b: Any) -> bool:
    """Return whether two values, or all of two collections of them, agree in every bit."""
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(_same, a, b))
    if a is None or b is None:
        return a is b
    one, other = np.asarray(a), np.asarray(b)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return not bits_differ(one, other).any()
