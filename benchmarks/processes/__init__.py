"""Commands as whole processes: what a user waits for, and how much memory it takes."""
