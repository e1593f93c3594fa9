"""One contract for reading: small files, the rows that they hold, and every way to read them."""
