"""Whether a reference to external data stays where it may, and whether the bytes are there."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.core.files.places import is_inside
from onnx_kvtool.core.files.remote import is_remote, local_directory
from onnx_kvtool.core.storage import stored_bytes
from onnx_kvtool.core.words import counted

__all__ = ["Problem", "ReferenceJudge"]

_SHARED_REMEDY = "keep the data file in the directory of the model, as a plain relative name"
_DRIVE = re.compile(r"[A-Za-z]:")
_PARTS = re.compile(r"[/\\]")
_HUB_REPOSITORIES = ("models--", "datasets--", "spaces--")
_MAX_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a reference is refused.

    Attributes:
        code: `external-escape`, `external-file`, `external-missing`, `external-range`,
            `external-length` or `external-type`.
        message: What is wrong, got and expected.
        help: What to do about it.
    """

    code: str
    message: str
    help: str | None = None


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
        location, base = os.fspath(tensor.location), os.fspath(tensor.base_dir) or "."
        if problem := _location_problem(location):
            return problem
        size, problem = _claimed_bytes(tensor)
        if problem:
            return problem
        if is_remote(base):
            local = local_directory(base)
            if local is None:
                return None  # it stays below the prefix of the model, and is not looked for
            base = local
        # Looked up by spelling, as thousands of tensors share one file.
        key = (base, location)
        if key not in self._files:
            self._files[key] = _look(base, location)
        file = self._files[key]
        if isinstance(file, Problem):
            return file
        if file is None:
            if not self._need_bytes:
                return None
            return Problem(
                "external-missing",
                f"its data file `{location}` is not in `{base}`",
                "put the data file beside the model, or run `git lfs pull` in its repository",
            )
        offset = tensor.offset or 0
        if offset + size > file:
            return Problem(
                "external-range",
                f"bytes {offset:,} to {offset + size:,} of `{location}` are needed, "
                f"and the file has {file:,}",
                "copy or download the data file again",
            )
        return None


def _location_problem(location: str) -> Problem | None:
    """Judge the text of a location by the rules of all systems, as models travel."""
    if not location:
        return Problem("external-escape", "its external data names no file", _SHARED_REMEDY)
    if "\0" in location:
        return Problem("external-escape", f"its data location `{location}` holds a null character")
    if location[0] in "/\\" or _DRIVE.match(location):
        return Problem(
            "external-escape",
            f"its data location `{location}` is absolute, not relative to the model",
            _SHARED_REMEDY,
        )
    if "::" in location or "://" in location:
        return Problem(
            "external-escape",
            f"its data location `{location}` is a URL or a part of one, not a relative path",
            _SHARED_REMEDY,
        )
    depth = 0
    for part in _PARTS.split(location):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return Problem(
                "external-escape",
                f"its data location `{location}` leaves the directory of the model",
                _SHARED_REMEDY,
            )
    return None


def _claimed_bytes(tensor: ir.ExternalTensor) -> tuple[int, Problem | None]:
    """Return the bytes that shape and type take, and what does not fit them."""
    dims = [dim if isinstance(dim, int) else -1 for dim in tensor.shape]
    try:
        size = stored_bytes(dims, int(tensor.dtype))
    except ValueError as flaw:
        return 0, Problem("external-length", f"its shape is {dims[:8]}, but {flaw}")
    if size is None:
        return 0, Problem("external-type", f"elements of type {tensor.dtype} cannot be external")
    offset, length = tensor.offset or 0, tensor.length
    if offset < 0 or (length is not None and length < 0):
        what = f"offset {offset}" if offset < 0 else f"length {length}"
        return 0, Problem("external-range", f"the {what} of its data is negative")
    if offset + size > _MAX_BYTES:
        return 0, Problem("external-range", f"the offset {offset} of its data is absurd")
    if length is not None and length != size:
        return 0, Problem(
            "external-length",
            f"its data has {counted(length, 'byte')}, but {tensor.dtype} of shape {dims[:8]} "
            f"takes {size:,}",
        )
    return size, None


def _look(base: str, location: str) -> Problem | int | None:
    """Return the size of the data file in bytes, None when it is missing, or what it is not."""
    path = os.path.join(base, location)
    try:
        real = os.path.realpath(path)
        allowed = is_inside(real, os.path.realpath(base)) or _in_hub_cache(real, base)
        if not allowed:
            return Problem(
                "external-escape",
                f"its data file `{location}` is a link to `{real}`, outside the directory "
                "of the model",
                _SHARED_REMEDY,
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
