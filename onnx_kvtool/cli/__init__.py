"""The command line: parse, call, render, exit.

Modules of this package import click and the standard library when they are loaded; what a command
needs beyond that, its callback imports.
"""

from __future__ import annotations

try:
    from onnx_kvtool.cli.app import app, main
except KeyboardInterrupt:  # while the command line itself is imported
    raise SystemExit(130) from None

__all__ = ["app", "main"]
