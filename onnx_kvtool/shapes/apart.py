"""onnx's inference in a process of its own, for models on which it may run out of memory.

Within onnx 1.23.2 an allocation that fails can leave a message half made, and taking it down again
ends the process (seen in one of 600 models that ran against the bound).
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnx
import onnx.shape_inference
from numpy.typing import NDArray

from onnx_kvtool.core.messages.small_constants import op_types, small_constants

__all__ = ["infer_apart", "may_run_out"]

_READERS = frozenset({"Gather", "Slice"})
_LONG_DECLARED = 1 << 20
_LARGE, _END = 1 << 15, 1 << 62
"""Between them lies a number that may be a size; above the second it means the end of an axis."""

_CONTRADICTION = 10
_CHILD = f"""
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import onnx
from onnx_kvtool.core.memory import bounded_memory
message = onnx.ModelProto.FromString(sys.stdin.buffer.read())
try:
    with bounded_memory(int(sys.argv[2])):
        inferred = onnx.shape_inference.infer_shapes(
            message, "types" in sys.argv[3], "strict" in sys.argv[3], True
        )
except onnx.shape_inference.InferenceError as error:
    sys.stderr.write(str(error))
    sys.exit({_CONTRADICTION})
sys.stdout.buffer.write(inferred.SerializeToString())
"""


def may_run_out(message: onnx.ModelProto) -> bool:
    """Return whether inference with data propagation may write down a very long vector.

    That is so where a Gather or Slice is there to read one, and a size is declared or told that
    makes one by itself or times another. Sizes that many small ones make are not found.
    """
    if op_types(message).isdisjoint(_READERS):
        return False
    infos = (*message.graph.input, *message.graph.value_info, *message.graph.output)
    if any(_is_long(info.type.tensor_type.shape) for info in infos):
        return True
    return bool(small_constants(message, _may_be_a_large_size))


def infer_apart(
    message: onnx.ModelProto, strict: bool, spare: int, check_types: bool = False
) -> onnx.ModelProto | None:
    """Return a message with types inferred in another process; None where that process fails.

    Args:
        message: The model, without weights.
        strict: Whether the first contradiction is an error.
        spare: Bytes that the inference may take.
        check_types: Whether types are held against the schemas.

    Raises:
        onnx.shape_inference.InferenceError: If the model contradicts itself, and `strict`.
    """
    path = json.dumps(sys.path)
    mode = ("strict" if strict else "lenient") + ("+types" if check_types else "")
    command = [sys.executable, "-c", _CHILD, path, str(spare), mode]
    try:
        child = subprocess.run(
            command, input=message.SerializeToString(), capture_output=True, check=False
        )
    except OSError:  # a process that cannot be started, as where Python is embedded
        return None
    if child.returncode == _CONTRADICTION:
        raise onnx.shape_inference.InferenceError(child.stderr.decode(errors="replace"))
    if child.returncode:
        return None
    inferred = onnx.ModelProto()
    inferred.ParseFromString(child.stdout)
    return inferred


def _is_long(shape: onnx.TensorShapeProto) -> bool:
    return len(shape.dim) == 1 and shape.dim[0].dim_value > _LONG_DECLARED


def _may_be_a_large_size(numbers: NDArray[np.float64]) -> bool:
    sizes = np.abs(numbers)
    return bool(((sizes > _LARGE) & (sizes < _END)).any())
