"""Rewrites of whole models: lowering, and the proof that a rewrite changed nothing."""
