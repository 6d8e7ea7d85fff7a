"""A bound on the memory of onnx's inference, here and in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

import onnx
import onnx.shape_inference

from onnx_kvtool.guard.fault import Fault

FAULT = Fault(
    library="onnx",
    seen="1.23.2",
    what="may leave a message half made where an allocation fails in its inference, and ends the"
    " process when it takes that down (seen in one of 600 models that ran against the bound)",
    instead="bounds what inference may take, and asks in a separate process where it may take much",
)

_CONTRADICTION = 10
_CHILD = f"""
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import onnx
from onnx_kvtool.guard.failed_allocation import bounded_memory
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


@contextlib.contextmanager
def bounded_memory(spare: int) -> Iterator[None]:
    """Have allocations in the block fail once the process has grown by `spare` bytes.

    C++ code that computes sizes from a hostile model would otherwise fill the memory of the machine
    and be killed. Other threads are bound as well. Works on Linux only, where the address space of
    a process has a limit that is kept; elsewhere the block runs unbounded.

    Args:
        spare: Bytes of address space that the block may take beyond what the process has.

    Raises:
        MemoryError: From within the block, where it takes more.
    """
    size = _address_space()
    if size is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = size + spare
    if soft != resource.RLIM_INFINITY:
        bound = min(bound, soft)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    """Return the bytes of address space that the process has; None where that is unknown."""
    if sys.platform != "linux":
        return None
    import resource

    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):  # a container without /proc
        return None
