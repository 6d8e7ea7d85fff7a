"""The values of a model that are rounded, and the type of the rounding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core.domains import DEFAULT_DOMAINS, canonical_domain
from onnx_kvtool.core.walk import nodes, read_values, subgraphs
from onnx_kvtool.ops.traits import Trait, dtype_name, given_type, traits
from onnx_kvtool.ops.view import given_input
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import Array, RuntimeName, Session, open_session
from onnx_kvtool.verification.inputs.flow import is_default

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

_Argument = tuple[bool, bool, ir.DataType | None, ir.DataType | None]
"""Of an argument or a result of a call: whether it is exact, whether it holds no floats, its type,
and the coarsest type on its path."""

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
    cause: str

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
    walk = _Walk(model, _Budget(_MOST))
    walk.enter(model.graph.inputs, is_exact=True)
    try:
        walk.graph(model.graph)
    except _Exhausted:
        types = (value.dtype for _, _, node in nodes(model) for value in node.outputs)
        found = (Coarse(dtype, "a value of the model") for dtype in types if dtype in _RANKS)
        return Arithmetic(frozenset(), {}, coarser(*found))
    outputs = [value for value in model.graph.outputs if value.name]
    return Arithmetic(
        frozenset(value.name or "" for value in outputs if id(value) in walk.exact),
        {
            value.name: coarse
            for node in model.graph
            for value in node.outputs
            if value.name and (coarse := walk.coarse.get(id(value))) is not None
        },
    )


class _Exhausted(Exception):
    """The budget is used up."""


class _Budget:
    """Counts visits of nodes, over all nested calls; also bounds functions that call themselves.

    Attributes:
        depth: Nested calls and bodies that the walk is in.
        judged: What is known of the outputs of a function, by the function and what is known of
            its arguments: functions that call each other twice would take forever otherwise.
    """

    def __init__(self, left: int) -> None:
        self._left = left
        self.depth = 0
        self.judged: dict[
            tuple[ir.OperatorIdentifier, tuple[_Argument, ...]], tuple[_Argument, ...]
        ] = {}

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0 or self.depth > _DEEPEST:
            raise _Exhausted


class _Walk:
    """One pass in topological order.

    Attributes:
        exact: Identities of the values that hold no rounded result.
        discrete: Identities of the values that hold integers, booleans or strings.
        types: Types of values, by identity, where they are declared or follow from a node.
        coarse: The coarsest type on the path to each value that may be rounded, by identity.
    """

    def __init__(self, model: ir.Model, budget: _Budget) -> None:
        self._model = model
        self._budget = budget
        self.exact: set[int] = set()
        self.discrete: set[int] = set()
        self.types: dict[int, ir.DataType] = {}
        self.coarse: dict[int, Coarse] = {}

    def enter(
        self, values: Iterable[ir.Value], *, is_exact: bool, coarse: Coarse | None = None
    ) -> None:
        """Take note of values that no node of the graph computes."""
        for value in values:
            if value.dtype is not None:
                self.types[id(value)] = value.dtype
            if is_exact:
                self.exact.add(id(value))
            if coarse is not None:
                self.coarse[id(value)] = coarse

    def graph(self, graph: ir.Graph | ir.Function) -> None:
        if isinstance(graph, ir.Graph):
            self.enter(graph.initializers.values(), is_exact=True)
        for node in graph:
            self._budget.spend()
            if (function := self._model.functions.get(node.op_identifier())) is not None:
                self._call(node, function)
            else:
                self._judge_node(node)
                self._label(node)

    def _label(self, node: ir.Node) -> None:
        """Find the types of the outputs of a node, and the coarsest on the path to each."""
        inputs = [id(value) for value in node.inputs if value is not None]
        bodies = [body for _, body in subgraphs(node)]
        results = [id(value) for body in bodies for value in body.outputs]
        before = coarser(*(self.coarse.get(value) for value in (*inputs, *results)))
        given = given_type(node)
        if isinstance(given, int) and not isinstance(given, ir.DataType):
            value = given_input(node, given)
            given = None if value is None else self.types.get(id(value))
        known = [dtype for value in inputs if (dtype := self.types.get(value)) in _RANKS]
        most = max(known, key=lambda dtype: _RANKS[dtype], default=None)
        for value in node.outputs:
            dtype = value.dtype or given or (None if id(value) in self.discrete else most)
            if dtype is not None:
                self.types[id(value)] = dtype
            if id(value) in self.exact:
                continue
            own = None
            if dtype in _RANKS:
                own = Coarse(dtype, f"`{value.name}`")
                if (
                    dtype == ir.DataType.DOUBLE
                    and node.op_type in _IN_FLOAT32
                    and not canonical_domain(node.domain)
                ):
                    own = Coarse(ir.DataType.FLOAT, f"`{node.op_type}`, which computes in it")
            if (found := coarser(before, own)) is not None:
                self.coarse[id(value)] = found

    def _judge_node(self, node: ir.Node) -> None:
        inputs = read_values(node)
        is_exact = all(id(value) in self.exact for value in inputs)
        bodies = [body for _, body in subgraphs(node)]
        if bodies:
            self._bodies(node, bodies, is_exact)
            return
        if not is_default(node) or Trait.RANDOM in traits(node):
            return
        is_discrete = self._is_discrete(node, inputs)
        if is_discrete:
            self.discrete.update(id(value) for value in node.outputs)
        without_floats = is_discrete and all(self._has_no_floats(value) for value in inputs)
        is_faithful = without_floats or Trait.DECIDES in traits(node) or _only_moves(node)
        if Trait.READS_SHAPE in traits(node) or (is_exact and is_faithful):
            self.exact.update(id(value) for value in node.outputs)

    def _has_no_floats(self, value: ir.Value) -> bool:
        return id(value) in self.discrete or _is_discrete_type(value.dtype)

    def _is_discrete(self, node: ir.Node, inputs: Iterable[ir.Value]) -> bool:
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
        return bool(inputs) and all(self._has_no_floats(value) for value in inputs)

    def _call(self, node: ir.Node, function: ir.Function) -> None:
        """Judge the outputs of a call by the body, with what is known of the arguments."""
        known = tuple(map(self._argument, node.inputs))
        key = (node.op_identifier(), known)
        if (results := self._budget.judged.get(key)) is None:
            results = self._budget.judged[key] = self._judge(function, known)
        before = [self.coarse.get(id(value)) for value in node.inputs if value is not None]
        for (is_exact, is_discrete, dtype, coarse), value in zip(
            results, node.outputs, strict=False
        ):
            cause = None if coarse is None else Coarse(coarse, f"`{value.name}`")
            known_before = (found for found in before if found and found.dtype == coarse)
            self.enter([value], is_exact=is_exact, coarse=next(known_before, cause))
            if is_discrete:
                self.discrete.add(id(value))
            if dtype is not None:
                self.types.setdefault(id(value), dtype)

    def _argument(self, value: ir.Value | None) -> _Argument:
        if value is None:
            return True, False, None, None
        coarse = self.coarse.get(id(value))
        return (
            id(value) in self.exact,
            self._has_no_floats(value),
            self.types.get(id(value)),
            None if coarse is None else coarse.dtype,
        )

    def _judge(self, function: ir.Function, known: tuple[_Argument, ...]) -> tuple[_Argument, ...]:
        """Return what is known of the outputs of a function, by what is known of its arguments."""
        body = _Walk(self._model, self._budget)
        for argument, parameter in zip(known, function.inputs, strict=False):
            is_exact, is_discrete, dtype, coarse = argument
            label = None if coarse is None else Coarse(coarse, f"`{parameter.name}`")
            body.enter([parameter], is_exact=is_exact, coarse=label)
            if is_discrete:
                body.discrete.add(id(parameter))
            if dtype is not None:
                body.types[id(parameter)] = dtype
        self._budget.depth += 1
        body.graph(function)
        self._budget.depth -= 1
        return tuple(map(body._argument, function.outputs))

    def _bodies(self, node: ir.Node, bodies: Sequence[ir.Graph], is_exact: bool) -> None:
        """Judge the outputs of If, Loop or Scan: exact only if everything in the bodies is."""
        self._budget.depth += 1
        before = coarser(*(self.coarse.get(id(value)) for value in node.inputs if value))
        for body in bodies:
            self.enter(body.inputs, is_exact=True, coarse=before)
            self.graph(body)
        self._budget.depth -= 1
        if is_exact and all(id(v) in self.exact for body in bodies for v in body.outputs):
            self.exact.update(id(value) for value in node.outputs)


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


class Emptiness:
    """Says of one model whether a convolution, pool or Slice of its main graph gives no element.

    The model is run with what these operators give for its outputs: how often a window fits that
    is larger than what it moves over is for the runtime to say, and inference does not know all.

    Args:
        model: The serialised model.
        directory: Where locations of external data start.
        runtime: What runs it.
    """

    def __init__(self, model: bytes, directory: str, runtime: RuntimeName) -> None:
        self._model = model
        self._directory = directory
        self._runtime = runtime
        self._session: Session | None = None
        self._is_open = False

    def __call__(self, inputs: Mapping[str, Array]) -> bool:
        """Return whether an output of floats is empty although no input is.

        A model that no runtime loads with such outputs is taken at its word.
        """
        if any(value.size == 0 for value in inputs.values()):
            return False
        if not self._is_open:
            self._is_open = True
            self._open()
        if self._session is None:
            return False
        with suppress(RunFailed):
            values = self._session.run(inputs).values()
            return any(v.size == 0 and np.dtype(v.dtype).kind not in "biuO" for v in values)
        return False

    def _open(self) -> None:
        message = onnx.ModelProto.FromString(self._model)
        names = [
            name
            for node in message.graph.node
            if Trait.WINDOWED in traits(node)
            or (node.op_type == "Slice" and node.domain in DEFAULT_DOMAINS)
            for name in node.output[:1]
        ]
        if names:
            del message.graph.output[:]
            message.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
            with suppress(RuntimeUnavailable):
                data = message.SerializeToString()
                self._session = open_session(self._runtime, data, self._directory)
