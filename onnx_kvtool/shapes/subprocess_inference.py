"""onnx's inference in a process of its own, for models on which it may run out of memory.

Within onnx 1.23.2 an allocation that fails can leave a message half made, and taking it down again
ends the process (seen in one of 600 models that ran against the bound).
"""

from __future__ import annotations

import json
import subprocess
import sys

import onnx
import onnx.shape_inference

__all__ = ["infer_in_subprocess"]

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


def infer_in_subprocess(
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
