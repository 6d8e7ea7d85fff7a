"""What verification may take."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.quantity import binary_bytes, bytes_of

__all__ = ["Budget", "check_verified"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory and time that comparing two models may take, about.

    Attributes:
        memory: Bytes for both models and all they read and give.
        seconds: Time after which no further case is begun.
    """

    memory: int = 256 << 20
    seconds: float = 5.0

    @staticmethod
    def parse(text: str | None) -> Budget:
        """Return what a text such as `1GiB`, `30s` or `1GiB,30s` allows; the default for the rest.

        Raises:
            UsageError: If the text is of another form, or allows nothing.
        """
        memory, seconds = Budget().memory, Budget().seconds
        for part in [] if text is None else text.split(","):
            time = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min)\s*", part)
            size = None if time else bytes_of(part)
            if time:
                seconds = float(time[1]) * (60 if time[2] == "min" else 1)
            elif size:
                memory = size
            else:
                seconds = math.nan
            if not seconds > 0:
                raise UsageError(
                    f"the budget of verification is `{text}`, "
                    "expected memory, time or both, such as `1GiB`, `30s` or `1GiB,30s`"
                )
        return Budget(memory, seconds)

    def __str__(self) -> str:
        return f"{binary_bytes(self.memory)} and {self.seconds:g} s"


_NEED_VERIFICATION = ("verify_steps", "verify_budget", "thorough", "strict")


def check_verified(verify: bool | None, asked: Mapping[str, Any]) -> None:
    """Refuse arguments about a verification that is switched off.

    Args:
        verify: False where it is switched off.
        asked: What was asked for, by name.

    Raises:
        UsageError: For the first of these that means nothing without verification.
    """
    for name in _NEED_VERIFICATION if verify is False else ():
        if asked[name] is not None and asked[name] is not False:
            flag = name.replace("_", "-")
            raise UsageError(
                f"`--{flag}` needs verification, which `--no-verify` switches off",
                help="leave one of them out",
            )
