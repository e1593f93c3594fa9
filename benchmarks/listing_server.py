"""A fast S3 endpoint that only lists: keys are computed, not stored. Binds to 127.0.0.1.

python -m benchmarks.listing_server --objects 1000000 --folders 16 --delay 0.05
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import socket
import sys
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np

PREFIX = "landing/"
PAGE = 1_000
HEADER = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Name>bucket</Name><Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>{limit}</MaxKeys>"
    "{encoding}<IsTruncated>{truncated}</IsTruncated>{token}"
)
OBJECT = (
    f"<Contents><Key>{PREFIX}day=FFFFF/part-NNNNNNNNN.json</Key><LastModified>2023-03-16T15:45:00.000Z</LastModified>"
    "<ETag>&quot;00000000000000000000000EEEEEEEEE&quot;</ETag><Size>10240</Size><StorageClass>STANDARD</StorageClass>"
    "</Contents>"
).encode()
ENCODED = OBJECT.replace(b"day=", b"day%3D")
THOUSAND = np.frombuffer("".join(f"{number:03d}" for number in range(1_000)).encode(), np.uint8).reshape(1_000, 3)


class Keys(Sequence[str]):
    """The keys of a bucket in order, such as `landing/day=00012/part-000000345.json`; `sizes` has those per folder."""

    def __init__(self, sizes: Sequence[int], added: int = 0) -> None:
        self.starts = [0, *accumulate(sizes)]
        self.added = added

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        folder = bisect_right(self.starts, index) - 1
        return f"{PREFIX}day={folder:05d}/part-{index - self.starts[folder]:09d}.json"


def folder_sizes(objects: int, folders: int, skewed: bool) -> list[int]:
    """Return even folder sizes, or with half of all in the first folder, half of the rest in the second, and so on."""
    if not skewed:
        return [objects // folders + (index < objects % folders) for index in range(folders)]
    sizes: list[int] = []
    for _ in range(folders - 1):
        sizes.append((objects - sum(sizes)) // 2)
    return [*sizes, objects - sum(sizes)]


class Server:
    """Answers ListObjectsV2 with prefix, start-after, continuation-token, max-keys and delimiter."""

    def __init__(self, keys: Keys, delay: float) -> None:
        self.keys, self.delay = keys, delay
        self.requests = 0
        self.bound = lru_cache(10_000)(lambda text: bisect_right(keys, text))

    def answer(self, target: str) -> bytes:
        """Return the page for the target of a request."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(target).query, keep_blank_values=True).items()}
        prefix, limit = asked.get("prefix", ""), min(int(asked.get("max-keys", PAGE)), PAGE)
        after = asked.get("start-after", "")
        if "continuation-token" in asked:
            after = base64.urlsafe_b64decode(asked["continuation-token"]).decode()
        first = max(bisect_right(self.keys, after), self.bound(prefix))
        end = self.bound(prefix + "\U0010ffff")
        encoded = asked.get("encoding-type") == "url"
        if asked.get("delimiter"):
            return self.folders(prefix, first, end, limit, asked["delimiter"], encoded)
        last = min(first + limit, end)
        rows = self.objects(first, last, encoded)
        return self.page(prefix, rows, last - first, limit, self.keys[last - 1] if last < end else None, encoded)

    def objects(self, first: int, last: int, encoded: bool) -> bytes:
        """Return the XML of some objects. All are of the same length, so that NumPy fills in all digits at once."""
        index = np.arange(first, last)
        folder = np.searchsorted(self.keys.starts, index, "right") - 1
        template = ENCODED if encoded else OBJECT
        rows = np.tile(np.frombuffer(template, np.uint8), (last - first, 1))
        at, name, etag = (template.index(letters * 3) for letters in (b"F", b"N", b"E"))
        for place, numbers in ((name, index - np.asarray(self.keys.starts)[folder]), (etag, index)):
            for group, unit in enumerate((1_000_000, 1_000, 1)):
                rows[:, place + 3 * group : place + 3 * group + 3] = THOUSAND[numbers // unit % 1_000]
        rows[:, at : at + 2] = THOUSAND[folder // 1_000][:, 1:]
        rows[:, at + 2 : at + 5] = THOUSAND[folder % 1_000]
        return rows.tobytes()

    def folders(self, prefix: str, first: int, end: int, limit: int, delimiter: str, encoded: bool) -> bytes:
        """Return a page of common prefixes."""
        rows: list[bytes] = []
        index, count, name = first, 0, ""
        while index < end and count < limit:
            name, found, _ = self.keys[index][len(prefix) :].partition(delimiter)
            if found:
                folder = prefix + name + delimiter
                rows.append(
                    f"<CommonPrefixes><Prefix>{quote(folder) if encoded else folder}</Prefix></CommonPrefixes>".encode()
                )
                name = folder + "\U0010ffff"
                index, count = self.bound(name), count + 1
            else:  # A folder of this server holds files or folders, not both.
                last = min(index + limit - count, end)
                rows.append(self.objects(index, last, encoded))
                index, count, name = last, count + last - index, self.keys[last - 1]
        return self.page(prefix, b"".join(rows), count, limit, name if index < end else None, encoded)

    def page(self, prefix: str, rows: bytes, count: int, limit: int, token: str | None, encoded: bool) -> bytes:
        """Return the XML of one page."""
        written = base64.urlsafe_b64encode((token or "").encode()).decode()
        head = HEADER.format(
            prefix=quote(prefix) if encoded else prefix,
            count=count,
            limit=limit,
            encoding="<EncodingType>url</EncodingType>" if encoded else "",
            truncated="false" if token is None else "true",
            token="" if token is None else f"<NextContinuationToken>{written}</NextContinuationToken>",
        )
        return b"".join([head.encode(), rows, b"</ListBucketResult>"])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the client ends it."""
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                target = request.split(b" ", 2)[1].decode("ascii")
                if target == "/requests":
                    body = str(self.requests).encode()
                else:
                    self.requests += 1
                    due = asyncio.get_running_loop().time() + self.delay
                    body = self.answer(target)
                    await asyncio.sleep(due - asyncio.get_running_loop().time())
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(body)
                )
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--folders", type=int, default=16)
    parser.add_argument("--skewed", action="store_true")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds a page takes at least")
    given = parser.parse_args()
    keys = Keys(folder_sizes(given.objects, given.folders, given.skewed))
    server = await asyncio.start_server(Server(keys, given.delay).serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
