"""Top-level package of the glue-watermarks distribution."""

from pkgutil import extend_path

# A job's own repository often has a package `scripts`, too: with this, Python looks for modules in both.
__path__ = extend_path(__path__, __name__)
