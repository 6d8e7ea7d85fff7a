"""The files and rules to check, and the known or suppressed findings."""
