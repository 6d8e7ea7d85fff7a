"""onnx_ir's import of sympy, put off until something computes with its sizes.

This module imports nothing, so that what only prints may import it; what is known of the fault
stands in `table`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


_LATE = ("sympy", "onnx_ir._symbolic_shapes")
"""What is imported late: sympy, and the one module that asks it for something when it is loaded."""


def put_off() -> None:
    """Make imports of sympy wait for its first use in this process.

    For processes that belong to kvtool: it changes what `import sympy` does for all that runs in
    them. Before Python 3.12 two threads must not make that first use at the same time; kvtool makes
    none, since it adds and multiplies sizes itself (`onnx_kvtool.symbolic`).
    """
    if _Late not in sys.meta_path:
        sys.meta_path.insert(0, _Late)


class _Late:
    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return how to import one of `_LATE` late; None leaves it to the other finders."""
        if fullname not in _LATE:
            return None
        from importlib.machinery import PathFinder
        from importlib.util import LazyLoader

        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec
