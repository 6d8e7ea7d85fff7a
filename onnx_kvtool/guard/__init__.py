"""Faults of other libraries, one file each, so that each can be deleted one day; see `table`."""
