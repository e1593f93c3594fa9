"""Passwords, keys and tokens taken out of log lines: below INFO, py4j and botocore write down all that they send.

py4j logs each call to the JVM with its arguments, so each option of a JDBC reader; botocore logs headers, bodies and
answers. Neither redacts anything. A password that was logged once is in CloudWatch for as long as the group keeps it.
"""

from __future__ import annotations

import logging
import os
import pkgutil
import re
import threading
from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

HIDDEN = "***"
"""What stands in place of a secret."""
PACKAGES = ("py4j", "botocore", "boto3", "s3transfer", "urllib3", "scripts")
"""Whose loggers are redacted: what talks to the JVM and to AWS, and this package."""

# Only names that say so: `token` alone is also a NextToken of a listing, and `key` the key of an object.
_WORD = (
    r"(?:passw(?:or)?d|passwd|passphrase|pwd|secret|"
    r"(?:session|security|access|refresh|id|auth2?|bearer|sas)[._\-]?token|azure\.sas|"
    r"(?:private|access|api|account|ssecustomer|encryption-customer)[._\-]?key|authorization|credential|signature)"
)
# What may be around the word in a name. Bounded, and no pattern begins with it: bodies of requests are logged too, and
# each of 100,000 signs would be looked at from each of them.
_END = r"[\w.\-]{0,60}"
_NAME = rf"(?:{_END}{_WORD}{_END}|(?:{_END}\.)?token)"
# A value in the braces in which SQL Server takes any sign; one of its own is doubled.
_BRACES = r"\{(?:[^}\n]|\}\})*\}?"
# What is behind a sign that closes a value, and not behind one that is part of it.
_CLOSED = r"(?:[\s,:.)\]}\\\"']|$)"
# A sign of a line of py4j. A Java trace follows in it, with its line breaks escaped.
_SIGN = r"(?:(?!\\n\\t)[^\n])"
_compiled = cache(partial(re.compile, flags=re.I | re.M))
"""Compiles a pattern with the first record. For all of them that takes 10 ms, and many runs log nothing."""
# Quoted, as a text of py4j, or at the end of Spark's message, a URL is alone. Elsewhere other words may follow, and
# only URLs whose values may hold spaces, as Oracle's and SQL Server's, extend to the end of the line.
_JDBC = (
    rf"(\\{{0,8}}[\"'])jdbc:(?:(?!\1{_CLOSED})(?:\\+.|[^\\\n]))*|"
    rf"(?:(?:^|!y)s|URL: )jdbc:{_SIGN}*|jdbc:(?:oracle:{_SIGN}*|[^\s;?]*;{_SIGN}*|\S*)"
)
# Of each rule, what is in its first group is kept, and what comes behind is hidden.
_IN_JDBC = (
    # Up to the next separator of the same kind: any other sign may be one of the value.
    rf"([;:]\s*{_NAME}\s*=\s*)(?:{_BRACES}|[^;]+)",
    rf"([?&]{_NAME}=)[^&]+",
    rf"([(,]\s*{_NAME}=)[^,)]+",
    # A user and a password before the host; Oracle's have no slashes before them.
    r"\A(.{0,9}jdbc:oracle:\w+:)[^@].*(?=@)",
    r"\A([^/]*//)(?![\w.\-]*(?::\d+)?(?:[/?;,]|$))[^;]*(?=@)",
)
_SECRETS = (
    # py4j's protocol: one argument a line, a text begins with `s`. The line after the name of a secret is its value.
    rf"^(s{_NAME}\ns)[^\n]+",
    # DriverManager.getConnection(url, user, password) names nothing, nor does what lets Python in to the JVM.
    r"^(getConnection\ns[^\n]*\ns[^\n]*\ns)[^\n]+",
    r"(Command to send: A\n)\S+",
    # JSON and what Python shows of a dict, a list of pairs or bytes; also where it was quoted once more.
    # A quote behind any number of backslashes is one of the value: a secret is JSON, quoted in the answer's JSON.
    rf"(([\"']){_NAME}\2\s*[:,]\s*b?([\"']))(?s:\\+.|(?!\3)[^\\])*",
    rf"(\\[\"']{_NAME}\\[\"']\s*[:,]\s*(\\[\"']))(?s:(?!\2).)*",
    rf"(<{_NAME}>)[^<]*",
    # What Java shows of a map.
    rf"((?:\{{|, ){_END}{_WORD}{_END}=)(?![\\\"'{{])(?:(?!, [\w.\-]+=|[\"'}}]{_CLOSED}){_SIGN})+",
    # Options of other URLs and of JAAS, and `Credential=` of a header. What was hidden above stays as it is.
    (
        rf"((?:{_WORD}{_END}|[?&]sig)=(?!\*\*\*[,)}}])(\\{{0,8}}[\"'])?)"
        rf"(?(2)(?:(?!\2)(?:\\+.|[^\\\n]))+|(?:{_BRACES}|(?:(?!\\n\\t)[^&;\s\"'<>])+))"
    ),
    # Lines of headers, and of what botocore signs. Names of errors, actions and ARNs have the word and no secret.
    rf"({_WORD}{_END}(?<!error)(?<!exception)(?<!secretsmanager)(?<!:secret) ?:\s*)(?![\s\"'{{\[(])[^\r\n\"'\\]+",
    # A user and a password before the host, also where a driver has taken them for a part of it.
    r"(://)[^\s/?#\"'<>]*(?=@)",
    r"(UnknownHostException: )(?:(?!\\n)[^\n]){1,300}(?=@)",
    r"(\b)(?-i:(?:AKIA|ASIA)[A-Z0-9]{16})\b",
)


def redacted(text: str) -> str:
    """Return a text without the values of passwords, keys, session tokens, signatures, and user info of URLs.

    It goes by names, so it is for log lines of known kinds. A secret without a name is not found.

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
"""The name of a secret, as an argument of a command of py4j or as an answer."""
_ANSWER = re.compile(r"^(Answer received: !)(?!yv).*", re.S)
"""Any answer but `!yv`, which has no value: py4j releases references in between."""


class _Redaction(logging.Filter):
    """Lets every record through, without its secrets."""

    _last = threading.local()
    """Per thread, whether py4j has logged the name of a secret, so that the next answer of the JVM is its value."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):  # The handler tells it, as without a filter.
            return True
        clean = redacted(text)
        if record.name.startswith("py4j"):
            is_named = getattr(self._last, "is_named", False)
            # A command does not end it: of a pair, the name is one answer and the value the next one.
            self._last.is_named = bool(_compiled(_NAMED).search(text)) or (is_named and not _ANSWER.match(text))
            clean = _ANSWER.sub(rf"\1{HIDDEN}", clean) if is_named else clean
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and not record.exc_text:
            # A formatter keeps to this text where it is there.
            record.exc_text = redacted(logging.Formatter().formatException(record.exc_info))
        return True


_REDACTION = _Redaction()
_filtered: set[str] = set()
"""The loggers that have it. To ask each of some hundred for it takes milliseconds, at each table that is opened."""


def redact_logs() -> None:
    """Let no record of `PACKAGES` out with a secret in it. May be called again; the loggers get one filter each.

    Handlers, levels and the loggers of others stay as they are. A filter holds for its own logger and not for
    those below it, so each logger gets one: those that there are, and one for each module of these packages, which
    may be imported later.
    """
    known = {name for name in list(logging.root.manager.loggerDict) if name.partition(".")[0] in PACKAGES}
    for name in known.union(_modules()) - _filtered:
        logging.getLogger(name).addFilter(_REDACTION)
        _filtered.add(name)


def aws_client(service: str, **options: Any) -> Any:
    """Make a client of boto3's default session, with the filter added: every client of this package is made here."""
    redact_logs()  # Before botocore logs the first request.
    import boto3

    return boto3.client(service, **options)  # type: ignore[call-overload]


@cache
def _modules() -> tuple[str, ...]:
    """Return the names of all modules of the packages, none of which is imported for it."""
    found = list(PACKAGES)
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is not None:
            found += _below(spec.submodule_search_locations or (), f"{package}.")
    return tuple(found)


def _below(folders: Iterable[str], start: str) -> Iterator[str]:
    for module in pkgutil.iter_modules(folders, start):
        yield module.name
        folder = getattr(module.module_finder, "path", None)  # A zip file has none; its modules keep the first level.
        if module.ispkg and folder is not None:
            yield from _below([os.path.join(folder, module.name.rpartition(".")[2])], f"{module.name}.")
