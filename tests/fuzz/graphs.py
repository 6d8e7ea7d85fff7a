"""Random graphs that are valid, grown node by node.

Operators, their inputs and their types come from the schemas, attributes from onnx's own cases.
Whether a node can stand where it was drawn is not looked up but tried: it is run by itself, and a
node that fails is drawn again. So no table here says what an operator demands.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import helper, numpy_helper

from onnx_kvtool import KvtoolError, backend
from onnx_kvtool.ops.schema import OpFacts
from tests.fuzz.assembly import Drawn, assembled
from tests.fuzz.caches import grow_cache
from tests.fuzz.catalogue import DTYPES, NAMES, OFTEN, OPSETS, attributes, candidates

__all__ = ["Growth", "draw"]

_MOST_ELEMENTS = 2000
_TRIES = 12


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
        self.opset = rng.choice([opset for opset in OPSETS if self._choices(opset)])
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
        return assembled(self, outputs)

    def _choices(self, opset: int) -> tuple[OpFacts, ...]:
        found = candidates(opset)
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
        kind = self.rng.choice(OFTEN if self.rng.random() < 0.8 else [*DTYPES])
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
        given = self.rng.choice(attributes().get(facts.op_type) or [[]])
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
        fitting = [name for name, value in self.values.items() if NAMES.get(value.dtype) in kinds]
        if kinds and (not fitting or (not is_first and self.rng.random() < 0.4)):
            fitting = [self._weight(self.rng.choice(sorted(kinds)))]
        if not fitting:
            return None
        # What was made last, more often: so that nodes follow each other.
        name = self.rng.choice(fitting[-2:] if self.rng.random() < 0.6 else fitting)
        bound.setdefault(formal.type_parameter, NAMES[self.values[name].dtype])
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
            and value.dtype in NAMES
            and value.size <= _MOST_ELEMENTS
            and (value.dtype.kind in "biu" or np.isfinite(value.astype(np.float64)).all())
            for value in results
        )
        if fits:
            self.values.update(zip(node.output, results, strict=True))
        return fits
