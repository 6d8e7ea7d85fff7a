"""The report formats of `kvtool check`."""
