"""Models changed in one place, and whether `verify` sees it.

`python -m tests.verification_pairs.mutants --count 300 --seed 7` draws random graphs and models of
the tables, changes each in several ways, looks for inputs on which the change shows, and prints the
mutants that `verify` calls equal without a word.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnx_kvtool as kv
from tests.fuzz.catalogue import attributes
from tests.fuzz.graphs import draw
from tests.verification_pairs.judging import apart, runners, verdict
from tests.verification_pairs.pair import Array
from tests.verification_pairs.tables import DIFFERENT, EQUAL

__all__ = ["Base", "Survivor", "bases", "decoders", "survivors"]

_FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

Feeds = dict[str, Array]
Mutation = Callable[[onnx.ModelProto, random.Random], str | None]

_ALIKE = (
    ("Add", "Sub", "Mul", "Max", "Min", "Div"),
    ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"),
    ("And", "Or", "Xor"),
    ("BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    ("Abs", "Neg", "Identity", "Relu", "Sign"),
    ("Floor", "Ceil", "Round", "Identity"),
    ("Sigmoid", "HardSigmoid", "Tanh", "Softsign", "Erf"),
    ("Elu", "Selu", "Celu", "LeakyRelu", "Relu", "Softplus", "Mish", "HardSwish"),
    ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    ("ArgMax", "ArgMin"),
    ("MaxPool", "AveragePool"),
    ("Sum", "Mean", "Max", "Min"),
    ("Exp", "Sqrt", "Reciprocal", "Log"),
    ("Sin", "Cos", "Tan", "Atan", "Sinh"),
    ("Softmax", "LogSoftmax", "Hardmax"),
)
_INSERTED = {
    "a bound of 4": ("Min", 4),
    "a bound of -2": ("Max", -2),
    "a factor of 1.01": ("Mul", 1.01),
    "an offset of 0.01": ("Add", 0.01),
    "a magnitude": ("Abs", None),
    "a Relu": ("Relu", None),
    "a sign": ("Sign", None),
    "a rounding": ("Floor", None),
}
_SWAPPED = frozenset({"Sub", "Div", "Less", "Greater", "Pow", "MatMul", "Mod", "Concat", "Where"})


@dataclass(frozen=True)
class Base:
    """A model, and inputs that it runs on; none for a decoder, which many cases and steps try."""

    name: str
    model: onnx.ModelProto
    feeds: Feeds


@dataclass(frozen=True)
class Survivor:
    """A mutant that differs, and what `verify` says of it.

    Attributes:
        base: The model that was changed.
        kind: The kind of the change.
        what: The change.
        found: What `verify` says.
        scale: How far the inputs that show it are from those of N(0, 1), in a word.
        models: Both models.
        feeds: The inputs that show it.
    """

    base: str
    kind: str
    what: str
    found: str
    scale: str
    models: tuple[onnx.ModelProto, onnx.ModelProto]
    feeds: Feeds


def bases(count: int, seed: int) -> Iterator[Base]:
    """Yield random graphs, and after each of them a first model of the tables."""
    pairs = [pair for pairs in (DIFFERENT | EQUAL).values() for pair in pairs]
    rng = random.Random(seed)
    for number in range(seed, seed + count):
        drawn = draw(number)
        yield Base(f"fuzz {number}", drawn.model, drawn.feeds)
        pair = rng.choice(pairs)
        model, _ = pair.models(seed)
        yield Base(pair.name, model, pair.inputs(model, seed))


def decoders(seed: int) -> Iterator[Base]:
    """Yield the exported decoders among the fixtures, in an order that the seed gives."""
    paths = sorted(_FIXTURES.glob("growing/*.onnx")) + sorted(
        _FIXTURES.glob("models/native/*.onnx")
    )
    random.Random(seed).shuffle(paths)
    for path in paths:
        yield Base(path.stem, onnx.load(path), {})


def survivors(base: Base, seed: int, tries: int, counts: Counter[str]) -> Iterator[Survivor]:
    """Change a model in `tries` ways; yield each mutant that differs on some inputs."""
    rng = random.Random(base.name)
    for _ in range(tries):
        mutation = rng.choice(_MUTATIONS)
        mutant = onnx.ModelProto()
        mutant.CopyFrom(base.model)
        what = mutation(mutant, rng)
        if what is None or (base.feeds and not _is_valid(mutant)):
            counts["no mutant"] += 1
            continue
        try:
            shown = _shown(base, mutant, rng, seed)
        except Exception:  # noqa: BLE001 - a runtime raises of every kind
            counts["does not run"] += 1
            continue
        if shown is None:
            counts["never differs"] += 1
            continue
        found = verdict(base.model, mutant, seed)
        counts[f"differs, called {found}"] += 1
        kind = mutation.__name__.strip("_")
        yield Survivor(base.name, kind, what, found, shown[0], (base.model, mutant), shown[1])


def _is_valid(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception:  # noqa: BLE001 - onnx raises of every kind
        return False
    return True


_SCALES: Sequence[tuple[str, float]] = (
    *(("ordinary", 1.0) for _ in range(8)),
    *(("wide", 10.0) for _ in range(6)),
    *(("very wide", 300.0) for _ in range(4)),
    ("tiny", 1e-3),
    ("ties", 0.0),
    ("ties", 0.0),
)


def _shown(
    base: Base, mutant: onnx.ModelProto, rng: random.Random, seed: int
) -> tuple[str, Feeds] | None:
    """Return inputs on which both models run and differ, and how they were drawn."""
    if not base.feeds:
        broad = kv.verify(
            base.model, mutant, seed=seed + 1, cases=24, steps=12, verify_budget="1GiB,60s"
        )
        return (f"{broad.detail}", {}) if broad.status == "different" else None
    first, second = runners(base.model, mutant)
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    for scale, feeds in _inputs(base, numbers):
        try:
            expected = first(feeds)
        except Exception:  # noqa: BLE001 - inputs that the model is not made for
            continue
        try:
            found = second(feeds)
        except Exception:
            if scale == "as drawn":
                raise
            return f"{scale}, fails", feeds
        pairs = list(zip(expected, found, strict=True))
        if not all(isinstance(a, np.ndarray) for a, _ in pairs):
            return None
        if any(apart(a, b, 3e-2 if a.dtype.itemsize <= 2 else 1e-3) for a, b in pairs):
            return scale, feeds
    return None


def _inputs(base: Base, numbers: np.random.Generator) -> Iterator[tuple[str, Feeds]]:
    yield "as drawn", base.feeds
    for scale, factor in _SCALES:
        feeds = {
            name: _drawn(value, factor, numbers) if _is_free(value) else value
            for name, value in base.feeds.items()
        }
        yield scale, feeds


def _is_free(value: Array) -> bool:
    return value.dtype.kind in "fiuV" and value.size > 0


def _drawn(value: Array, factor: float, numbers: np.random.Generator) -> Array:
    shape, dtype = value.shape, value.dtype
    if dtype.kind in "iu" and np.iinfo(dtype).bits:
        most = {0.0: 2, 1.0: 4, 10.0: 100}.get(factor, 2**62 if factor > 100 else 3)
        info = np.iinfo(dtype)
        low, high = max(-most, info.min), min(most, info.max)
        return np.asarray(numbers.integers(low, high, shape, dtype=np.int64)).astype(dtype)
    if factor == 0.0:
        return np.asarray(numbers.integers(-1, 3, shape)).astype(dtype)
    return np.asarray(numbers.normal(size=shape) * factor).astype(dtype)


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    found = list(model.graph.node)
    for node in model.graph.node:
        for attribute in node.attribute:
            found += attribute.g.node
    return found + [node for function in model.functions for node in function.node]


def _attribute(model: onnx.ModelProto, rng: random.Random) -> str | None:
    """Change one number, or one word for another one that onnx's cases have."""
    given = [(n, a) for n in _nodes(model) for a in n.attribute if a.name != "to"]
    given = [(n, a) for n, a in given if a.type in (1, 2, 3, 6, 7)]
    if not given:
        return None
    node, attribute = rng.choice(given)
    before = helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice((before * 1.5, before / 10, -before, before + 0.1))
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice((before + 1, before - 1, 1 - before, -before))
    elif attribute.type == onnx.AttributeProto.STRING:
        words = {
            other.s
            for others in attributes().get(node.op_type, [])
            for other in others
            if other.name == attribute.name
        }
        words.discard(before)
        if not words:
            return None
        attribute.s = rng.choice(sorted(words))
    else:
        values = list(attribute.ints or attribute.floats)
        if not values:
            return None
        if rng.random() < 0.5 and len(set(values)) > 1:
            rng.shuffle(values)
        else:
            values[rng.randrange(len(values))] += rng.choice((1, -1))
        del attribute.ints[:], attribute.floats[:]
        field = attribute.ints if attribute.type == onnx.AttributeProto.INTS else attribute.floats
        field.extend(values)
    after = helper.get_attribute_value(attribute)
    return None if after == before else f"{node.op_type}.{attribute.name}: {before} to {after}"


def _default(model: onnx.ModelProto, rng: random.Random) -> str | None:
    """Leave an attribute out, so that its default applies."""
    given = [(n, i) for n in _nodes(model) for i in range(len(n.attribute))]
    if not given:
        return None
    node, index = rng.choice(given)
    name = node.attribute[index].name
    del node.attribute[index]
    return f"{node.op_type} without {name}"


def _operator(model: onnx.ModelProto, rng: random.Random) -> str | None:
    """Exchange an operator for one of the same family."""
    fitting = [(n, group) for n in _nodes(model) for group in _ALIKE if n.op_type in group]
    if not fitting:
        return None
    node, group = rng.choice(fitting)
    before = node.op_type
    node.op_type = rng.choice([other for other in group if other != before])
    return f"{before} to {node.op_type}"


def _constant(model: onnx.ModelProto, rng: random.Random) -> str | None:
    """Change one element of a constant."""
    tensors = [t for t in model.graph.initializer if np.prod(t.dims) > 0]
    if not tensors:
        return None
    tensor = rng.choice(tensors)
    values = np.array(numpy_helper.to_array(tensor))
    flat = values.reshape(-1)
    place = rng.randrange(flat.size)
    before = flat[place]
    if values.dtype.kind == "b":
        flat[place] = not before
    elif values.dtype.kind in "iu":
        number = int(before) + rng.choice((1, -1))
        info = ml_dtypes.iinfo(values.dtype)
        flat[place] = min(max(number, int(info.min)), int(info.max))
    elif values.dtype.kind in "fV":
        value = float(before)
        flat[place] = rng.choice((-value, value * 1.5, value + 0.1, 0.0))
    else:
        return None
    if np.array_equal(flat[place], before):
        return None
    after = flat[place]
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    readers = sorted({n.op_type for n in _nodes(model) if tensor.name in n.input})
    return f"constant of {'/'.join(readers)}: {before} to {after}"


def _transposed(model: onnx.ModelProto, rng: random.Random) -> str | None:
    """Transpose a square constant, or reverse an axis of one."""
    tensors = [t for t in model.graph.initializer if len(t.dims) and np.prod(t.dims) > 1]
    if not tensors:
        return None
    tensor = rng.choice(tensors)
    values = np.array(numpy_helper.to_array(tensor))
    turned = values.T if values.shape == values.T.shape and values.ndim > 1 else values[::-1]
    if np.array_equal(turned, values):
        return None
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(turned), tensor.name))
    readers = sorted({n.op_type for n in _nodes(model) if tensor.name in n.input})
    return f"constant of {'/'.join(readers)} turned"


def _left_out(model: onnx.ModelProto, rng: random.Random) -> str | None:
    """Let a node give what it reads."""
    nodes = [n for n in _nodes(model) if n.input and n.input[0] and n.op_type != "Identity"]
    if not nodes:
        return None
    node = rng.choice(nodes)
    before = node.op_type
    identity = helper.make_node("Identity", node.input[:1], node.output[:1], name=node.name)
    node.CopyFrom(identity)
    return f"{before} left out"


def _swapped(model: onnx.ModelProto, rng: random.Random) -> str | None:
    """Swap two inputs of a node."""
    nodes = [n for n in _nodes(model) if n.op_type in _SWAPPED and len(n.input) > 1]
    if not nodes:
        return None
    node = rng.choice(nodes)
    i, j = rng.sample(range(len(node.input)), 2)
    if node.input[i] == node.input[j]:
        return None
    node.input[i], node.input[j] = node.input[j], node.input[i]
    return f"inputs of {node.op_type} swapped"


def _rewired(model: onnx.ModelProto, rng: random.Random) -> str | None:
    """Read another value than before."""
    nodes = list(model.graph.node)
    number = rng.randrange(len(nodes)) if nodes else 0
    if not nodes or not nodes[number].input:
        return None
    known = [v.name for v in model.graph.input]
    known += [name for node in nodes[:number] for name in node.output if name]
    node = nodes[number]
    index = rng.randrange(len(node.input))
    other = rng.choice(known)
    if node.input[index] in ("", other):
        return None
    node.input[index] = other
    return f"input {index} of {node.op_type} is another value"


def _inserted(model: onnx.ModelProto, rng: random.Random) -> str | None:
    """Put a bound, a factor, a sign or a narrow type behind a value."""
    graph = model.graph
    places = [(n, i) for n in graph.node for i, name in enumerate(n.input) if name]
    if not places:
        return None
    node, index = rng.choice(places)
    name, made = node.input[index], "mutant"
    types = {v.name: v.type.tensor_type.elem_type for v in graph.input}
    with suppress(Exception):
        inferred = onnx.shape_inference.infer_shapes(model)
        types |= {
            v.name: v.type.tensor_type.elem_type
            for v in (*inferred.graph.value_info, *inferred.graph.output)
        }
    kind = types.get(name, 0)
    if kind not in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT16):
        return None
    narrow = {TensorProto.FLOAT: 10, TensorProto.INT64: 6, TensorProto.INT32: 5}.get(kind)
    what = rng.choice([*_INSERTED, "a narrow type"])
    if what == "a narrow type":
        if narrow is None:
            return None
        new = [
            helper.make_node("Cast", [name], [f"{made}.narrow"], to=narrow),
            helper.make_node("Cast", [f"{made}.narrow"], [made], to=kind),
        ]
    else:
        op_type, number = _INSERTED[what]
        inputs = [name]
        if number is not None:
            value = np.array(number).astype(helper.tensor_dtype_to_np_dtype(kind))
            if float(value) in (0.0, 1.0):
                return None
            graph.initializer.append(numpy_helper.from_array(value, f"{made}.number"))
            inputs.append(f"{made}.number")
        new = [helper.make_node(op_type, inputs, [made])]
    node.input[index] = made
    nodes = list(graph.node)
    at = nodes.index(node)
    nodes[at:at] = new
    del graph.node[:]
    graph.node.extend(nodes)
    return f"{what} before {node.op_type}"


_MUTATIONS: Sequence[Mutation] = (
    *(_attribute, _attribute, _default, _operator, _operator, _constant, _constant),
    *(_transposed, _left_out, _swapped, _rewired, _inserted, _inserted),
)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="random graphs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tries", type=int, default=6, help="mutants of each model")
    parser.add_argument("--decoders", action="store_true", help="exported decoders instead")
    parser.add_argument("--show", action="store_true", help="print models and inputs")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    begin = time.perf_counter()
    found = bases(arguments.count, arguments.seed)
    if arguments.decoders:
        found = islice(decoders(arguments.seed), arguments.count)
    for base in found:
        for survivor in survivors(base, arguments.seed, arguments.tries, counts):
            if survivor.found != "equal":
                continue
            classes[f"{survivor.kind} ({survivor.scale})"] += 1
            line = f"{survivor.base}: {survivor.kind}: {survivor.what} ({survivor.scale})"
            sys.stdout.write(f"{line}\n")
            if arguments.show:
                texts = [onnx.printer.to_text(model) for model in survivor.models]
                sys.stdout.write(f"{texts[0]}\n{texts[1]}\n{survivor.feeds}\n")
    for name, number in (*counts.most_common(), *classes.most_common()):
        sys.stdout.write(f"{number:6} {name}\n")
    sys.stdout.write(f"{time.perf_counter() - begin:.0f} s\n")


if __name__ == "__main__":
    main()
