"""Fixed forms of models with growing caches, made by hand, right ones and faulty ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx
import onnx_ir as ir
from onnx import helper

from onnx_kvtool.model_io.model import clone
from onnx_kvtool.rewrite.upgrade import upgrade
from onnx_kvtool.verification.inputs.plan import plan

FAULTS = (
    "rows are written one late",
    "one layer writes one row early",
    "attention reads one row too few",
    "attention reads one row too many",
    "sequences are swapped in one layer",
    "keys go where values belong",
    "the mask is ignored",
    "attention reads a row that is not in use",
    "nothing fails past the capacity",
    "the length of the past is that of the cache",
    "old rows are moved by one",
)


def fixed_form(
    source: ir.Model, capacity: int | str, fault: str | None = None, *, opset: int = 24
) -> ir.Model:
    """Return `source` with caches of `capacity` rows that TensorScatter writes at `past_length`.

    Each `present = Concat(past, new)` is replaced; whoever read it or a past reads the rows in use.

    Args:
        source: A model of which each cache grows by one Concat along its axis 2.
        capacity: Rows, or the name of a dimension.
        fault: One of `FAULTS`; None for a right form.
        opset: Version of the default domain, at least 24.
    """
    model = clone(source)
    known = plan(model)
    upgrade(model, opset)
    proto = ir.to_proto(model)
    made = _Fixed(proto, capacity, fault, {pair.past: pair.present for pair in known.pairs})
    made.edit()
    onnx.checker.check_model(proto)
    return ir.from_proto(proto)


@dataclass
class _Fixed:
    proto: onnx.ModelProto
    capacity: int | str
    fault: str | None
    caches: dict[str, str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def edit(self) -> None:
        graph = self.proto.graph
        producers = {name: node for node in graph.node for name in node.output}
        concats = {past: self._concat(producers, present) for past, present in self.caches.items()}
        held = [node for node in graph.node if not any(node is c for c in concats.values())]
        for name, values in (("kv.0", [0]), ("kv.1", [1]), ("kv.2", [2]), ("kv.3", [3])):
            tensor = helper.make_tensor(name, onnx.TensorProto.INT64, [1], values)
            graph.initializer.append(tensor)
        for past in self.caches:
            self.add("Slice", [past, "kv.0", "past_length", "kv.2"], f"{past}.in_use")
        before = len(self.nodes)
        for number, (past, concat) in enumerate(concats.items()):
            other = list(concats.values())[number ^ 1] if number < 2 else concat
            self._replace(past, concat, other, number)
        after = self.nodes[before:]
        is_wrong = self.fault == "the length of the past is that of the cache"
        for node in held:
            for index, name in enumerate(node.input):
                if name in self.caches and not is_wrong:
                    node.input[index] = f"{name}.in_use"
                elif name == "attention_mask" and self.fault == "the mask is ignored":
                    node.input[index] = "kv.mask"
        first = self.nodes[:before]
        if self.fault == "the mask is ignored":
            first += self._ones()
        del graph.node[:]
        graph.node.extend(_sorted([*first, *held, *after], graph))
        count = helper.make_tensor_value_info("past_length", onnx.TensorProto.INT64, [1])
        graph.input.append(count)
        names = {*self.caches, *self.caches.values()}
        for value in (*graph.input, *graph.output):
            if value.name in names:
                dim = value.type.tensor_type.shape.dim[2]
                dim.Clear()
                if isinstance(self.capacity, int):
                    dim.dim_value = self.capacity
                else:
                    dim.dim_param = self.capacity
        del graph.value_info[:]

    def add(self, op_type: str, inputs: list[str], output: str, **attributes: object) -> str:
        node = helper.make_node(op_type, inputs, [output], **attributes)
        self.nodes.append(node)
        return output

    @staticmethod
    def _concat(producers: dict[str, onnx.NodeProto], present: str) -> onnx.NodeProto:
        node = producers[present]
        assert node.op_type == "Concat" and len(node.input) == 2
        return node

    def _ones(self) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Sub", ["attention_mask", "attention_mask"], ["kv.none"]),
            helper.make_node("Add", ["kv.none", "kv.1"], ["kv.mask"]),
        ]

    def _replace(
        self, past: str, concat: onnx.NodeProto, other: onnx.NodeProto, number: int
    ) -> None:
        (present,), new, fault = concat.output, concat.input[1], self.fault
        rows, at = f"{past}.rows", "past_length"
        if fault == "keys go where values belong":
            new = other.input[1]
        if fault == "sequences are swapped in one layer" and number == 0:
            start, step = ["kv.last", "kv.first"], "kv.back"
            for name, value in (("kv.last", -1), ("kv.first", -(2**31)), ("kv.back", -1)):
                tensor = helper.make_tensor(name, onnx.TensorProto.INT64, [1], [value])
                self.proto.graph.initializer.append(tensor)
            new = self.add("Slice", [new, *start, "kv.0", step], f"{past}.swapped")
        self.add("Shape", [new], f"{past}.batch", start=0, end=1)
        self.add("Shape", [new], f"{past}.length", start=2, end=3)
        end = self.add("Add", ["past_length", f"{past}.length"], f"{past}.end")
        if fault == "rows are written one late":
            at = self.add("Add", [at, "kv.1"], f"{past}.late")
        if fault == "one layer writes one row early" and number == 2:
            early = self.add("Sub", [at, "kv.1"], f"{past}.before")
            at = self.add("Max", [early, "kv.0"], f"{past}.early")
        if fault == "nothing fails past the capacity":
            self.add("Shape", [past], f"{past}.capacity", start=2, end=3)
            self.add("Sub", [f"{past}.capacity", f"{past}.length"], f"{past}.last")
            at = self.add("Min", [at, f"{past}.last"], f"{past}.at")
        self.add("Expand", [at, f"{past}.batch"], f"{past}.starts")
        buffer = past
        if fault == "old rows are moved by one":
            tail = self.add("Slice", [past, "kv.1", "kv.many", "kv.2"], f"{past}.tail")
            head = self.add("Slice", [past, "kv.0", "kv.1", "kv.2"], f"{past}.head")
            if number == 0:
                tensor = helper.make_tensor("kv.many", onnx.TensorProto.INT64, [1], [2**31])
                self.proto.graph.initializer.append(tensor)
            buffer = self.add("Concat", [tail, head], f"{past}.moved", axis=2)
        self.add("TensorScatter", [buffer, new, f"{past}.starts"], present, axis=2)
        if fault == "attention reads one row too few":
            end = self.add("Sub", [end, "kv.1"], f"{past}.short")
        if fault == "attention reads one row too many":
            end = self.add("Add", [end, "kv.1"], f"{past}.long")
        self.add("Slice", [present, "kv.0", end, "kv.2"], rows)
        if fault == "attention reads a row that is not in use" and number == 1:
            last = self.add("Sub", ["kv.0", "kv.1"], f"{past}.last")
            tail = self.add("Slice", [present, last, "kv.many", "kv.2"], f"{past}.tail")
            tensor = helper.make_tensor("kv.many", onnx.TensorProto.INT64, [1], [2**31])
            self.proto.graph.initializer.append(tensor)
            rows = self.add("Add", [rows, tail], f"{past}.touched")
        if fault == "nothing fails past the capacity":
            rows = self.add("Concat", [f"{past}.in_use", new], f"{past}.joined", axis=2)
        for node in self.proto.graph.node:
            for index, name in enumerate(node.input):
                if name == present and node is not concat:
                    node.input[index] = rows


def _sorted(nodes: list[onnx.NodeProto], graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes in an order in which each follows what it reads."""
    known = {value.name for value in (*graph.input, *graph.initializer)} | {"", "past_length"}
    left, found = list(nodes), []
    while left:
        ready = [node for node in left if set(node.input) <= known]
        assert ready, [node.name for node in left]
        left = [node for node in left if not set(node.input) <= known]
        found += ready
        known.update(name for node in ready for name in node.output)
    return found
