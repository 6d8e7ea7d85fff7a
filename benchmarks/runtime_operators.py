"""Which operators of ONNX a release of a runtime computes: onnx's own backend cases, run in it.

    python -m benchmarks.runtime_operators tract@0.23.9

prints, by operator, how many of its cases the release computes rightly, refuses, and computes
wrongly; at last the operators of which it computes a case rightly and none wrongly, as the list
`operators` of `onnx_kvtool/targets/runtimes.toml` has them, and what is wrong without a word.

A case is a model of one node at opset 18, or at the one that brought its operator, if that is
later; it is tried as it is, and with all inputs but the first as initializers: many runtimes want a
shape or axes to be constant.
Where a case kills the process, or takes more than a minute, it counts as refused.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

from onnx_kvtool.ops.schema import op_facts
from tests.compat.environments import installed

_OPSET = 18
_WORKER = Path(__file__).with_name("runtime_worker.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("target", help="RUNTIME@VERSION")
    parser.add_argument("--cases", type=int, default=1000, help="cases of an operator at most")
    parser.add_argument("--only", action="append", help="an operator; all by default")
    options = parser.parse_args()
    runtime, _, version = options.target.partition("@")
    python = installed(runtime, version)
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as directory:
        jobs = list(_jobs(options.cases, options.only, Path(directory)))
        for job, answer in _answers(python, runtime, jobs):
            found[job["operator"]][answer.partition(":")[0]].append(f"{job['case']} {answer}")
    right = [op for op, kinds in found.items() if kinds["right"] and not kinds["wrong"]]
    for op, kinds in sorted(found.items()):
        print(op, *(f"{kind} {len(kinds[kind])}" for kind in ("right", "refused", "wrong")))
        for line in [*kinds["wrong"], *kinds["refused"]]:
            print("   ", line[:200])
    print("operators =", json.dumps(sorted(right)))


class _Plain(argparse.RawDescriptionHelpFormatter):
    pass


def _jobs(most: int, only: list[str] | None, directory: Path) -> Iterator[dict[str, str]]:
    """Write the cases of one node that have arrays alone, and yield their files."""
    taken: dict[str, int] = defaultdict(int)
    for case in collect_testcases(None):
        model: onnx.ModelProto = case.model
        if len(model.graph.node) != 1 or [o.domain for o in model.opset_import] != [""]:
            continue
        operator = model.graph.node[0].op_type
        if only and operator not in only:
            continue
        values = [*model.graph.input, *model.graph.output]
        if any(not value.type.HasField("tensor_type") for value in values):
            continue
        inputs, outputs = case.data_sets[0]
        arrays = [_array(value) for value in (*inputs, *outputs)]
        if any(
            array.dtype.kind not in "biuf" for array in arrays
        ):  # strings, and types of ml_dtypes
            continue
        if taken[operator] == most:
            continue
        taken[operator] += 1
        if op_facts(operator, _OPSET) is not None:
            model.opset_import[0].version = _OPSET
        model.ir_version = 8
        expected = {str(index): a for index, a in enumerate(arrays[len(inputs) :])}
        for given in sorted({len(inputs), min(1, len(inputs))}):
            case_name = f"{case.name}, {given} of {len(inputs)} inputs"
            stem = str(directory / f"{case.name}_{given}")
            Path(stem + ".onnx").write_bytes(_with_constants(model, arrays, given))
            names = [value.name for value in model.graph.input][:given]
            np.savez(stem + ".in.npz", **dict(zip(names, arrays, strict=False)))
            np.savez(stem + ".expected.npz", **expected)
            yield {"operator": operator, "case": case_name, "stem": stem}


def _array(value: object) -> np.ndarray:
    """Return what a case holds: an array, or a message where numpy has no such type."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value)


def _with_constants(model: onnx.ModelProto, arrays: list[np.ndarray], given: int) -> bytes:
    """Return a model whose inputs but the first `given` are initializers."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for value, array in list(zip(model.graph.input, arrays, strict=False))[given:]:
        changed.graph.input.remove(value)
        changed.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    return changed.SerializeToString()


def _answers(
    python: Path, runtime: str, jobs: list[dict[str, str]]
) -> Iterator[tuple[dict[str, str], str]]:
    """Yield what a worker says of each job; one that dies is started again behind its job."""
    rest = jobs
    while rest:
        stems = "\n".join(job["stem"] for job in rest)
        command = [python, "-I", _WORKER, runtime]
        done = 0
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(stems)
            process.stdin.close()
            for line in process.stdout:
                if line.startswith("answer "):
                    yield rest[done], line.removeprefix("answer ").strip()
                    done += 1
        if done < len(rest):
            yield rest[done], "refused: the process died"
            done += 1
        rest = rest[done:]


if __name__ == "__main__":
    main()
