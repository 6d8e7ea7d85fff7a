"""Decoders driven as a host drives them: tokens in, tokens out, caches where they lie."""

from __future__ import annotations
