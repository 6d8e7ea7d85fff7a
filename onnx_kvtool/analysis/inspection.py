"""What `kvtool inspect` answers: a model's summary and the table of its caches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache, bound
from onnx_kvtool.analysis.caches.neighbourhood import Neighbourhood
from onnx_kvtool.analysis.caches.whatif import WhatIf
from onnx_kvtool.core import walk
from onnx_kvtool.core.diagnostic import AT_NODE, Location
from onnx_kvtool.core.domains import operator_label
from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.core.reporting import Shown
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.model_io.external_data import external_files
from onnx_kvtool.ops.schema import type_name
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.symbolic.dimensions import Dims, dims_of


@dataclass(frozen=True, slots=True)
class ValueFacts(Record):
    """An input or output of a model.

    Attributes:
        name: Name.
        dtype: Element type (`float32`), or the full type if it is no tensor, such as
            `seq(tensor(float))`; None if unknown.
        shape: Dimensions; None if the rank is unknown.
    """

    name: str
    dtype: str | None
    shape: Dims | None


@dataclass(frozen=True, slots=True)
class NodeFacts(Record):
    """A node and the names of what it reads and makes.

    Attributes:
        location: The node.
        inputs: Names of its inputs; "" for an omitted one.
        outputs: Names of its outputs; "" for an omitted one.
    """

    location: Location
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    JSON = (AT_NODE, "inputs", "outputs")


@dataclass(frozen=True, slots=True)
class ModelFacts(Record):
    """A model in numbers.

    Attributes:
        path: Path as given; `-` for standard input, "" for a model in memory.
        ir_version: IR version.
        opset_imports: Version of each domain; "" is the default one.
        producer: The tool that wrote it, with its version; None if the file does not say.
        nodes: Nodes in the main graph, all bodies and functions; each function counts once.
        functions: Model-local functions.
        initializers: Initializers of all graphs.
        parameters: Elements of the initializers.
        weight_bytes: Bytes of the initializers, in this file or another.
        external_files: Paths of the external data files.
    """

    path: str
    ir_version: int
    opset_imports: Mapping[str, int]
    producer: str | None
    nodes: int
    functions: int
    initializers: int
    parameters: int
    weight_bytes: int
    external_files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InspectReport(Shown):
    """A model's summary and its caches.

    Attributes:
        model: Counts and sizes of the model.
        inputs: Inputs that a caller must give; inputs with a default are omitted.
        outputs: Outputs.
        ops: Number of nodes by operator, `Op` or `domain::Op`, most frequent first.
        caches: The caches, in the order of the nodes that update them.
        nodes: Every node, if requested.
        notes: What kvtool could not determine, and why; attention that is not one operator.
        neighbourhoods: The graph around each cache, in the order of `caches`; none in a report that
            was read from JSON, whose page draws no graph.
        whatif: Cost of the caches with other settings; None if not requested.

    Examples:
        >>> report = kv.inspect("decoder.onnx")
        >>> report.model.parameters, report.ops["TensorScatter"], len(report.caches)
        (108864, 4, 4)
        >>> sum(cache.bytes_per_token for cache in report.caches)
        512
    """

    model: ModelFacts
    inputs: tuple[ValueFacts, ...]
    outputs: tuple[ValueFacts, ...]
    ops: Mapping[str, int]
    caches: tuple[Cache, ...]
    nodes: tuple[NodeFacts, ...] | None = None
    notes: tuple[str, ...] = ()
    neighbourhoods: tuple[Neighbourhood, ...] = field(default=(), repr=False, compare=False)
    whatif: WhatIf | None = None

    JSON = (
        "model",
        "inputs",
        "outputs",
        "ops",
        "caches",
        "notes",
        Key("whatif", is_optional=True),
        Key("nodes", is_optional=True),
    )


def describe(
    model: ir.Model, path: str, dims: Mapping[str, int]
) -> tuple[ModelFacts, tuple[ValueFacts, ...], tuple[ValueFacts, ...], dict[str, int]]:
    """Return a model in numbers, its inputs, its outputs, and the count of each operator.

    No value of a tensor is read, and no data file is looked at.
    """
    ops: Counter[str] = Counter()
    tensors: list[ir.TensorProtocol] = []
    for _, graph in walk.graphs(model):
        ops.update(map(operator_label, graph))
        values = graph.initializers.values()
        tensors.extend(v.const_value for v in values if v.const_value is not None)
    facts = ModelFacts(
        path=path,
        ir_version=model.ir_version,
        opset_imports=dict(model.opset_imports),
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))) or None,
        nodes=ops.total(),
        functions=len(model.functions),
        initializers=len(tensors),
        parameters=sum(tensor.size for tensor in tensors),
        weight_bytes=sum(tensor_bytes(tensor) for tensor in tensors),
        external_files=tuple(dict.fromkeys(f.location for f in external_files(model))),
    )
    inputs = tuple(_value(v, dims) for v in model.graph.inputs if not v.is_initializer())
    outputs = tuple(_value(v, dims) for v in model.graph.outputs)
    return facts, inputs, outputs, dict(ops.most_common())


def list_nodes(model: ir.Model) -> tuple[NodeFacts, ...]:
    """Return every node of a model, in the order of `walk.nodes`."""
    return tuple(
        node_facts(Location.of(path, node, index), node) for path, index, node in walk.nodes(model)
    )


def node_facts(location: Location, node: ir.Node) -> NodeFacts:
    """Return a node at a place, with the names around it."""
    return NodeFacts(
        location,
        tuple("" if v is None else v.name or "" for v in node.inputs),
        tuple(v.name or "" for v in node.outputs),
    )


def _value(value: ir.Value, dims: Mapping[str, int]) -> ValueFacts:
    dtype: str | None = None
    if isinstance(value.type, ir.TensorType):
        if value.type.dtype != ir.DataType.UNDEFINED:
            dtype = dtype_name(value.type.dtype)
    else:
        dtype = type_name(value)
    return ValueFacts(value.name or "", dtype, bound(dims_of(value), dims))
