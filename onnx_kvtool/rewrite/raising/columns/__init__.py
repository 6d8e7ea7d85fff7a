"""Values that are as long as the rows in use of a cache, made as long as the cache."""
