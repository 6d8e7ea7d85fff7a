"""The inputs of the next decode step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_kvtool.runtime.cases import Case
from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.runtime.layout import Layout
from onnx_kvtool.runtime.plan import InputPlan, InputSpec
from onnx_kvtool.runtime.sessions import Array, Arrays
from onnx_kvtool.runtime.symbols import kinds_of, sizes_for
from onnx_kvtool.runtime.values import any_bits, moderate, small_integers

__all__ = ["advance"]

_TOKENS = 4
