"""Operators of onnxruntime without their own kernel, which run as their standard form."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.core.choices import NATIVE_OPSET
from onnx_kvtool.emit.emitter import Names, Refusal, ScopedValues, release
from onnx_kvtool.ops.schema import OpFacts
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.runtime.engine.borrowed import Attributes, type_check
from onnx_kvtool.runtime.engine.program import ABSENT, Program, State, Step
from onnx_kvtool.runtime.errors import KernelError, RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.kernels.kernel import Ints, Value, Values

if TYPE_CHECKING:
    from onnx_kvtool.runtime.engine.compiler import Compiler


_KEPT = 8
"""Most forms of one node that are kept."""

_Sizes: TypeAlias = "tuple[int | str, ...]"
_Constants: TypeAlias = Mapping[int, ir.TensorProtocol]


class _Form(NamedTuple):
    """A written form: its sizes, its program, and the inputs of that program."""

    sizes: _Sizes
    program: Program
    inputs: Ints


class Derived:
    """The action of a node: runs its standard form, written for the given inputs.

    A form serves all inputs of the same types and sizes. Sizes that change between calls become
    symbolic, except 0 and 1, if the form does not need them; the form then serves all inputs that
    give each symbol one size. A form that needs values is written for each call.

    Args:
        node: The node.
        step: Its step, with the outputs that are read.
        facts: Its schema.
        attributes: Its attributes, without references.
        constants: Small initializers that it reads, by position.
        owner: The compiler of its model.
    """

    def __init__(
        self,
        node: ir.Node,
        step: Step,
        facts: OpFacts,
        attributes: Attributes,
        constants: _Constants,
        owner: Compiler,
    ) -> None:
        self._operator = (node.domain, node.op_type)
        self._attributes = tuple(attributes.values())
        self._step, self._facts, self._constants, self._owner = step, facts, constants, owner
        self._check = type_check(facts)
        self._clear()

    def _clear(self) -> None:
        """Forget all forms; they are in one graph, and share its constants."""
        self._forms: dict[object, list[_Form]] = {}
        graph = ir.Graph([], [], nodes=[], opset_imports={"": NATIVE_OPSET})
        graph.name = self._operator[1]
        self._programs = type(self._owner)(ir.Model(graph, ir_version=10))
        self._scope = ScopedValues(graph, None, Names())
        for name in self._step.names[0]:
            self._scope.names.fresh(name)

    def __call__(self, inputs: Values, _: object, outer: State, __: bool) -> list[Value]:
        """Run the form on the inputs of the node."""
        self._check(inputs)
        state = State(outer.buffers)
        try:
            form = self._form(inputs)
            given = [inputs[position] for position in form.inputs]
            found = iter(form.program.run(given, (), state))
        except (Refusal, MalformedNode, RunFailed, RuntimeUnavailable) as error:
            raise KernelError(error.message, help=error.help) from error
        outer.warnings += [replace(w, location=self._step.location) for w in state.warnings]
        return [None if slot == ABSENT else next(found) for slot in self._step.outputs]

    def _form(self, inputs: Values) -> _Form:
        """Return a kept form that fits the inputs, or a new one.

        Raises:
            Refusal: If the operator has no standard form for the inputs.
            MalformedNode: If the schema does not allow the node.
        """
        kinds = tuple(None if v is None else (v.dtype, v.ndim) for v in inputs)
        sizes = tuple(size for v in inputs if v is not None for size in v.shape)
        kept = self._forms.setdefault(kinds, [])
        for form in kept:
            if form.sizes == sizes or _fits(form.sizes, sizes):
                return form
        if sum(map(len, self._forms.values())) >= _KEPT:
            self._clear()
            kept = self._forms.setdefault(kinds, [])
        if kept and (wider := _wider(kept[-1].sizes, sizes)) is not None:
            with suppress(Refusal, MalformedNode):  # where it needs the sizes
                kept[-1] = self._write(inputs, wider, self._constants)
                return kept[-1]
        try:
            kept.append(self._write(inputs, sizes, self._constants))
        except Refusal:
            self._clear()  # it may need the values, which the graph keeps
            values = {i: ir.Tensor(v) for i, v in enumerate(inputs) if v is not None}
            return self._write(inputs, sizes, {**values, **self._constants})
        return kept[-1]

    def _write(self, inputs: Values, sizes: _Sizes, constants: _Constants) -> _Form:
        """Return a new form for inputs of these sizes, with some constants among them."""
        graph = self._scope.graph
        scope = ScopedValues(graph, self._scope, self._scope.names)
        remaining = iter(sizes)
        given: dict[str, ir.Value] = {}
        fed = []
        for index, (name, array) in enumerate(zip(self._step.names[0], inputs, strict=True)):
            if array is None:
                continue
            shape = ir.Shape([next(remaining) for _ in array.shape])
            if name in given:
                continue
            if index not in constants:
                given[name] = _value(name, array, shape)
                fed.append(index)
            elif name not in graph.initializers:
                given[name] = _value(name, array, shape, constants[index])
                graph.register_initializer(given[name])
            else:
                given[name] = graph.initializers[name]
        node = ir.Node(
            *self._operator,
            [given.get(name) for name in self._step.names[0]],
            self._attributes,
            outputs=[ir.Value(name=name) for name in self._step.names[1]],
        )
        is_read = [slot != ABSENT for slot in self._step.outputs]
        reader = ir.Node("", "Identity", list(compress(node.outputs, is_read)))
        try:
            em, written = CONTRIB_RULES[self._operator].written(
                node, self._facts, scope, NATIVE_OPSET, "form"
            )
        finally:
            release(reader)
            release(node)
        # Only constants that a node reads get into the graph.
        wanted = [
            em.op("Identity", v) if v.producer() is None and v.const_value else v
            for v in compress(written.outputs, is_read)
            if v is not None
        ]
        em.fold(ConstantFolder().integers, wanted)
        graph.extend(em.commit())
        program = self._programs.main([given[self._step.names[0][i]] for i in fed], wanted)
        if self._programs.borrowed:
            self._owner.borrowed[self._step.location] = None
            self._step.runtime = "onnx.reference"
        return _Form(sizes, program, tuple(fed))


def _value(
    name: str, array: Value, shape: ir.Shape, constant: ir.TensorProtocol | None = None
) -> ir.Value:
    text = array.dtype == object
    dtype = ir.DataType.STRING if text else ir.DataType.from_numpy(array.dtype)
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=shape, const_value=constant)


def _fits(pattern: _Sizes, sizes: _Sizes) -> bool:
    """Return whether sizes fit a pattern, with one size for each of its symbols."""
    named: dict[str, object] = {}
    return all(
        named.setdefault(p, size) == size if isinstance(p, str) else p == size
        for p, size in zip(pattern, sizes, strict=True)
    )


def _wider(pattern: _Sizes, sizes: _Sizes) -> _Sizes | None:
    """Return a pattern that fits both; None if a size of 0 or 1 would become symbolic."""
    pairs = list(zip(pattern, sizes, strict=True))
    if any(p != size and (p in (0, 1) or size in (0, 1)) for p, size in pairs):
        return None
    return tuple(p if p == size else f"{p}_{size}" for p, size in pairs)
