"""Random graphs that are valid, grown node by node.

Operators, their inputs and their types come from the schemas, attributes from onnx's own cases.
Whether a node can stand where it was drawn is not looked up but tried: it is run by itself, and a
node that fails is drawn again. So no table here says what an operator demands.
"""

from __future__ import annotations

import functools
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.defs
from onnx import helper, numpy_helper

from onnx_kvtool import KvtoolError, backend
from onnx_kvtool.ops.schema import OpFacts, op_facts, operators
from onnx_kvtool.runtime.kernels.table import KERNELS
from tests.conformance.corpus import cases
from tests.fuzz.caches import grow_cache

__all__ = ["Drawn", "Growth", "draw"]

DTYPES = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(bfloat16)": np.dtype(ml_dtypes.bfloat16),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(bool)": np.dtype(np.bool_),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_OFTEN = ("tensor(float)", "tensor(float)", "tensor(float)", "tensor(int64)", "tensor(float16)")

_LEFT_OUT = frozenset(
    {
        # What they give is drawn, or is no tensor.
        *("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike", "ImageDecoder", "Constant"),
        # Memory that nobody has written.
        *("MaxUnpool",),
    }
)
_OPSETS = (11, 13, 15, 17, 18, 20, 21, 23, 24)
_MOST_ELEMENTS = 2000
_TRIES = 12


@dataclass
class Drawn:
    """A model, and what it is fed.

    Attributes:
        model: The model.
        feeds: Values of its inputs.
        ops: Its operators, for messages.
        empty: Those of its operators that make a value without elements.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    ops: list[str]
    empty: frozenset[str]


@functools.cache
def _attributes() -> dict[str, list[list[onnx.AttributeProto]]]:
    """Return the attributes that onnx's cases give each operator."""
    found: dict[str, list[list[onnx.AttributeProto]]] = defaultdict(list)
    for case in cases():
        for node in case.model.graph.node:
            given = [a for a in node.attribute if not (a.HasField("g") or a.ref_attr_name)]
            if len(given) == len(node.attribute):
                found[node.op_type].append(given)
    return found


@functools.cache
def _candidates(opset: int) -> tuple[OpFacts, ...]:
    found = []
    for name in sorted(operators()):
        facts = op_facts(name, opset)
        if facts is None or facts.deprecated or name in _LEFT_OUT:
            continue
        if name not in KERNELS:  # onnx.reference runs it, which computes what is no valid call
            continue
        has_body = any(a.type == onnx.AttributeProto.GRAPH for a in facts.attributes.values())
        if not has_body and all(set(formal.types) & DTYPES.keys() for formal in facts.outputs):
            found.append(facts)
    return tuple(found)


def draw(seed: int, only: frozenset[str] = frozenset()) -> Drawn:
    """Return the graph of a seed.

    Args:
        seed: Where its choices come from.
        only: The operators that it may have; all if empty. An opset is drawn that has some.
    """
    return Growth(random.Random(seed), seed, only).grown()


@dataclass
class Growth:
    """A graph that grows, with the values that it has so far."""

    rng: random.Random
    seed: int
    only: frozenset[str] = frozenset()
    opset: int = 0
    values: dict[str, np.ndarray] = field(default_factory=dict)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def grown(self) -> Drawn:
        rng = self.rng
        self.opset = rng.choice([opset for opset in _OPSETS if self._choices(opset)])
        for number in range(rng.randint(2, 4)):
            self._input(f"x{number}")
        if not self.only and rng.random() < 0.3:
            grow_cache(self)
        wanted = len(self.nodes) + rng.randint(1 if self.nodes else 2, 7)
        for _ in range((wanted - len(self.nodes)) * _TRIES):
            if len(self.nodes) < wanted:
                self._try_node()
        read = {name for node in self.nodes for name in node.input}
        made = [name for node in self.nodes for name in node.output]
        outputs = [name for name in made if name and name not in read] or list(self.values)[:1]
        return self._model(outputs)

    def _choices(self, opset: int) -> tuple[OpFacts, ...]:
        found = _candidates(opset)
        return tuple(facts for facts in found if not self.only or facts.op_type in self.only)

    def _shape(self) -> tuple[int, ...]:
        sizes = (2, 3, 5, 1, 2, 3, 4, 0) if self.rng.random() < 0.3 else (2, 3, 5, 4)
        return tuple(self.rng.choice(sizes) for _ in range(self.rng.choice((0, 1, 2, 2, 3, 3, 4))))

    def array(self, dtype: np.dtype[Any], shape: Sequence[int]) -> np.ndarray:
        numbers = np.random.default_rng(self.rng.randrange(1 << 30))
        if dtype.kind == "b":
            return numbers.random(shape) < 0.5
        if dtype.kind in "iu":
            return numbers.integers(0, 4, shape).astype(dtype)
        return (numbers.random(shape) * 2 - 0.75).astype(dtype)

    def _input(self, name: str) -> None:
        kind = self.rng.choice(_OFTEN if self.rng.random() < 0.8 else [*DTYPES])
        known = [value.shape for value in self.values.values()]
        shape = self.rng.choice(known) if known and self.rng.random() < 0.5 else self._shape()
        self.fed(name, self.array(DTYPES[kind], shape))

    def fed(self, name: str, value: np.ndarray) -> str:
        """Add an input."""
        self.values[name] = self.feeds[name] = value
        return name

    def constant(self, value: np.ndarray) -> str:
        """Add a constant."""
        name = f"w{len(self.weights)}"
        self.values[name] = value
        self.weights.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def shape(self, sizes: Sequence[int]) -> str:
        """Add a constant shape."""
        return self.constant(np.array(sizes, np.int64))

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node that certainly runs, and return its output."""
        number = len(self.nodes)
        name = f"v{number}_0"
        node = helper.make_node(op_type, inputs, [name], name=f"n{number}", **attributes)
        assert self._runs(node), node
        self.nodes.append(node)
        return name

    def _weight(self, kind: str) -> str:
        """Return the name of a new constant, such as lists of axes and sizes are."""
        value = self.array(DTYPES[kind], self.rng.choice(((), (1,), (1,), (2,), (3,))))
        if kind == "tensor(int64)" and self.rng.random() < 0.3:
            value = np.asarray(value - 2)
        return self.constant(value)

    def _try_node(self) -> None:
        facts = self.rng.choice(self._choices(self.opset))
        before = len(self.weights)
        node = self._node(facts)
        if node is None or not self._runs(node):
            for tensor in self.weights[before:]:
                del self.values[tensor.name]
            del self.weights[before:]
            return
        self.nodes.append(node)

    def _node(self, facts: OpFacts) -> onnx.NodeProto | None:
        bound: dict[str, str] = {}
        names: list[str] = []
        for index, formal in enumerate(facts.inputs):
            count = self.rng.randint(1, 3) if formal.variadic else 1
            if formal.optional and self.rng.random() < 0.5:
                names.append("")
                continue
            for _ in range(count):
                name = self._operand(formal, bound, is_first=index == 0)
                if name is None:
                    return None
                names.append(name)
        while names and not names[-1]:
            names.pop()
        given = self.rng.choice(_attributes().get(facts.op_type) or [[]])
        if self.rng.random() < 0.3:
            given = []
        known = [a for a in given if a.name in facts.attributes]
        if any(facts.attributes[a.name].type != a.type for a in known):
            return None
        required = {name for name, a in facts.attributes.items() if a.required}
        if not required <= {a.name for a in known}:
            return None
        number = len(self.nodes)
        least = max(1, sum(not formal.optional for formal in facts.outputs))
        outputs = [f"v{number}_{i}" for i in range(least)]
        node = helper.make_node(facts.op_type, names, outputs, name=f"n{number}")
        node.attribute.extend(known)
        return node

    def _operand(self, formal: Any, bound: dict[str, str], *, is_first: bool) -> str | None:
        kinds = set(formal.types) & DTYPES.keys()
        is_free = formal.variadic and not formal.homogeneous
        if not is_free and formal.type_parameter in bound:
            kinds &= {bound[formal.type_parameter]}
        fitting = [name for name, value in self.values.items() if _NAMES.get(value.dtype) in kinds]
        if kinds and (not fitting or (not is_first and self.rng.random() < 0.4)):
            fitting = [self._weight(self.rng.choice(sorted(kinds)))]
        if not fitting:
            return None
        # What was made last, more often: so that nodes follow each other.
        name = self.rng.choice(fitting[-2:] if self.rng.random() < 0.6 else fitting)
        bound.setdefault(formal.type_parameter, _NAMES[self.values[name].dtype])
        return name

    def _runs(self, node: onnx.NodeProto) -> bool:
        """Run a node by itself; keep what it makes if that can be part of a graph."""
        names = list(dict.fromkeys(name for name in node.input if name))
        feeds = {name: self.values[name] for name in names}
        try:
            results = backend.run_node(node, feeds, opset_version=self.opset)
        except (KvtoolError, MemoryError):
            return False
        fits = all(
            isinstance(value, np.ndarray)
            and value.dtype in _NAMES
            and value.size <= _MOST_ELEMENTS
            and (value.dtype.kind in "biu" or np.isfinite(value.astype(np.float64)).all())
            for value in results
        )
        if fits:
            self.values.update(zip(node.output, results, strict=True))
        return fits

    def _model(self, outputs: Sequence[str]) -> Drawn:
        ops = [node.op_type for node in self.nodes]
        empty = frozenset(
            node.op_type
            for node in self.nodes
            if any(name and self.values[name].size == 0 for name in node.output)
        )
        symbols = {2: "a", 3: "b", 5: "c", 0: "z"} if self.rng.random() < 0.5 else {}
        inputs = [
            helper.make_tensor_value_info(
                name, _element(value), [symbols.get(size, size) for size in value.shape]
            )
            for name, value in self.feeds.items()
        ]
        nodes, functions = list(self.nodes), []
        if nodes and self.rng.random() < 0.3:
            self._into_body(nodes, inputs)
        elif nodes and self.rng.random() < 0.4:
            functions.append(self._into_function(nodes))
        declared = [self._declared(name, name) for name in outputs]
        graph = helper.make_graph(nodes, f"fuzz_{self.seed}", inputs, declared, self.weights)
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid("local", 1)] if functions else []
        model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=11)
        return Drawn(model, self.feeds, ops, empty)

    def _declared(self, name: str, like: str) -> onnx.ValueInfoProto:
        """Return a declaration that says type and rank, and leaves the sizes to inference."""
        value = self.values[like]
        return helper.make_tensor_value_info(name, _element(value), [None] * value.ndim)

    def _into_body(self, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto]) -> None:
        """Put one node into both branches of an If, which read its inputs from outside."""
        index = self.rng.randrange(len(nodes))
        node = nodes[index]
        branches = []
        for branch in ("then", "else"):
            inner = onnx.NodeProto()
            inner.CopyFrom(node)
            inner.output[:] = [f"{branch}_{name}" for name in node.output]
            infos = [self._declared(f"{branch}_{name}", name) for name in node.output]
            branches.append(helper.make_graph([inner], branch, [], infos))
        then, other = branches
        nodes[index] = helper.make_node(
            "If", ["cond"], node.output, name=f"if_{index}", then_branch=then, else_branch=other
        )
        inputs.append(helper.make_tensor_value_info("cond", onnx.TensorProto.BOOL, []))
        self.feeds = {**self.feeds, "cond": np.asarray(self.rng.random() < 0.5)}

    def _into_function(self, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
        """Make one node the body of a function of the model."""
        index = self.rng.randrange(len(nodes))
        node = nodes[index]
        read = list(dict.fromkeys(name for name in node.input if name))
        imports = [helper.make_opsetid("", self.opset)]
        function = helper.make_function("local", "F", read, list(node.output), [node], imports)
        nodes[index] = helper.make_node("F", read, node.output, name="call", domain="local")
        return function


def _element(value: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(value.dtype)
