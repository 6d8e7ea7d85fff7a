"""Inputs for a model: what they mean, values for them, and those of the next decode step."""

from __future__ import annotations

from onnx_kvtool.runtime.cases import CASES, Case
from onnx_kvtool.runtime.drawing import draw
from onnx_kvtool.runtime.plan import InputPlan, InputSpec, plan
from onnx_kvtool.runtime.stepping import advance
from onnx_kvtool.runtime.symbols import attempts

__all__ = ["CASES", "Case", "InputPlan", "InputSpec", "advance", "attempts", "draw", "plan"]
