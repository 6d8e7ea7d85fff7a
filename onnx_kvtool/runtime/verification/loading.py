"""Why runtimes do not load two models, and whether that is a difference."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.runtime.errors import ModelRejected, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import RuntimeName
from onnx_kvtool.runtime.verification.settings import Settings
from onnx_kvtool.runtime.verification.subject import Subject

__all__ = ["reasons_of", "refusal", "rejected_of"]


def refusal(subject: Subject, runtime: RuntimeName) -> RuntimeUnavailable | None:
    """Return why `runtime` does not load a model; None if it does."""
    try:
        subject.session(runtime)
    except RuntimeUnavailable as error:
        return error
    return None


def reasons_of(
    subjects: Sequence[Subject], refusals: Sequence[RuntimeUnavailable | None]
) -> list[str]:
    """Return the messages of `refusals`; whose they are is said unless it is the same for both."""
    messages = [None if error is None else error.message for error in refusals]
    if messages[0] is not None and messages[0] == messages[1]:
        return [messages[0]]
    pairs = zip(subjects, messages, strict=True)
    return [f"{subject.name}: {message}" for subject, message in pairs if message is not None]


def rejected_of(
    refusals: Sequence[RuntimeUnavailable | None], settings: Settings
) -> RuntimeUnavailable | None:
    """Return what breaks the specification in one model while the other is loaded, if it does."""
    a, b = refusals
    if a is None and isinstance(b, ModelRejected):
        return b
    return a if b is None and isinstance(a, ModelRejected) and not settings.is_a_right else None
