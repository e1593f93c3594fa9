"""The command line `watermarks`: look, understand, repair."""
