"""A kernel of an operator that onnx lacks takes what its schema says."""

from __future__ import annotations

import inspect

from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.ops.contrib import OperatorName, contrib_facts
from onnx_kvtool.runtime.kernels.contrib import CONTRIB_KERNELS
from tests.grids import each


def test_every_kernel_is_of_an_operator_with_a_form() -> None:
    assert CONTRIB_KERNELS.keys() <= CONTRIB_RULES.keys()


@each("name", sorted(CONTRIB_KERNELS))
def test_a_kernel_takes_what_its_schema_says(name: OperatorName) -> None:
    facts, kernel = contrib_facts(*name), CONTRIB_KERNELS[name]
    assert facts is not None
    parameters = inspect.signature(kernel).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    assert [p.name for p in positional] == [formal.name for formal in facts.inputs]
    for index, (parameter, formal) in enumerate(zip(positional, facts.inputs, strict=True)):
        # Python wants no default before a parameter that has none.
        has_default = formal.optional and index >= facts.min_inputs
        assert (parameter.default is None) == has_default, formal.name
    keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert keywords - {"context"} == facts.attributes.keys()
