"""What is known of a fault in another library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that kvtool works around.

    When the library no longer has it, and no release that has it is supported, the file that works
    around it goes, and its line in `onnx_kvtool.guard.table` with it.

    Attributes:
        library: The distribution that has it.
        seen: The releases that showed it; it may be older, and may still be there.
        what: What the library does, a clause that follows its name.
        instead: What kvtool does about it, a clause that follows `kvtool`.
        issue: The upstream issue, `owner/repository#number`; None where none is known.
    """

    library: Literal["onnx", "onnx-ir", "onnxruntime"]
    seen: str
    what: str
    instead: str
    issue: str | None = None
