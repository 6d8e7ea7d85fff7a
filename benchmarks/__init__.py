"""Reproducible scripts that print ratios."""
