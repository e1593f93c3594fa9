"""Top-level package of the glue-watermarks distribution."""
