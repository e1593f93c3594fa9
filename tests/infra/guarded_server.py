"""A moto server behind IAM, which records each request and checks it against the policies of its access key."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tests.support.iam_policies import Request, is_allowed
from tests.support.iam_requests import asked, through_keys
from tests.support.moto_server import MotoServer, OneAtATime

_SIGNED = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")
_NEEDS_NOTHING = {"sts:GetCallerIdentity"}
"""AWS allows this action whatever the policies say."""


class Call(NamedTuple):
    """One permission that a request of a role needed, and whether its policies allow it."""

    role: str
    request: Request
    allowed: bool


class GuardedServer(MotoServer):
    """A moto server that identifies roles by their access keys. The key ``root`` may do everything.

    Attributes
    ----------
    policies
        Policy documents by role. Setting them does not change the calls recorded so far.
    calls
        The permissions that the roles needed, in order; calls of ``root`` are not recorded.
    keys
        Maps the start of a resource's ARN to the ARN of its key. A request for the resource needs the key, too.
    """

    def __init__(self) -> None:
        self.policies: dict[str, list[str | Mapping[str, Any]]] = {}
        self.calls: list[Call] = []
        self.keys: dict[str, str] = {}
        self._app = OneAtATime()
        super().__init__(self._answer)

    def of(self, role: str) -> list[Call]:
        return [call for call in self.calls if call.role == role]

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        headers = {
            name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")
        }
        signed = _SIGNED.search(headers.get("authorization", ""))
        if signed is None or signed[1] == "root":
            return self._app(environ, start)
        role, region, service = signed.groups()
        body = b""
        if length := int(environ.get("CONTENT_LENGTH") or 0):
            body = environ["wsgi.input"].read(length)
            environ["wsgi.input"] = io.BytesIO(body)
        target = environ.get("RAW_URI") or environ["REQUEST_URI"]
        refused = None
        needed = asked(service, region, environ["REQUEST_METHOD"], target, headers, body)
        needed += [more for request in needed for more in through_keys(request, region, self.keys)]
        for request in needed:
            allowed = request.action in _NEEDS_NOTHING or is_allowed(self.policies.get(role, []), request)
            self.calls.append(Call(role, request, allowed))
            refused = refused or (None if allowed else request)
        return _denied(service, role, refused, start) if refused else self._app(environ, start)


def _denied(service: str, role: str, request: Request, start: Callable[..., Any]) -> Iterable[bytes]:
    """Refuse a request as AWS does, with a message that names the action and the resource."""
    text = (
        f"User: arn:aws:sts::123456789012:assumed-role/{role}/session is not authorized to perform: {request.action} "
        f"on resource: {request.resource} because no identity-based policy allows the {request.action} action"
    )
    if service == "s3":
        answer = f"<Error><Code>AccessDenied</Code><Message>{text}</Message></Error>".encode()
        start("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(answer)))])
        return [answer]
    kind = "com.amazon.coral.service#AccessDeniedException"
    answer = json.dumps({"__type": kind, "Message": text, "message": text}).encode()
    headers = [("Content-Type", "application/x-amz-json-1.0"), ("Content-Length", str(len(answer)))]
    start("400 Bad Request" if service == "dynamodb" else "403 Forbidden", headers)
    return [answer]
