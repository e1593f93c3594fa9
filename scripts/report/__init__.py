"""Write one HTML page about all jobs to a file."""

from importlib.util import find_spec

from scripts.helpers.errors import ConfigurationError

if find_spec("jinja2") is None:
    raise ConfigurationError("The page needs Jinja2. Install it: pip install Jinja2.")

from scripts.report.page import build_report

__all__ = ["build_report"]
