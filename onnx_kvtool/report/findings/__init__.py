"""The formats in which `kvtool check` reports, one file each."""
