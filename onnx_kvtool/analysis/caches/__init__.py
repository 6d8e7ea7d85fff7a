"""The caches of a model: which inputs they are, what updates them, and what they cost."""

from __future__ import annotations

from onnx_kvtool.analysis.caches.cache import Cache, CacheKind, InPlace
from onnx_kvtool.analysis.caches.find import find_caches

__all__ = ["Cache", "CacheKind", "InPlace", "find_caches"]
