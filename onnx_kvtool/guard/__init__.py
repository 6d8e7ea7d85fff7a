"""Faults of other libraries, each with its guard, so that both can be deleted one day."""
