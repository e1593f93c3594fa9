"""An S3 endpoint with computed JSON objects: some exist at the start, more arrive on demand. Binds to 127.0.0.1.

python -m benchmarks.landing_server --objects 1000000 --delay 0.05

`GET /arrive` adds five objects to each of twenty folders, newer than all existing ones. `GET /hold/1000` starts again
with 1,000 objects. ETags look like MD5s and do not compress. Modification times are spread over the day before the
arrivals, so that few objects share one.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import urllib.request
from collections.abc import Iterator

import numpy as np

from benchmarks.listing_server import OBJECT, PREFIX, THOUSAND, Keys, Server
from benchmarks.local_server import Connection, serve
from benchmarks.object_server import BUCKET, NOT_FOUND, Objects, respond

FOLDERS = 20
ARRIVING = 100
ROWS = 20
FIRST_DAY, SECONDS = 1_678_838_400, 86_000
"""2023-03-15 as seconds since 1970, and over how many seconds of it the modification times are spread."""
SIZE = Objects(0, ROWS).size
BEFORE_ARRIVALS = "2023-03-15T23:59:59Z"
ROW = (
    OBJECT.replace(b"2023-03-16T15:45:00", b"2023-03-1DTHH:MM:SS")
    .replace(b"00000000000000000000000EEEEEEEEE", b"E" * 32)
)  # fmt: skip
ENCODED_ROW = ROW.replace(b"day=", b"day%3D")
HEX = np.frombuffer("".join(f"{number:02x}" for number in range(256)).encode(), np.uint8).reshape(256, 2)
TWO = THOUSAND[:, 1:]
KEY = re.compile(rf"/{BUCKET}/{PREFIX}day=(\d{{5}})/part-(\d{{9}})(?:-late)?\.json\Z")
"""For each object the server also answers for a second one, with ``-late`` in its key, which no listing shows."""


def etags(folder: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return 32 hexadecimal digits for each object, which depend only on its folder and number (splitmix64)."""
    halves = []
    for seed in (1, 2):
        mixed = (folder.astype(np.uint64) << np.uint64(40)) + (number.astype(np.uint64) << np.uint64(2))
        mixed = (mixed + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        halves.append(mixed ^ (mixed >> np.uint64(31)))
    raw = np.stack(halves, axis=1).view(np.uint8)
    return HEX[raw].reshape(len(folder), 32)


class LandingServer(Server):
    """Lists `Keys`, and serves the content of each object."""

    def __init__(self, objects: int, delay: float, arrived: int = 0) -> None:
        self.known, self.arrived = objects // FOLDERS, arrived // FOLDERS
        super().__init__(Keys([self.known + self.arrived] * FOLDERS), delay)
        self._content = Objects(0, ROWS)

    def hold(self, objects: int, arrived: int = 0) -> None:
        """Start again with `objects` known and `arrived` new objects."""
        self.__init__(objects, self.delay, arrived)  # type: ignore[misc]

    def objects(self, first: int, last: int, encoded: bool) -> bytes:
        """Return the XML of some objects; all are of the same length."""
        template = ENCODED_ROW if encoded else ROW
        folder, number = np.divmod(np.arange(first, last), self.known + self.arrived)
        rows = np.tile(np.frombuffer(template, np.uint8), (last - first, 1))
        new = number >= self.known
        second = np.where(new, 15 * 3600 + 40 * 60 + number - self.known, number % SECONDS)
        part, day, time = template.index(b"NNN"), template.index(b"1DT") + 1, template.index(b"HH:MM")
        place = template.index(b"FFFFF")
        for group, unit in enumerate((1_000_000, 1_000, 1)):
            rows[:, part + 3 * group : part + 3 * group + 3] = THOUSAND[number // unit % 1_000]
        rows[:, place : place + 2] = TWO[folder // 1_000]
        rows[:, place + 2 : place + 5] = THOUSAND[folder % 1_000]
        rows[:, day] = np.where(new, ord("6"), ord("5"))
        for group, unit in enumerate((3_600, 60, 1)):
            rows[:, time + 3 * group : time + 3 * group + 2] = TWO[second // unit % (24 if unit == 3_600 else 60)]
        etag = template.index(b"E" * 32)
        rows[:, etag : etag + 32] = etags(folder, number)
        return rows.tobytes()

    def respond(self, method: str, target: str, fields: dict[str, str]) -> bytes:
        """Return the response to one request."""
        if target == "/arrive":
            self.hold(self.known * FOLDERS, self.arrived * FOLDERS + ARRIVING)
            return respond("200 OK", b"", b"", method)
        if target.startswith("/hold/"):
            self.hold(int(target[6:]))
            return respond("200 OK", b"", b"", method)
        path, _, query = target.partition("?")
        if "list-type=2" in query:
            return respond("200 OK", self.answer(target), b"Content-Type: application/xml\r\n", method)
        found = KEY.match(path.replace("%3D", "="))
        if found is None or int(found[1]) >= FOLDERS or int(found[2]) >= self.known + self.arrived:
            return respond("404 Not Found", NOT_FOUND, b"", method)
        folder, number = int(found[1]), int(found[2])
        etag = etags(np.array([folder]), np.array([number])).tobytes().decode()
        body, extra, status = self._content.body(folder * 10**9 + number)[:SIZE], f'ETag: "{etag}"\r\n', "200 OK"
        if asked := re.match(r"bytes=(\d+)-(\d*)", fields.get("range", "")):
            first, last = int(asked[1]), min(int(asked[2] or len(body) - 1), len(body) - 1)
            extra += f"Content-Range: bytes {first}-{last}/{len(body)}\r\n"
            body, status = body[first : last + 1], "206 Partial Content"
        return respond(status, body, extra.encode("ascii"), method)


class LandingConnection(Connection):
    """One client of a landing server."""

    def __init__(self, server: LandingServer) -> None:
        super().__init__()
        self.server, self.delay = server, server.delay

    def answer(self, head: str) -> bytes:
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ", 2)
        return self.server.respond(method, target, dict(line.lower().split(": ", 1) for line in lines))


def arrive(endpoint: str) -> None:
    """Make 100 new objects arrive on a server."""
    with urllib.request.urlopen(f"{endpoint}/arrive") as answer:
        answer.read()


def hold(endpoint: str, objects: int) -> None:
    """Make a server start again with this many objects."""
    with urllib.request.urlopen(f"{endpoint}/hold/{objects}") as answer:
        answer.read()


def known_objects(objects: int) -> Iterator[tuple[str, int]]:
    """Yield key and modification time, in seconds since 1970, of each object that a server has at the start."""
    for folder in range(FOLDERS):
        for number in range(objects // FOLDERS):
            yield f"{PREFIX}day={folder:05d}/part-{number:09d}.json", FIRST_DAY + number % SECONDS


async def main() -> None:
    """Serve until the process is terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds a request takes at least")
    given = parser.parse_args()
    landing = LandingServer(given.objects, given.delay)
    await serve(lambda: LandingConnection(landing))


if __name__ == "__main__":
    asyncio.run(main())
