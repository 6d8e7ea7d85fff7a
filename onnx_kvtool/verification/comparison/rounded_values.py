"""The values of a model that are rounded, and the type of the rounding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.walk import nodes, read_values, subgraphs
from onnx_kvtool.ops.traits import Trait, dtype_name, given_type, traits
from onnx_kvtool.ops.view import given_input
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import Arrays, RuntimeName, Session, open_session
from onnx_kvtool.verification.inputs.roles import is_default

_RANKS = {
    ir.DataType.DOUBLE: 0,
    ir.DataType.FLOAT: 1,
    ir.DataType.FLOAT16: 2,
    ir.DataType.BFLOAT16: 3,
}
"""Types that kernels compute in, the finest first. Coarser types are storage formats: kernels
compute in wider ones."""

_IN_FLOAT32 = frozenset(
    {
        "Attention", "BlackmanWindow", "GridSample", "GroupNormalization", "HammingWindow",
        "LayerNormalization", "RMSNormalization", "Shrink",
    }
)  # fmt: skip
"""Operators that compute float64 in float32: the specification says it (`stash_type`), or
onnxruntime 1.32 does it."""

_MOST = 1_000_000
"""Nodes that are visited, each as often as its function is called with other arguments; a model
with more is left unjudged."""

_DEEPEST = 100
"""Nested calls and bodies; a function that calls itself has no end."""


@dataclass(frozen=True, slots=True)
class Coarse:
    """The coarsest type that a value is computed in.

    Attributes:
        dtype: float64, float32, float16 or bfloat16.
        cause: The first value on the path that is rounded to this type, or the operator that
            computes in it, in words.
    """

    dtype: ir.DataType
    cause: str = field(compare=False)

    def __str__(self) -> str:
        return f"{dtype_name(self.dtype)} from {self.cause}"

    @property
    def is_narrow(self) -> bool:
        """Whether it is a 16-bit type."""
        return _RANKS[self.dtype] > _RANKS[ir.DataType.FLOAT]


def coarser(*found: Coarse | None) -> Coarse | None:
    """Return the coarsest of some types; the first one of equals; None of none."""
    known = [coarse for coarse in found if coarse is not None]
    return max(known, key=lambda coarse: _RANKS[coarse.dtype], default=None)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How the values of the main graph are computed.

    Attributes:
        moved: Outputs that any right evaluation gives with the same bits: they are computed from
            inputs and constants by moving elements, by integer and boolean arithmetic and by
            comparisons only.
        coarse: The coarsest type on the path to each value that may be rounded, by name. Weights
            and inputs are not rounded, whatever their type.
        anywhere: The coarsest type in a model that is too large to be judged; None for others.
    """

    moved: frozenset[str]
    coarse: Mapping[str, Coarse]
    anywhere: Coarse | None = None

    def of(self, name: str) -> Coarse | None:
        """Return the coarsest type on the path to a value; None if it is not rounded."""
        return self.coarse.get(name, self.anywhere)


def arithmetic(model: ir.Model) -> Arithmetic:
    """Return the values of the main graph that are rounded, and the type of the rounding.

    One pass over all nodes. What is unknown (an operator of another domain, a value without a
    type) counts as rounded, in the coarsest type of its inputs.
    """
    walk = _Walk(model)
    walk.enter(model.graph.inputs)
    try:
        walk.graph(model.graph)
    except _Exhausted:
        types = (value.dtype for _, _, node in nodes(model) for value in node.outputs)
        found = (Coarse(dtype, "a value of the model") for dtype in types if dtype in _RANKS)
        return Arithmetic(frozenset(), {}, coarser(*found))
    return Arithmetic(
        frozenset(v.name for v in model.graph.outputs if v.name and walk.of(v).is_exact),
        {
            value.name: coarse
            for node in model.graph
            for value in node.outputs
            if value.name and (coarse := walk.of(value).coarse) is not None
        },
    )


class _Exhausted(Exception):
    """The budget is used up."""


@dataclass(frozen=True, slots=True)
class _Fact:
    """What is known of a value.

    Attributes:
        is_exact: Whether it holds no rounded result.
        is_discrete: Whether it holds integers, booleans or strings.
        dtype: Its type, where it is declared or follows from a node.
        coarse: The coarsest type on the path to it; None if it is not rounded.
    """

    is_exact: bool = False
    is_discrete: bool = False
    dtype: ir.DataType | None = None
    coarse: Coarse | None = None


class _Walk:
    """One pass in topological order, through nested calls as well."""

    def __init__(self, model: ir.Model) -> None:
        self._functions = model.functions
        self._left = _MOST
        self._depth = 0
        self._facts: dict[ir.Value, _Fact] = {}
        # Functions that call each other twice would take forever otherwise.
        self._judged: dict[tuple[ir.OperatorIdentifier, tuple[_Fact, ...]], list[_Fact]] = {}

    def of(self, value: ir.Value | None) -> _Fact:
        """Return what is known of a value; one that is left out is exact."""
        return _Fact(is_exact=True) if value is None else self._facts.get(value, _Fact())

    def enter(self, values: Iterable[ir.Value], coarse: Coarse | None = None) -> None:
        """Take note of values that no node of the graph computes."""
        self._facts.update((v, _Fact(True, False, v.dtype, coarse)) for v in values)

    def graph(self, graph: ir.Graph | ir.Function) -> None:
        """Take note of what a graph or a function computes.

        Raises:
            _Exhausted: If there are too many nodes, or functions call themselves.
        """
        if isinstance(graph, ir.Graph):
            self.enter(graph.initializers.values())
        for node in graph:
            self._left -= 1
            if self._left < 0 or self._depth > _DEEPEST:
                raise _Exhausted
            if (function := self._functions.get(node.op_identifier())) is not None:
                self._call(node, function)
            else:
                self._compute(node)

    def _compute(self, node: ir.Node) -> None:
        """Find what is known of the outputs of a node, and walk through its bodies."""
        bodies = [body for _, body in subgraphs(node)]
        before = coarser(*(self.of(value).coarse for value in node.inputs))
        self._depth += 1
        for body in bodies:
            self.enter(body.inputs, before)
            self.graph(body)
        self._depth -= 1
        results = [self.of(value) for body in bodies for value in body.outputs]
        before = coarser(before, *(result.coarse for result in results))
        is_exact = all(self.of(value).is_exact for value in read_values(node))
        is_discrete = False
        if bodies:  # exact only if everything in them is
            is_exact = is_exact and all(result.is_exact for result in results)
        else:
            is_exact, is_discrete = self._judge(node, is_exact)
        given = given_type(node)
        if isinstance(given, int) and not isinstance(given, ir.DataType):
            given = self.of(given_input(node, given)).dtype
        known = [dtype for v in node.inputs if (dtype := self.of(v).dtype) in _RANKS]
        most = max(known, key=lambda dtype: _RANKS[dtype], default=None)
        for value in node.outputs:
            dtype = value.dtype or given or (None if is_discrete else most)
            own = None if dtype not in _RANKS else Coarse(dtype, f"`{value.name}`")
            if dtype == ir.DataType.DOUBLE and node.op_type in _IN_FLOAT32 and is_default(node):
                own = Coarse(ir.DataType.FLOAT, f"`{node.op_type}`, which computes in it")
            coarse = None if is_exact else coarser(before, own)
            self._facts[value] = _Fact(is_exact, is_discrete, dtype, coarse)

    def _judge(self, node: ir.Node, is_exact: bool) -> tuple[bool, bool]:
        """Return whether the outputs of a node are exact, and whether they hold no floats."""
        kinds, inputs = traits(node), read_values(node)
        if not is_default(node) or Trait.RANDOM in kinds:
            return False, False
        is_discrete = self._is_discrete(node, inputs)
        without_floats = is_discrete and all(map(self._has_no_floats, inputs))
        is_faithful = without_floats or Trait.DECIDES in kinds or _only_moves(node)
        return Trait.READS_SHAPE in kinds or (is_exact and is_faithful), is_discrete

    def _has_no_floats(self, value: ir.Value) -> bool:
        return self.of(value).is_discrete or _is_discrete_type(value.dtype)

    def _is_discrete(self, node: ir.Node, inputs: Sequence[ir.Value]) -> bool:
        """Return whether the outputs certainly hold no floats."""
        kinds = traits(node)
        if Trait.GIVES_SIZES in kinds:
            return True
        dtypes = [value.dtype for value in node.outputs]
        if None not in dtypes:
            return all(_is_discrete_type(dtype) for dtype in dtypes)
        if kinds.element_type is not None:
            given = given_type(node)
            if given is None or isinstance(given, ir.DataType):
                return _is_discrete_type(given)
            value = given_input(node, given)
            return value is not None and self._has_no_floats(value)
        if Trait.CONVERTS in kinds:
            return False
        if Trait.DECIDES in kinds:
            return True
        return bool(inputs) and all(map(self._has_no_floats, inputs))

    def _call(self, node: ir.Node, function: ir.Function) -> None:
        """Judge the outputs of a call by the body, with what is known of the arguments."""
        known = tuple(map(self._handed, node.inputs))
        key = (node.op_identifier(), known)
        if key not in self._judged:
            arguments = [*known, *[_Fact()] * len(function.inputs)]
            for parameter, given in zip(function.inputs, arguments, strict=False):
                own = given.dtype or parameter.dtype
                self._facts[parameter] = replace(given, dtype=own)
            self._depth += 1
            self.graph(function)
            self._depth -= 1
            self._judged[key] = [*map(self._handed, function.outputs)]
        before = [fact.coarse for fact in known if fact.coarse is not None]
        for fact, value in zip(self._judged[key], node.outputs, strict=False):
            coarse = fact.coarse
            if coarse is not None:
                cause = Coarse(coarse.dtype, f"`{value.name}`")
                coarse = next((found for found in before if found == coarse), cause)
            dtype = value.dtype or fact.dtype
            self._facts[value] = replace(fact, dtype=dtype, coarse=coarse)

    def _handed(self, value: ir.Value | None) -> _Fact:
        """Return what is known of an argument or a result of a call."""
        fact = self.of(value)
        return fact if value is None else replace(fact, is_discrete=self._has_no_floats(value))


def _only_moves(node: ir.Node) -> bool:
    """Return whether a node puts elements elsewhere; a cast rounds, but in one way only."""
    if not traits(node).any(Trait.MOVES, Trait.FILLS, Trait.CASTS):
        return False
    # The default of every version is `none`; a reference is left to the caller of the function.
    reduction = node.attributes.get("reduction")
    return reduction is None or (not reduction.is_ref() and reduction.value == "none")


def _is_discrete_type(dtype: ir.DataType | None) -> bool:
    return dtype is not None and (
        dtype.is_integer() or dtype in (ir.DataType.BOOL, ir.DataType.STRING)
    )


# Whether windows move over nothing within a model.


@dataclass
class Emptiness:
    """Says of one model whether a convolution, pool or Slice of its main graph gives no element.

    The model runs with the results of these operators as its outputs. Inference does not know every
    size, and the runtime decides how often a window fits that is larger than its input.

    Attributes:
        model: The serialised model.
        directory: Where locations of external data start.
        runtime: What runs it.
    """

    model: bytes
    directory: str
    runtime: RuntimeName

    def __call__(self, inputs: Arrays) -> bool:
        """Return whether an output of floats is empty although no input is.

        A model that no runtime loads with such outputs is taken at its word.
        """
        if self._session is None or any(value.size == 0 for value in inputs.values()):
            return False
        with suppress(RunFailed):
            values = self._session.run(inputs).values()
            return any(v.size == 0 and np.dtype(v.dtype).kind not in "biuO" for v in values)
        return False

    @cached_property
    def _session(self) -> Session | None:
        message = onnx.ModelProto.FromString(self.model)
        names = [
            name
            for node in message.graph.node
            if Trait.WINDOWED in traits(node)
            or (node.op_type == "Slice" and node.domain in DEFAULT_DOMAINS)
            for name in node.output[:1]
        ]
        if not names:
            return None
        del message.graph.output[:]
        message.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        with suppress(RuntimeUnavailable):
            return open_session(self.runtime, message.SerializeToString(), self.directory)
        return None
