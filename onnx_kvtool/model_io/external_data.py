"""External data: the files that a model refers to, and whether kvtool may read them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.choices import ExternalData
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.errors import CodedError, UnreadableModel
from onnx_kvtool.core.storage import stored_bytes, tensor_bytes
from onnx_kvtool.core.words import counted
from onnx_kvtool.model_io.places import is_inside, place_files
from onnx_kvtool.model_io.remote import is_remote, local_directory

# Whether a reference to external data is allowed, and whether the bytes exist.


_DRIVE = re.compile(r"[A-Za-z]:")
_PARTS = re.compile(r"[/\\]")
_HUB_REPOSITORIES = ("models--", "datasets--", "spaces--")
_MAX_BYTES = 2**63 - 1


class Problem(CodedError):
    """Why a reference is refused.

    Attributes:
        code: `external-escape`, `external-file`, `external-missing`, `external-range`,
            `external-length` or `external-type`.
    """


class ReferenceJudge:
    """Judges the external tensors of one model; each file is looked at once.

    Args:
        need_bytes: Whether a data file that is missing is a problem. One that is there has to be
            long enough in any case: a reference past its end is broken or hostile.
    """

    def __init__(self, *, need_bytes: bool) -> None:
        self._need_bytes = need_bytes
        self._files: dict[tuple[str, str], Problem | int | None] = {}

    def judge(self, tensor: ir.ExternalTensor) -> Problem | None:
        """Return the first problem of one reference; None when there is none."""
        try:
            self._demand(tensor)
        except Problem as problem:
            return problem
        return None

    def _demand(self, tensor: ir.ExternalTensor) -> None:
        location, base = os.fspath(tensor.location), os.fspath(tensor.base_dir) or "."
        _demand_relative(location)
        size = _claimed_bytes(tensor)
        if is_remote(base):
            local = local_directory(base)
            if local is None:
                return  # it stays below the prefix of the model, and is not looked for
            base = local
        # Looked up by spelling, as thousands of tensors share one file.
        key = (base, location)
        if key not in self._files:
            self._files[key] = _look(base, location)
        file = self._files[key]
        if isinstance(file, Problem):
            raise file.with_traceback(None)  # many tensors may share it
        if file is None:
            if not self._need_bytes:
                return
            raise Problem(
                "external-missing",
                f"its data file `{location}` is not in `{base}`",
                "put the data file beside the model, or run `git lfs pull` in its repository",
            )
        offset = tensor.offset or 0
        if offset + size > file:
            raise Problem(
                "external-range",
                f"bytes {offset:,} to {offset + size:,} of `{location}` are needed, "
                f"and the file has {file:,}",
                "copy or download the data file again",
            )


def _escape(message: str) -> Problem:
    remedy = "keep the data file in the directory of the model, as a plain relative name"
    return Problem("external-escape", message, remedy)


def _demand_relative(location: str) -> None:
    """Judge a location by the rules of all systems, because models travel."""
    if not location:
        raise _escape("its external data names no file")
    if "\0" in location:
        raise Problem("external-escape", f"its data location `{location}` has a null character")
    if location[0] in "/\\" or _DRIVE.match(location):
        raise _escape(f"its data location `{location}` is absolute, not relative to the model")
    if "::" in location or "://" in location:
        raise _escape(
            f"its data location `{location}` is a URL or a part of one, not a relative path"
        )
    depth = 0
    for part in _PARTS.split(location):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            raise _escape(f"its data location `{location}` leaves the directory of the model")


def _claimed_bytes(tensor: ir.ExternalTensor) -> int:
    """Return the bytes of shape and type, if nothing contradicts them."""
    dims = [dim if isinstance(dim, int) else -1 for dim in tensor.shape]
    try:
        size = stored_bytes(dims, int(tensor.dtype))
    except ValueError as flaw:
        raise Problem("external-length", f"its shape is {dims[:8]}, but {flaw}") from flaw
    if size is None:
        raise Problem("external-type", f"elements of type {tensor.dtype} cannot be external")
    offset, length = tensor.offset or 0, tensor.length
    if offset < 0 or (length is not None and length < 0):
        what = f"offset {offset}" if offset < 0 else f"length {length}"
        raise Problem("external-range", f"the {what} of its data is negative")
    if offset + size > _MAX_BYTES:
        raise Problem(
            "external-range", f"the offset {offset} of its data is beyond the limit of any file"
        )
    if length is not None and length != size:
        raise Problem(
            "external-length",
            f"its data has {counted(length, 'byte')}, but {tensor.dtype} of shape {dims[:8]} "
            f"takes {size:,}",
        )
    return size


def _look(base: str, location: str) -> Problem | int | None:
    """Return what is wrong with the data file, or its size in bytes; None if it is missing."""
    path = os.path.join(base, location)
    try:
        real = os.path.realpath(path)
        if not (is_inside(real, os.path.realpath(base)) or _in_hub_cache(real, base)):
            return _escape(
                f"its data file `{location}` is a link to `{real}`, outside the directory "
                "of the model"
            )
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return Problem("external-file", f"its data file `{location}`: {error.strerror or error}")
    if not stat.S_ISREG(status.st_mode):
        return Problem("external-file", f"its data file `{location}` is not a regular file")
    return status.st_size


def _in_hub_cache(real: str, base: str) -> bool:
    """Return whether a link stays in the cache of one repository of the Hugging Face hub.

    There `models--<owner>--<name>/snapshots/<revision>/...` holds links into `blobs` beside it.
    """
    directory = os.path.realpath(base)
    while (parent := os.path.dirname(directory)) != directory:
        repository = os.path.dirname(parent)
        if os.path.basename(parent) == "snapshots":
            is_hub = os.path.basename(repository).startswith(_HUB_REPOSITORIES)
            return is_hub and os.path.dirname(real) == os.path.join(repository, "blobs")
        directory = parent
    return False


# External data: the files of a model, whether kvtool may read them, and placing them.


@dataclass(frozen=True, slots=True)
class ExternalFile:
    """A file with data of a model.

    Attributes:
        location: Where it is, relative to the model, as the model spells it.
        path: Where it is, absolute; links are not resolved, and it may not exist.
        tensors: Names of the tensors whose data it holds, in the order of the model; a tensor in
            an attribute without a name of its own goes by the attribute's.
        nbytes: Bytes that these tensors take together.
    """

    location: str
    path: str
    tensors: tuple[str, ...]
    nbytes: int


def external_files(model: ir.Model) -> list[ExternalFile]:
    """Return the data files of all graphs, sub-graphs, attributes and functions of `model`.

    No file is looked at and no value is touched. One file spelled in two ways is two lines.
    """
    names: dict[tuple[str, str], list[str]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for place, tensor in _external(model):
        location = os.fspath(tensor.location)
        key = (location, os.path.abspath(os.path.join(tensor.base_dir, location)))
        names.setdefault(key, []).append(tensor.name or place.value or "")
        sizes[key] = sizes.get(key, 0) + tensor_bytes(tensor)
    return [ExternalFile(*key, tuple(names[key]), sizes[key]) for key in names]


def check_external_data(model: ir.Model, *, need_bytes: bool) -> None:
    """Refuse a model whose external data cannot be trusted or, if needed, is not there.

    A location must be relative and stay in the model's directory, by the rules of POSIX and of
    Windows, whatever the system. It must name a regular file whose real path stays there, too.
    Links in a snapshot of the Hugging Face hub's cache may lead to the `blobs` of the same
    repository. Offsets and lengths must not be negative, and a length must be what shape and type
    take (4-bit and other small elements packed).

    Args:
        model: The model; its values are not touched.
        need_bytes: Whether each file must also exist. One that does must reach as far as its
            tensors in any case.

    Raises:
        UnreadableModel: For the first reference that fails; the text names tensor and location.
    """
    judge = ReferenceJudge(need_bytes=need_bytes)
    for place, tensor in _external(model):
        if problem := judge.judge(tensor):
            raise UnreadableModel(f"{place}: {problem.message}", help=problem.help)


def reread(
    tensor: ir.TensorProtocol, dtype: ir.DataType, dims: tuple[int, ...], name: str = ""
) -> ir.TensorProtocol:
    """Return a tensor with the bytes of another one; those of an external one stay in their file.

    The elements of `dtype` have 8 or 4 bits. The shape takes as many bytes as the other tensor.
    """
    if isinstance(tensor, ir.ExternalTensor):
        made = ir.ExternalTensor(
            tensor.location,
            tensor.offset,
            tensor.length,
            dtype,
            shape=ir.Shape(dims),
            name=name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
            base_dir=tensor.base_dir,
        )
        made.meta.update(tensor.meta)
        return made
    stored = np.frombuffer(tensor.tobytes(), np.uint8)
    if dtype.bitwidth == 4:
        return ir.PackedTensor(stored, dtype, shape=ir.Shape(dims), name=name)
    return ir.Tensor(stored.reshape(dims), name=name)


def array(tensor: ir.TensorProtocol) -> np.ndarray[Any, Any]:
    """Return the values of a tensor, those of an external one mapped from its file.

    `onnx_ir` refuses data files that are hard links or lie in the hub's cache; this reads every
    file that `check_external_data` accepts.

    Raises:
        UnreadableModel: If the tensor is external and fails that check, or its data does not fit
            its shape.
        KvtoolError: If it is a sparse initializer, whose values are not read.
    """
    if any(size < 0 for size in tensor.shape.numpy()):  # numpy would compute a size of -1
        raise UnreadableModel(f"`{tensor.name}` has shape {tensor.shape}, which is negative")
    if isinstance(tensor, ir.ExternalTensor):
        if problem := ReferenceJudge(need_bytes=True).judge(tensor):
            raise UnreadableModel(f"`{tensor.name}`: {problem.message}", help=problem.help)
        # Absolute and without a base directory: onnx_ir leaves the judging to its caller.
        tensor = ir.ExternalTensor(
            os.path.realpath(tensor.path),
            tensor.offset,
            tensor.length,
            tensor.dtype,
            shape=tensor.shape,
            name=tensor.name,
        )
    try:
        return tensor.numpy()
    except (ValueError, TypeError, AssertionError, OSError) as error:
        raise UnreadableModel(f"the values of `{tensor.name}` cannot be read: {error}") from error


def place_external_data(
    model: ir.Model,
    target_dir: str | os.PathLike[str],
    how: ExternalData | None,
    then: Callable[[], None] | None = None,
    is_done: Callable[[], bool] | None = None,
) -> list[str]:
    """Make the data files of `model` reachable from a model file written in `target_dir`.

    A file that is already where the output expects it is left alone, whatever `how` is; so is
    one with the same content. What `onnx.load` 1.23.2, `onnx_ir` 1.1.0 and onnxruntime 1.31.1
    accept, as observed:

    ===============================  =========  ===========  ===========
    the data file                    onnx.load  onnx_ir      onnxruntime
    ===============================  =========  ===========  ===========
    is a copy                        loads      loads        loads
    has another hard link            refuses    refuses      loads
    is a symbolic link inside        refuses    loads        loads
    is a symbolic link to outside    refuses    refuses      refuses
    in a hub snapshot links to blobs refuses    refuses      loads
    ===============================  =========  ===========  ===========

    So `None` copies. A hard link saves the space, and makes onnx refuse the source as well.

    Args:
        model: The model that is written, with its external tensors still at their source.
        target_dir: Directory of the output; it exists.
        how: `reference` to leave the files where they are, `link` for hard links, `copy` for
            copies with their holes, None for the form that every reader accepts.
        then: Writes the model, with the files in place; None to leave that for later.
        is_done: Whether the model is written, asked when `then` is interrupted: one that is there
            keeps its files. None to take them away in any case.

    Returns:
        Notes for people, one per file that was placed.

    Raises:
        UsageError: If `how` is `reference` and the output stands in another directory, as a
            location cannot leave the directory of its model.
        UnreadableModel: If a file that has to be placed fails `check_external_data`.
        KvtoolError: If another file is in the way, or the system refuses; what was placed by this
            call is removed again, also when `then` raises.
    """
    directory = os.fspath(target_dir) or os.curdir
    files = [(file.location, file.path) for file in external_files(model)]
    return place_files(
        files, directory, how, lambda: check_external_data(model, need_bytes=True), then, is_done
    )


def _external(model: ir.Model) -> Iterator[tuple[Location, ir.ExternalTensor]]:
    for place, tensor in walk.tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            yield place, tensor
