"""Which operators of ONNX a release of a runtime computes: onnx's own backend cases, run in it.

    python -m benchmarks.runtime_operators tract@0.23.9

prints, by operator, how many of its cases the release computes rightly, refuses, and computes
wrongly; then the operators of which it computes a case rightly and none wrongly, what is wrong
without a word, and the inputs that have to be constants, as the list `constants` of
`onnx_kvtool/targets/runtimes.toml` has them.

A case is a model of one node at opset 18 (`--opset`), or at the one that brought its operator, if
that is later. It is tried with all inputs given when it runs. If that is not right, all but the
first are initializers: many runtimes want a shape or axes to be constant. Where that is right, each
of them is given alone, which tells the inputs that are meant. An operator that came after the
highest opset of the release is left out.
Where a case kills the process, or takes more than a minute, it counts as refused.

`--answers FILE` keeps each answer as it comes, and asks again for none that the file has: one who
measures for an hour may stop and go on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import onnx
import onnx_ir as ir
from onnx.backend.test.case.node import collect_testcases

from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.rewrite.engine.guards import judge
from onnx_kvtool.targets.target import find_target
from tests.compat.environments import installed

_WORKER = Path(__file__).with_name("runtime_worker.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("target", help="RUNTIME@VERSION")
    parser.add_argument("--cases", type=int, default=1000, help="cases of an operator at most")
    parser.add_argument("--only", action="append", help="an operator; all by default")
    parser.add_argument("--opset", type=int, default=18, help="opset of the models")
    parser.add_argument("--answers", type=Path, help="file to keep answers in, one a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asked = _Asked(options.target, options.answers, Path(directory))
        cases = [
            case
            for case in _cases(options)
            if asked.highest is None or op_facts(case.operator, asked.highest) is not None
        ]
        whole = asked.of([(case, range(len(case.inputs))) for case in cases])
        again = [c for c in cases if whole[c.name] != "right" and len(c.inputs) > 1]
        found = asked.of([(case, range(1)) for case in again])
        found = {
            name: found.get(name, one) if "wrong" not in one else one for name, one in whole.items()
        }
        saved = [c for c in again if found[c.name] == "right"]
        _show(cases, found)
        constants: dict[str, set[bool]] = defaultdict(set)
        for index in range(1, max((len(case.inputs) for case in saved), default=0)):
            some = [case for case in saved if index < len(case.inputs)]
            for name, answer in asked.of([(case, (0, index)) for case in some]).items():
                case = next(one for one in some if one.name == name)
                constants[f"{case.operator}.{case.formal(index)}"].add(answer == "right")
    print(
        "constants =", json.dumps(sorted(one for one, right in constants.items() if not all(right)))
    )


def _show(cases: Sequence[_Case], found: Mapping[str, str]) -> None:
    """Print what was found, by operator, and which operators are right."""
    kinds: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        answer = found[case.name]
        kinds[case.operator][answer.partition(":")[0]].append(f"{case.name} {answer}")
    for op, by_kind in sorted(kinds.items()):
        print(op, *(f"{kind} {len(by_kind[kind])}" for kind in ("right", "refused", "wrong")))
        for line in [*by_kind["wrong"], *by_kind["refused"]]:
            print("   ", line[:200])
    right = [op for op, by_kind in kinds.items() if by_kind["right"] and not by_kind["wrong"]]
    print("operators =", json.dumps(sorted(right)))


class _Plain(argparse.RawDescriptionHelpFormatter):
    pass


@dataclass(frozen=True)
class _Case:
    """A model of one node, its inputs, and what it gives."""

    name: str
    operator: str
    model: onnx.ModelProto
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]

    def formal(self, index: int) -> str:
        """Return what the schema calls an input of the model; the node may leave others out."""
        (node,), (opset,) = self.model.graph.node, self.model.opset_import
        facts = op_facts(self.operator, opset.version)
        formal = facts and facts.input(list(node.input).index(self.model.graph.input[index].name))
        return formal.name if formal else str(index)

    def write(self, given: Collection[int], stem: str) -> None:
        """Write the model, which inputs are given when it runs, and what is expected of it."""
        Path(stem + ".onnx").write_bytes(_with_constants(self.model, self.inputs, given))
        feeds = {self.model.graph.input[index].name: self.inputs[index] for index in given}
        np.savez(stem + ".in.npz", **feeds)
        np.savez(stem + ".expected.npz", **{str(i): a for i, a in enumerate(self.outputs)})


def _cases(options: argparse.Namespace) -> Iterator[_Case]:
    """Yield the cases of one node that have arrays alone."""
    taken: dict[str, int] = defaultdict(int)
    for case in collect_testcases(None):
        model: onnx.ModelProto = case.model
        if len(model.graph.node) != 1 or [o.domain for o in model.opset_import] != [""]:
            continue
        operator = model.graph.node[0].op_type
        if options.only and operator not in options.only:
            continue
        values = [*model.graph.input, *model.graph.output]
        if any(not value.type.HasField("tensor_type") for value in values):
            continue
        inputs, outputs = ([_array(value) for value in values] for values in case.data_sets[0])
        if any(
            array.dtype.isbuiltin != 1 or array.dtype.kind not in "biuf"
            for array in (*inputs, *outputs)
        ):
            continue  # strings, and types of ml_dtypes
        if op_facts(operator, options.opset) is not None:
            model.opset_import[0].version = options.opset
        model.ir_version = 8
        if judge(ir.from_proto(model), model.opset_import[0].version):
            continue  # a type or an attribute that came later
        if taken[operator] < options.cases:
            taken[operator] += 1
            yield _Case(case.name, operator, model, inputs, outputs)


class _Asked:
    """A release, asked of cases; answers are kept in a file, if there is one.

    Attributes:
        highest: The highest opset that the release loads; None where it is not known.
    """

    def __init__(self, target: str, file: Path | None, directory: Path) -> None:
        self.runtime, _, version = target.partition("@")
        self.python = installed(self.runtime, version)
        self.highest = find_target(target).release.max_opset
        self.file, self.directory = file, directory
        kept = "" if file is None or not file.exists() else file.read_text(encoding="utf-8")
        self.known: dict[str, str] = dict(json.loads(line) for line in kept.splitlines())

    def of(self, trials: Sequence[tuple[_Case, Collection[int]]]) -> dict[str, str]:
        """Return what the release says of cases with these inputs given, by name of the case."""
        keys = {f"{case.name}, inputs {_listed(given)}": case.name for case, given in trials}
        rest = {}
        for key, (case, given) in zip(keys, trials, strict=True):
            if key not in self.known:
                rest[key] = str(self.directory / key)
                case.write(given, rest[key])
        answers = _answers(self.python, self.runtime, list(rest.values()))
        for key, answer in zip(rest, answers, strict=True):
            self.known[key] = answer
            if self.file is not None:
                with self.file.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps([key, answer]) + "\n")
        return {name: self.known[key] for key, name in keys.items()}


def _listed(given: Collection[int]) -> str:
    return " ".join(map(str, given)) or "none"


def _array(value: object) -> np.ndarray:
    """Return what a case holds: an array, or a message where numpy has no such type."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value)


def _with_constants(
    model: onnx.ModelProto, arrays: list[np.ndarray], given: Collection[int]
) -> bytes:
    """Return a model whose inputs but those with these indices are initializers."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for index, (value, array) in enumerate(zip(model.graph.input, arrays, strict=False)):
        if index in given:
            continue
        changed.graph.input.remove(value)
        changed.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    return changed.SerializeToString()


def _answers(python: Path, runtime: str, stems: list[str]) -> Iterator[str]:
    """Yield what a worker says of each file; one that dies is started again behind it."""
    rest = stems
    while rest:
        command = [python, "-I", _WORKER, runtime]
        done = 0
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with (
            tempfile.NamedTemporaryFile("w") as written,
            Path(written.name).open(errors="replace") as errors,  # a place of its own in the file
            subprocess.Popen(command, text=True, stderr=written, **pipes) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n".join(rest))
            process.stdin.close()
            for line in process.stdout:
                if line.startswith("answer "):
                    answer = line.removeprefix("answer ").strip()
                    said = _said(errors)
                    refused = said and answer.startswith("refused")
                    yield f"{answer}: {said}" if refused else answer
                    done += 1
        if done < len(rest):
            yield "refused: the process died"
            done += 1
        rest = rest[done:]


def _said(errors: IO[str]) -> str:
    """Return the first error that was printed since the last call; empty if there is none."""
    lines = errors.read().splitlines()
    return next((line.partition("error: ")[2][:160] for line in lines if "error: " in line), "")


if __name__ == "__main__":
    main()
