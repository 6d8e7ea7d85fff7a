"""Element types of a node's inputs held against its schema."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.schema import OpFacts, tensor_type
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = ["TypeCheck", "element_type", "type_check"]


@functools.cache
def element_type(dtype: np.dtype[np.generic]) -> ir.DataType | None:
    """Return the element type of arrays of `dtype`; None when ONNX has none."""
    if dtype.kind in "OUS":
        return ir.DataType.STRING
    try:
        return ir.DataType.from_numpy(dtype)
    except TypeError:
        return None


def type_check(facts: OpFacts) -> TypeCheck:
    """Return the check of one version of an operator, the same one for all of its nodes."""
    found = _CHECKS.get(id(facts))
    if found is None:
        found = _CHECKS[id(facts)] = TypeCheck(facts)
    return found


class TypeCheck:
    """Checks the inputs of one version of an operator, once per combination of types.

    Args:
        facts: The operator.
    """

    def __init__(self, facts: OpFacts) -> None:
        self._facts = facts
        self._passed: set[tuple[object, ...]] = set()

    def __call__(self, inputs: Sequence[Value]) -> None:
        """Check the types of `inputs`; those of sequences are let pass.

        Raises:
            KernelError: If a required input or one of several is absent; if there are more inputs
                than the operator takes; if an input has a type that the schema does not list, or
                another type than an input that has the same type parameter.
        """
        key = tuple([getattr(value, "dtype", None) or type(value) for value in inputs])
        if key in self._passed:
            return
        self._check_presence(inputs)
        bound: dict[str, tuple[str, str]] = {}
        for index, value in enumerate(inputs):
            formal = self._facts.input(index)
            if formal is None or not isinstance(value, np.ndarray):
                continue
            element = element_type(value.dtype)
            name = str(value.dtype) if element is None else tensor_type(element)
            label = f"{formal.name}[{index}]" if formal.variadic else formal.name
            if name not in formal.types:
                # An optional may be handed over as the value it holds.
                if f"optional({name})" in formal.types:
                    continue
                raise KernelError(
                    f"`{label}` is {name}, which version {self._facts.since_version} of "
                    f"`{self._facts.op_type}` does not take"
                )
            if formal.variadic and not formal.homogeneous:
                continue
            other, expected = bound.setdefault(formal.type_parameter, (label, name))
            if name != expected:
                raise KernelError(f"`{label}` is {name}, expected {expected} as `{other}`")
        self._passed.add(key)

    def _check_presence(self, inputs: Sequence[Value]) -> None:
        facts = self._facts
        for index, formal in enumerate(facts.inputs):
            # An optional that holds nothing looks like an input that is not there.
            if formal.optional or formal.variadic or any(t.startswith("opt") for t in formal.types):
                continue
            if index >= len(inputs) or inputs[index] is None:
                raise KernelError(f"`{formal.name}` is absent, and `{facts.op_type}` needs it")
        last = facts.inputs[-1] if facts.inputs else None
        if last is not None and last.homogeneous and last.variadic:
            for index in range(len(facts.inputs) - 1, len(inputs)):
                if inputs[index] is None:
                    raise KernelError(f"`{last.name}[{index}]` is absent")
        if len(inputs) > facts.max_inputs:
            raise KernelError(
                f"there are {counted(len(inputs), 'input')}, expected at most {facts.max_inputs}"
            )


_CHECKS: dict[int, TypeCheck] = {}
"""By the identity of the facts, which each check keeps alive."""
