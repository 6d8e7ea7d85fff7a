"""Reading and writing models, which remember where they came from."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import onnx
import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.errors import (
    KvtoolError,
    MalformedModel,
    UnreadableModel,
    UnwritableOutput,
    UsageError,
)
from onnx_kvtool.core.machine import collector_paused
from onnx_kvtool.core.storage import MAX_MESSAGE_BYTES, put_back, tensor_bytes
from onnx_kvtool.model_io import message as carried
from onnx_kvtool.model_io.atomic import Stamp, stamp, watch, write_bytes
from onnx_kvtool.model_io.container import judge
from onnx_kvtool.model_io.external_data import external_files
from onnx_kvtool.model_io.message import MessageWriter
from onnx_kvtool.model_io.places import is_same, spoken_name
from onnx_kvtool.model_io.protobuf import EncodeError
from onnx_kvtool.model_io.remote import RemoteFile, is_remote, prefix, shown
from onnx_kvtool.model_io.skeleton import skeleton
from onnx_kvtool.model_io.source import EXTERNAL, parse, read_bytes

_KEY = "onnx_kvtool.origin"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model came from, and its defects there.

    Attributes:
        path: Path as given; `-` for standard input, "" for a model in memory.
        directory: Absolute directory that its external data is relative to; "" in memory.
        defects: What onnx_ir repairs, merges or drops in silence, and what makes an edit unsafe.
            A model with an error here must not be rewritten.
        training: Training information, unchanged. It names values of the graph, so that an edit may
            make it wrong.
        described: Names of initializers that `value_info` of the file repeats.
        stamp: Stamp of the file when it was read; it tells whether the file has changed since.
        made: What functions made of the model in memory, such as `lowered`.
    """

    path: str
    directory: str
    defects: tuple[Diagnostic, ...]
    training: tuple[onnx.TrainingInfoProto, ...] = field(default=(), repr=False)
    described: frozenset[str] = field(default=frozenset(), repr=False)
    stamp: Stamp | None = field(default=None, repr=False, compare=False)
    made: tuple[str, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """What reports call the model: its path, and what was made of it in memory."""
        made = f"({', '.join(self.made)})" if self.made else ""
        return f"{self.path} {made}".strip()


def origin(model: ir.Model) -> Origin:
    """Return where `model` came from; `Origin("", "", ())` for one made in memory."""
    found = model.meta.get(_KEY)
    return found if isinstance(found, Origin) else Origin("", "", ())


def set_origin(model: ir.Model, known: Origin) -> None:
    """Set the origin of a model."""
    model.meta[_KEY] = known


def note_made(model: ir.Model, how: str) -> None:
    """Add to the name of a result in memory how it was made."""
    known = origin(model)
    set_origin(model, replace(known, made=(*known.made, how)))


def settle(model: ir.Model, code: str, places: Iterable[Location]) -> None:
    """Remove the defects of one code at some places: the model no longer has them."""
    known = origin(model)
    gone = {(code, place) for place in places}
    left = tuple(d for d in known.defects if (d.code, d.location) not in gone)
    model.meta[_KEY] = replace(known, defects=left)


_UNCOPIABLE = ("undefined-input", "undefined-output", "unsorted-nodes")


def load(source: str | os.PathLike[str]) -> ir.Model:
    """Read a model without its external data.

    External tensors stay on disk and are mapped into memory when their values are read. kvtool
    first checks that they lie in the directory of the model and have the length that they claim. An
    opset import of `ai.onnx` becomes one of "", the other spelling of the same domain. Content that
    onnx_ir does not support (sparse initializers and attributes, types such as maps, training
    information) is kept beside the model, and the commands write it again.

    Args:
        source: Path of the model, or `-` for standard input, whose external data is then relative
            to the current directory; or a URL that fsspec opens. Of that, weights from 1 MiB on are
            fetched when their values are asked for, and external data is not looked for.

    Returns:
        The model, which remembers its path.

    Raises:
        UsageError: If `source` is no path.
        UnreadableModel: If the file cannot be read, is no ONNX model, is larger than a protobuf
            message can be, or has content without a meaning.

    Examples:
        >>> model = kv.load("decoder.onnx")
        >>> model.opset_imports[""], len(model.graph.inputs)
        (24, 8)
    """
    path = path_text(source)
    if is_remote(path):
        with collector_paused():
            return _remote_model(path)
    directory = os.getcwd() if path == "-" else os.path.dirname(os.path.abspath(path))
    with collector_paused():
        before = None if path == "-" else stamp(path)
        name = spoken_name(path)
        model = from_message(parse(read_bytes(path), name), path, name, directory)
        set_origin(model, replace(origin(model), stamp=before))
        return model


read = load
"""As commands call it; to Python it is `kv.load`."""


def _remote_model(url: str) -> ir.Model:
    with contextlib.closing(RemoteFile(url)) as file:
        found = skeleton(file)
    message = parse(found.data, file.name)
    model = from_message(message, shown(url), file.name, prefix(url))
    put_back(model, found.mark, lambda number, like: _fetched(like, url, *found.places[number]))
    return model


def _fetched(like: ir.TensorProtocol, url: str, start: int, end: int) -> ir.TensorProtocol:
    """Return a tensor whose values are fetched each time they are asked for."""

    def fetch() -> ir.TensorProtocol:
        with contextlib.closing(RemoteFile(url)) as file:
            data = b"".join(file.pieces(start, end))
        message = onnx.TensorProto(
            name=like.name, data_type=int(like.dtype), dims=like.shape.numpy(), raw_data=data
        )
        return ir.TensorProtoTensor(message)

    return ir.LazyTensor(
        fetch,
        like.dtype,
        ir.Shape(like.shape.numpy()),
        name=like.name,
        doc_string=like.doc_string,
        metadata_props=dict(like.metadata_props),
    )


def path_text(source: str | os.PathLike[str]) -> str:
    """Return a path as text.

    Raises:
        UsageError: If it is no path: bytes, a number, a graph, ...
    """
    given: object = source  # a caller may give what its type checker would not let it
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else given
    if isinstance(path, str):
        return path
    got = f"{type(source).__module__}.{type(source).__qualname__}".removeprefix("builtins.")
    raise UsageError(
        f"a model is a path, an `onnx.ModelProto` or an `onnx_ir.Model`, got an object of `{got}`",
        help="read a model from bytes with `onnx.load_from_string`"
        if isinstance(source, bytes | bytearray | memoryview)
        else None,
    )


def deserialize(data: bytes, directory: str = "") -> ir.Model:
    """Return the model whose file has the bytes `data`, as `read` does.

    Locations of external data start at `directory`, or at the current one.

    Raises:
        UnreadableModel: As `read`.
    """
    with collector_paused():
        return from_message(parse(data, "the model"), "", "the model", directory)


def from_message(message: onnx.ModelProto, path: str, name: str, directory: str) -> ir.Model:
    """Return the model that a message holds, as `read` does; the message is used up.

    Raises:
        UnreadableModel: As `read`.
    """
    try:
        found = judge(message)
        hidden = carried.hide(found)
        # onnx_ir spells the domain of nodes "" and leaves imports alone: neither would find the
        # other.
        for imports in (message.opset_import, *(f.opset_import for f in message.functions)):
            for entry in imports:
                if entry.domain in DEFAULT_DOMAINS:
                    entry.domain = ""
        with _quiet():
            model = ir.serde.deserialize_model(message)
        carried.restore(model, hidden)
    except ir.serde.SerdeError as error:
        raise UnreadableModel(
            f"{name}: onnx_ir cannot represent the model: {reason(error)}",
            help="report this model; other tools may be able to repair it",
        ) from error
    except UnreadableModel as error:
        raise type(error)(f"{name}: {error.message}", help=error.help) from error
    except UnicodeDecodeError as error:
        raise MalformedModel(f"{name}contains text that is not UTF-8") from error
    # `onnx_ir.external_data.set_base_dir` leaves out functions.
    stored = (value.const_value for value in model.graph.initializers.values())
    everywhere = (tensor for _, tensor in walk.tensors(model))
    for tensor in everywhere if found.hidden_external else stored:
        if isinstance(tensor, ir.ExternalTensor):
            tensor.base_dir = directory
    known = Origin(
        path,
        directory,
        tuple(found.defects),
        tuple(message.training_info),
        frozenset(found.described),
    )
    set_origin(model, known)
    return model


def clone(model: ir.Model) -> ir.Model:
    """Return a copy whose graphs can be edited; tensors and the origin are shared.

    Raises:
        KvtoolError: If a node reads a value that nothing produces, or that a later node produces,
            which onnx_ir cannot copy.
    """
    try:
        with collector_paused():
            copy = model.clone()
    except (RuntimeError, KeyError, ValueError) as error:
        errors = [d for d in origin(model).defects if d.code in _UNCOPIABLE]
        why = f"{errors[0].location}: {errors[0].message}" if errors else reason(error)
        raise KvtoolError(f"the model cannot be copied: {why}") from error
    copy.meta.update(model.meta)
    return copy


def serialize(model: ir.Model) -> bytes:
    """Return the bytes of a model file, with everything that `read` carried.

    Equal models give equal bytes. External tensors are written as references; no file is opened.

    Raises:
        KvtoolError: If the message would be larger than 2**31 - 1 bytes, or the model holds
            something that has no written form, such as a value without a name.
    """
    values = (v for _, graph in walk.graphs(model) for v in graph.initializers.values())
    inline = (v.const_value for v in values if not isinstance(v.const_value, ir.ExternalTensor))
    # Asked before a message is built, which would take the same space once more.
    if sum(tensor_bytes(tensor) for tensor in inline if tensor is not None) > MAX_MESSAGE_BYTES:
        raise _too_large()
    known = origin(model)
    try:
        with collector_paused():
            message = MessageWriter(known.described).model(model)
        message.training_info.extend(known.training)
        data: bytes = message.SerializeToString(deterministic=True)
    except EncodeError as error:
        if message.ByteSize() > MAX_MESSAGE_BYTES:
            raise _too_large() from error
        # protobuf has no other words for it
        raise MemoryError("there is no memory for the bytes of the model") from error
    except (ir.serde.SerdeError, TypeError, ValueError) as error:
        raise KvtoolError(f"the model cannot be written: {reason(error)}") from error
    if len(data) > MAX_MESSAGE_BYTES:
        raise _too_large()
    return data


def write(model: ir.Model, target: str | os.PathLike[str], *, data: bytes | None = None) -> None:
    """Write a model file, atomically; its external data is not moved.

    Args:
        model: The model.
        target: Path of the file, or `-` for standard output. An existing file is replaced and
            keeps its permissions; a symbolic link is followed.
        data: What `serialize` returned for this model, if it was called already.

    Raises:
        UsageError: If `target` is a data file of the model.
        KvtoolError: If the model has no written form, the system refuses, or `target` is where the
            model was read and has changed since; then it is untouched and nothing is left.
    """
    path = os.fspath(target)
    for file in external_files(model) if path != "-" else ():
        if is_same(file.path, path):
            raise UsageError(
                f"`{path}` contains the weights of the model, which would be overwritten",
                help="name another file for the output",
            )
    if data is None:
        data = serialize(model)
    if path != "-":
        known = origin(model)
        if not known.path or os.path.realpath(known.path) != os.path.realpath(path):
            write_bytes(path, data)
            return
        write_bytes(path, data, expected=known.stamp)
        set_origin(model, replace(known, stamp=stamp(path)))  # what is there now is this model
        return
    watch("standard output", is_direct=True)
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        raise UnwritableOutput(f"cannot write to standard output: {error.strerror}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep onnx_ir from logging what `judge` has found already."""
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _too_large() -> KvtoolError:
    return KvtoolError(
        "the model is larger than 2 GiB, which no protobuf message can be", help=EXTERNAL
    )


def reason(error: BaseException) -> str:
    """Return what went wrong first, in one line."""
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    return " ".join(str(error).split())[:300] or type(error).__name__
