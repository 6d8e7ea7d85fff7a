"""What the commands that write a model refuse before anything is read."""

from __future__ import annotations

from typing import Any

from onnx_kvtool.cli.output import refuse_stdout
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.files.places import check_result
from onnx_kvtool.core.machine import check_verified

__all__ = ["refuse_nonsense"]


def refuse_nonsense(options: dict[str, Any], output_format: str) -> None:
    """Refuse options that contradict each other, and paths that cannot be meant.

    Raises:
        KvtoolError: Before anything is read, and before the libraries that reading needs.
    """
    output = options["output"] or ("-" if options["model"] == "-" else None)
    to_stdout = output == "-" and not options["dry_run"]
    for wrong, message, help in (
        (
            options["in_place"] and options["model"] == "-",
            "`--in-place` needs a file, got standard input",
            "give the result a name with `-o OUT`",
        ),
        (
            options["in_place"] and options["output"] is not None,
            "`--in-place` and `-o` exclude each other",
            "leave one of them out",
        ),
        (
            output == "-" and options["external_data"] is not None,
            "`--external-data` places files beside the output, and standard output has no place",
            "write the model to a file with `-o OUT`",
        ),
    ):
        if wrong:
            raise UsageError(message, help=help)
    check_verified(options["verify"], options)
    if to_stdout:
        refuse_stdout(output_format)
    check_result(
        options["model"],
        options["output"],
        in_place=options["in_place"],
        dry_run=options["dry_run"],
    )
