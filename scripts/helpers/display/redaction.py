"""Removal of passwords, keys and tokens from log lines: at DEBUG, py4j and botocore log everything that they send.

py4j logs each call to the JVM with its arguments, including every option of a JDBC reader. botocore logs headers,
bodies and answers. Neither redacts anything. A logged password stays in CloudWatch for the log group's retention time.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

HIDDEN = "***"
"""The text that replaces a secret."""
PACKAGES = ("py4j", "botocore", "boto3", "s3transfer", "urllib3", "scripts")
"""Packages whose loggers are redacted: those that talk to the JVM and to AWS, and this package."""
_ENDINGS = ("py", "pyc", "so", "pyd")
"""Endings of files that are Python modules."""

# Names that always mean a secret. `token` may also be the NextToken of a listing, and `key` the key of an object.
_WORD = (
    r"(?:passw(?:or)?d|passwd|passphrase|pwd|secret|"
    r"(?:session|security|access|refresh|id|auth2?|bearer|sas)[._\-]?token|azure\.sas|"
    r"(?:private|access|api|account|ssecustomer|encryption-customer)[._\-]?key|authorization|credential|signature)"
)
# The text around the secret word in a name such as `db_password_2`. Its length is limited, and no rule below begins
# with it or `_NAME`: otherwise the search in a request body of, say, 100,000 characters would take quadratic time.
_END = r"[\w.\-]{0,60}"
_NAME = rf"(?:{_END}{_WORD}{_END}|(?:{_END}\.)?token)"
# A value in braces, in which SQL Server allows any character; a closing brace in the value is doubled.
_BRACES = r"\{(?:[^}\n]|\}\})*\}?"
# The characters that may follow a closing quote. A quote before any other character belongs to the value.
_CLOSED = r"(?:[\s,:.)\]}\\\"']|$)"
# A character in a line that py4j logs, but not past the start of a Java stack trace, which is the text `\n\t`.
_SIGN = r"(?:(?!\\n\\t)[^\n])"
_compiled = cache(partial(re.compile, flags=re.I | re.M))
"""Compiles a pattern at the first record: compiling all of them takes 10 ms, and many runs log nothing."""
# A JDBC URL in quotes ends at the closing quote. As an argument of py4j, or after "URL: ", it ends with the line. So do
# URLs of Oracle and SQL Server, which may contain spaces. Any other URL ends at a space, because words may follow.
_JDBC = (
    rf"(\\{{0,8}}[\"'])jdbc:(?:(?!\1{_CLOSED})(?:\\+.|[^\\\n]))*|"
    rf"(?:(?:^|!y)s|URL: )jdbc:{_SIGN}*|jdbc:(?:oracle:{_SIGN}*|[^\s;?]*;{_SIGN}*|\S*)"
)
# Each rule keeps the text of its first group and hides the rest of the match.
_IN_JDBC = (
    # Hide the value up to the next separator of options, such as `;`. The value may contain every other character.
    rf"([;:]\s*{_NAME}\s*=\s*)(?:{_BRACES}|[^;]+)",
    rf"([?&]{_NAME}=)[^&]+",
    rf"([(,]\s*{_NAME}=)[^,)]+",
    # A URL may have a user and a password before the host. In Oracle's URLs, no slashes precede the user.
    r"\A(.{0,9}jdbc:oracle:\w+:)[^@].*(?=@)",
    r"\A([^/]*//)(?![\w.\-]*(?::\d+)?(?:[/?;,]|$))[^;]*(?=@)",
)
_SECRETS = (
    # py4j's protocol has one argument per line; a text begins with `s`. The line after a secret's name is its value.
    rf"^(s{_NAME}\ns)[^\n]+",
    # Two secrets have no name: the password in DriverManager.getConnection(url, user, password), and the JVM's token.
    r"^(getConnection\ns[^\n]*\ns[^\n]*\ns)[^\n]+",
    r"(Command to send: A\n)\S+",
    # A quoted name and value, as in JSON or Python's repr of a dict or of (name, value) pairs, also for bytes (b'…').
    # A quote after backslashes belongs to the value: a secret may itself be JSON. The next rule finds JSON in quotes.
    rf"(([\"']){_NAME}\2\s*[:,]\s*b?([\"']))(?s:\\+.|(?!\3)[^\\])*",
    rf"(\\[\"']{_NAME}\\[\"']\s*[:,]\s*(\\[\"']))(?s:(?!\2).)*",
    rf"(<{_NAME}>)[^<]*",
    # A map as Java prints it: `{name=value, name=value}`.
    rf"((?:\{{|, ){_END}{_WORD}{_END}=)(?![\\\"'{{])(?:(?!, [\w.\-]+=|[\"'}}]{_CLOSED}){_SIGN})+",
    # `name=value` elsewhere: options of other URLs and of JAAS, `Credential=` in a header. Skip values hidden above.
    (
        rf"((?:{_WORD}{_END}|[?&]sig)=(?!\*\*\*[,)}}])(\\{{0,8}}[\"'])?)"
        rf"(?(2)(?:(?!\2)(?:\\+.|[^\\\n]))+|(?:{_BRACES}|(?:(?!\\n\\t)[^&;\s\"'<>])+))"
    ),
    # `name: value`, as in headers and text that botocore signs. Keep errors, actions and ARNs with `token` in the name.
    rf"({_WORD}{_END}(?<!error)(?<!exception)(?<!secretsmanager)(?<!:secret) ?:\s*)(?![\s\"'{{\[(])[^\r\n\"'\\]+",
    # A user and a password before the host of a URL, or in the error of a driver that read them as part of the host.
    r"(://)[^\s/?#\"'<>]*(?=@)",
    r"(UnknownHostException: )(?:(?!\\n)[^\n]){1,300}(?=@)",
    r"(\b)(?-i:(?:AKIA|ASIA)[A-Z0-9]{16})\b",
)


def redacted(text: str) -> str:
    """Return a text without the values of passwords, keys, session tokens, signatures, and user info of URLs.

    It finds secrets by their names, in log lines of known kinds. A secret without a name is not found.

    Examples
    --------
    >>> redacted("jdbc:postgresql://me:secret@db.example/shop?password=secret&ssl=true")
    'jdbc:postgresql://***@db.example/shop?password=***&ssl=true'
    """
    return _hidden(_SECRETS, _compiled(_JDBC).sub(lambda url: _hidden(_IN_JDBC, url[0]), text))


def _hidden(rules: Iterable[str], text: str) -> str:
    for rule in rules:
        text = _compiled(rule).sub(rf"\1{HIDDEN}", text)
    return text


_NAMED = rf"^(?:Answer received: !y)?s{_NAME}$"
"""A line of a log that is only the name of a secret: an argument of a py4j command, or an answer of the JVM."""
_ANSWER = re.compile(r"^(Answer received: !)(?!yv).*", re.S)
"""Any answer except `!yv`, which has no value: py4j gets `!yv` between other answers when it releases Java objects."""


class _Redaction(logging.Filter):
    """Passes every record on, without its secrets."""

    _last = threading.local()
    """Whether py4j has logged the name of a secret in this thread: then the next answer of the JVM is its value."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):  # The record is malformed, and its handler will report that.
            return True
        clean = redacted(text)
        if record.name.startswith("py4j"):
            is_named = getattr(self._last, "is_named", False)
            # If py4j logs a secret's name, the JVM's next answer is the secret: keep `is_named` until that answer.
            self._last.is_named = bool(_compiled(_NAMED).search(text)) or (is_named and not _ANSWER.match(text))
            clean = _ANSWER.sub(rf"\1{HIDDEN}", clean) if is_named else clean
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and not record.exc_text:
            # Formatters use this text, if it is set, instead of formatting the exception themselves.
            record.exc_text = redacted(logging.Formatter().formatException(record.exc_info))
        return True


_REDACTION = _Redaction()
_filtered: set[str] = set()
"""Loggers that have the filter. Checking hundreds of loggers would take milliseconds each time a table is opened."""


def redact_logs() -> None:
    """Remove secrets from all log records of `PACKAGES`. A further call adds no second filter to a logger.

    Handlers, levels and the loggers of other packages stay unchanged. A filter does not apply to child loggers, so each
    logger gets one: every logger that exists, and the logger of each module of these packages, which may be imported
    later.
    """
    known = {name for name in list(logging.root.manager.loggerDict) if name.partition(".")[0] in PACKAGES}
    for name in known.union(_modules()) - _filtered:
        logging.getLogger(name).addFilter(_REDACTION)
        _filtered.add(name)


def aws_client(service: str, **options: Any) -> Any:
    """Return a client of boto3's default session, after `redact_logs`. Every client of this package is made here."""
    redact_logs()  # Redact before botocore logs the first request.
    import boto3

    return boto3.client(service, **options)  # type: ignore[call-overload]


@cache
def _modules() -> tuple[str, ...]:
    """Return the names of all modules of `PACKAGES`, without importing any of them."""
    found = list(PACKAGES)
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is not None:
            for folder in spec.submodule_search_locations or ():
                found += _below(folder, f"{package}.")
    return tuple(found)


def _below(folder: str, start: str) -> Iterator[str]:
    """Yield the names of the modules in a folder. `pkgutil` is several times slower, which would delay short runs."""
    if not os.path.isdir(folder):
        import pkgutil

        # The package is in a zip file. There pkgutil finds only the modules of the first level.
        yield from (module.name for module in pkgutil.iter_modules([folder], start))
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name, _, ending = entry.name.partition(".")
            if ending.endswith(_ENDINGS) and name != "__init__":
                yield f"{start}{name}"
            elif not ending and any(os.path.exists(f"{entry.path}/__init__{end}") for end in (".py", ".pyc")):
                yield f"{start}{name}"
                yield from _below(entry.path, f"{start}{name}.")
