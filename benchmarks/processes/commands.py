"""The commands that are measured, those of kvtool and of its peers, by what they are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.processes.environments import kvtool_programs, peer_programs
from benchmarks.processes.models import Model

__all__ = ["FLOOR", "GROUPS", "MEMORY_TARGET", "Command", "Group"]

MEMORY_TARGET = 150
"""MB that a command of kvtool may take on the model with 3 GB of weights."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line.

    Attributes:
        case: What the table calls it.
        home: Whose environment it runs in.
        arguments: The program and its arguments; `{model}`, `{exported}` and `{output}` are the
            paths of the model, of its exported form and of what may be written.
        targets: Time over the floor that must not be exceeded, by model.
        beside: By case of the same group: time over the time of that one, on 20,000 nodes.
    """

    case: str
    home: Literal["kvtool", "peers"]
    arguments: tuple[str, ...]
    targets: Mapping[str, float] = field(default_factory=dict)
    beside: Mapping[str, float] = field(default_factory=dict)

    def on(self, model: Model, output: Path) -> list[str | Path]:
        """Return the command line for a model."""
        programs = kvtool_programs() if self.home == "kvtool" else peer_programs()
        program, *rest = self.arguments
        places = {"model": model.path, "exported": model.exported, "output": output}
        return [programs / program, *(part.format(**places) for part in rest)]


@dataclass(frozen=True, slots=True)
class Group:
    """Commands for the same thing: the heading of their table and the text above it."""

    title: str
    about: str
    commands: tuple[Command, ...]


def _kvtool(
    case: str,
    arguments: str,
    limit: float | None = None,
    beside: Mapping[str, float] | None = None,
) -> Command:
    targets = {} if limit is None else {"20,000 nodes": limit}
    return Command(case, "kvtool", ("kvtool", *arguments.split()), targets, beside or {})


def _peer(case: str, arguments: str) -> Command:
    return Command(case, "peers", tuple(arguments.split()))


def _python(case: str, code: str) -> Command:
    code = f"import sys; model, output = sys.argv[1:]\n{code}"
    return Command(case, "peers", ("python", "-c", code, "{model}", "{output}"))


FLOOR = Command(
    "the floor: `import onnx_ir`, load, save",
    "kvtool",
    (
        "python",
        "-c",
        "import sys, onnx_ir as ir; ir.save(ir.load(sys.argv[1]), sys.argv[2])",
        "{model}",
        "{output}",
    ),
)
"""What any tool that holds a model in onnx_ir takes at least."""

GROUPS = (
    Group(
        "lower",
        "From opset 24 to opset 18. onnxsim leaves the opset where it is and replaces "
        "TensorScatter alone, by ScatterElements. Neither converter has a way down for "
        "TensorScatter. Nobody but kvtool lowers the model, and nobody runs both forms to compare "
        "them.",
        (
            _kvtool("`kvtool lower --no-verify`", "lower {model} -o {output} --no-verify", 1.8),
            _kvtool("`kvtool lower`, which runs both models", "lower {model} -o {output}"),
            _python(
                "`onnx.version_converter`",
                "import onnx, onnx.version_converter as v\n"
                "onnx.save(v.convert_version(onnx.load(model), 18), output)",
            ),
            _python(
                "`onnxscript.version_converter`",
                "import onnx_ir as ir, onnxscript.version_converter as v\n"
                "m = ir.load(model); v.convert_version(m, 18); ir.save(m, output)",
            ),
            _peer(
                "`onnxsim`, its pass for TensorScatter",
                "onnxsim {model} {output}"
                " --enable-optimization rewrite_tensor_scatter_to_scatter_elements",
            ),
        ),
    ),
    Group(
        "check",
        "onnx.checker ends at the first thing it finds and gives it no code. onnx-doctor has codes "
        "and reads onnx's own checks, but does not infer shapes and does not know the operators: a "
        "TensorScatter along a wrong axis passes. polygraphy runs the model on data that it makes "
        "up.",
        (
            _kvtool(
                "`kvtool check`",
                "check {model} --isolated --exit-zero",
                beside={"`onnx-doctor check`": 1.0},
            ),
            _peer("`onnx-doctor check`", "onnx-doctor check {model}"),
            _python(
                "`onnx.checker`, full check",
                "import onnx.checker; onnx.checker.check_model(model, full_check=True)",
            ),
            _peer("`polygraphy check lint`", "polygraphy check lint {model}"),
        ),
    ),
    Group(
        "inspect",
        "polygraphy and onnxslim print the inputs, the outputs and counts of operators. Neither "
        "pairs past with present caches or says what a cache costs.",
        (
            _kvtool("`kvtool inspect`", "inspect {model}", 1.0),
            _peer("`polygraphy inspect model`", "polygraphy inspect model {model}"),
            _peer("`onnxslim --inspect`", "onnxslim --inspect {model}"),
        ),
    ),
    Group(
        "infer",
        "onnx's inference is the fastest by far and says nothing about what it did not find. "
        "kvtool runs it as well, goes on where it stops, and names the reason for each dimension "
        "that stays unknown.",
        (
            _kvtool(
                "`kvtool infer`",
                "infer {model} -o {output}",
                beside={"onnx_ir, then `onnx.shape_inference`": 3.0},
            ),
            _python(
                "onnx_ir, then `onnx.shape_inference`",
                "import onnx, onnx_ir as ir\n"
                "m = ir.to_proto(ir.load(model))\n"
                "onnx.save(onnx.shape_inference.infer_shapes(m, data_prop=True), output)",
            ),
            _python(
                "`onnx.shape_inference.infer_shapes_path`",
                "import onnx.shape_inference as s\n"
                "s.infer_shapes_path(model, output, strict_mode=True, data_prop=True)",
            ),
            _peer(
                "onnxruntime's `symbolic_shape_infer`",
                "python -m onnxruntime.tools.symbolic_shape_infer"
                " --input {model} --output {output} --auto_merge",
            ),
        ),
    ),
    Group(
        "raise",
        "From ScatterND to TensorScatter, on the same models with their caches updated by "
        "ScatterND. No peer does this.",
        (
            _kvtool("`kvtool raise --no-verify`", "raise {exported} -o {output} --no-verify"),
            _kvtool("`kvtool raise`, which runs both models", "raise {exported} -o {output}"),
        ),
    ),
    Group(
        "A pass over the graph",
        "What peers take that read a model, rewrite something else in it, and write it: fold "
        "constants, fuse nodes, drop what is not used. None of them lowers a model.",
        (
            _peer("`onnxslim`", "onnxslim {model} {output}"),
            _peer("`onnxsim`", "onnxsim {model} {output}"),
            _python(
                "`onnxscript.optimizer`",
                "import onnx_ir as ir, onnxscript.optimizer as o\n"
                "m = ir.load(model); o.optimize(m); ir.save(m, output)",
            ),
            _peer(
                "`polygraphy surgeon sanitize --cleanup`",
                "polygraphy surgeon sanitize {model} --cleanup -o {output}",
            ),
        ),
    ),
)
"""The tables of the section, in their order."""
