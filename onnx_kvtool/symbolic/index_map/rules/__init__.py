"""What the output of each operator holds, given what its inputs hold."""
