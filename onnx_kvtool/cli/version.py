"""`kvtool --version`, and with `--debug` what a report of a bug has to name."""

from __future__ import annotations

import platform
import sys

import click

from onnx_kvtool import __version__
from onnx_kvtool.cli.output import write_data

__all__ = ["show_version"]

_BASIS = ("onnx", "onnx-ir", "onnxruntime", "onnxscript", "numpy", "ml_dtypes", "click", "rich")


def show_version(context: click.Context, param: click.Parameter, asked: bool) -> None:
    """Print the version on a line of its own and exit, if that was asked for.

    After `--debug`, lines with the versions of Python, the platform and the libraries follow.
    """
    if not asked or context.resilient_parsing:
        return
    write_data(f"kvtool {__version__}")
    if context.params.get("debug"):
        write_data(f"python {platform.python_version()} on {sys.platform} {platform.machine()}")
        for name in _BASIS:
            write_data(f"{name} {_installed(name)}")
    context.exit()


def _installed(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"
