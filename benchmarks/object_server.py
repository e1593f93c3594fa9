"""A fast S3 endpoint that serves computed JSON objects: nothing is stored. Binds to 127.0.0.1.

    python -m benchmarks.object_server --objects 10000 --rows 20

Answers GET and HEAD of `/bucket/landing/000000123.json` (with If-Match and Range) and ListObjectsV2.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from urllib.parse import parse_qs, quote, unquote, urlsplit

from benchmarks.local_server import Connection, serve

BUCKET, PREFIX = "bucket", "landing/"
PAGE = 1_000
ROW_BYTES = 512
MODIFIED = "2023-03-16T15:45:00.000Z"
COMMON = (
    b"Date: Thu, 16 Mar 2023 15:46:00 GMT\r\nLast-Modified: Thu, 16 Mar 2023 15:45:00 GMT\r\n"
    b"Accept-Ranges: bytes\r\nServer: computed\r\nx-amz-request-id: 1\r\n"
)
KEY = re.compile(rf"/{BUCKET}/{PREFIX}(\d{{9}})\.json\Z")
PAGE_XML = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Name>bucket</Name><Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>{limit}</MaxKeys>"
    "<EncodingType>url</EncodingType><IsTruncated>{truncated}</IsTruncated>{rows}</ListBucketResult>"
)
NOT_FOUND = b"<Error><Code>NoSuchKey</Code><Message>There is no such key.</Message></Error>"
CHANGED = b"<Error><Code>PreconditionFailed</Code><Message>The object has another ETag.</Message></Error>"


class Objects(Sequence[str]):
    """The keys of a bucket in order, and the content of each object: `rows` rows of 512 bytes."""

    def __init__(self, count: int, rows: int) -> None:
        self.count = count
        self._tail = b"".join(self._row(b"-1", number) for number in range(1, rows))
        self.size = rows * ROW_BYTES

    def _row(self, identity: bytes, number: int) -> bytes:
        start = b'{"object": %b, "row": %d, "value": %d.25, "at": "2023-03-16T15:45:%02dZ", "note": "' % (
            identity, number, number, number % 60,
        )  # fmt: skip
        return start + b"x" * (ROW_BYTES - len(start) - 3) + b'"}\n'

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        return f"{PREFIX}{index:09d}.json"

    def etag(self, index: int) -> str:
        """Return the ETag of an object, in the form of a multipart upload, so that no client takes it for an MD5."""
        return f"{index:032x}-1"

    def body(self, index: int) -> bytes:
        """Return the content of one object."""
        return self._row(b"%d" % index, 0) + self._tail


class ObjectConnection(Connection):
    """One client of an object server."""

    requests = 0

    def __init__(self, objects: Objects, delay: float) -> None:
        super().__init__()
        self.objects, self.delay = objects, delay

    def answer(self, head: str) -> bytes:
        ObjectConnection.requests += 1
        method, target, _ = head.split(" ", 2)
        if target == "/requests":
            return respond("200 OK", b"%d" % ObjectConnection.requests, b"", method)
        found = KEY.match(target.partition("?")[0])
        if found is None:
            return self.list(target, method)
        index = int(found[1])
        if index >= len(self.objects):
            return respond("404 Not Found", NOT_FOUND, b"", method)
        etag = self.objects.etag(index)
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
        if fields.get("if-match", etag).strip('"') != etag:
            return respond("412 Precondition Failed", CHANGED, b"", method)
        body, extra, status = self.objects.body(index), f'ETag: "{etag}"\r\n', "200 OK"
        if asked := re.match(r"bytes=(\d+)-(\d*)", fields.get("range", "")):
            first, last = int(asked[1]), min(int(asked[2] or len(body) - 1), len(body) - 1)
            extra += f"Content-Range: bytes {first}-{last}/{len(body)}\r\n"
            body, status = body[first : last + 1], "206 Partial Content"
        return respond(status, body, extra.encode("ascii"), method)

    def list(self, target: str, method: str) -> bytes:
        """Return a page of ListObjectsV2: keys, or the only folder as a common prefix."""
        query = parse_qs(urlsplit(target).query, keep_blank_values=True)
        asked = {name: unquote(values[0]) for name, values in query.items()}
        if "list-type" not in asked:
            return respond("404 Not Found", NOT_FOUND, b"", method)
        prefix, limit = asked.get("prefix", ""), min(int(asked.get("max-keys", PAGE)), PAGE)
        after = asked.get("start-after", "")
        if "continuation-token" in asked:
            after = base64.urlsafe_b64decode(asked["continuation-token"]).decode()
        first = max(bisect_right(self.objects, after), bisect_left(self.objects, prefix))
        end = bisect_left(self.objects, prefix + "\U0010ffff")
        rows, count, more = "", 0, False
        if asked.get("delimiter") == "/" and len(prefix) < len(PREFIX) and first < end:
            rows, count = f"<CommonPrefixes><Prefix>{PREFIX}</Prefix></CommonPrefixes>", 1
        elif first < end:
            last = min(first + limit, end)
            rows = "".join(self._row(index) for index in range(first, last))
            count, more = last - first, last < end
            if more:
                token = base64.urlsafe_b64encode(self.objects[last - 1].encode()).decode()
                rows = f"<NextContinuationToken>{token}</NextContinuationToken>{rows}"
        page = PAGE_XML.format(
            prefix=quote(prefix), count=count, limit=limit, truncated=str(more).lower(), rows=rows
        )  # fmt: skip
        return respond("200 OK", page.encode(), b"Content-Type: application/xml\r\n", method)

    def _row(self, index: int) -> str:
        return (
            f"<Contents><Key>{self.objects[index]}</Key><LastModified>{MODIFIED}</LastModified>"
            f"<ETag>&quot;{self.objects.etag(index)}&quot;</ETag><Size>{self.objects.size}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
        )


def respond(status: str, body: bytes, extra: bytes, method: str) -> bytes:
    """Return a response, for HEAD without the body."""
    head = b"HTTP/1.1 %b\r\n%b%bContent-Length: %d\r\n\r\n" % (status.encode("ascii"), COMMON, extra, len(body))
    return head if method == "HEAD" else head + body


async def main() -> None:
    """Serve until the process is terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=20, help="rows of 512 bytes in each object")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds a request takes at least")
    given = parser.parse_args()
    objects = Objects(given.objects, given.rows)
    await serve(lambda: ObjectConnection(objects, given.delay))


if __name__ == "__main__":
    asyncio.run(main())
