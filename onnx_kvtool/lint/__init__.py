"""Linting: rules that look at a model without running it, and the findings they make."""
