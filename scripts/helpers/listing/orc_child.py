"""Reads a data file of ORC in a process of its own, whose memory is bounded.

ORC packs a text that many rows have into a few bytes, and Arrow writes it out for each row of a stripe. So 2 KB can ask
for all the memory there is, and no number in the file tells before. A process with a limit gets no more than that, and
where it ends for it, the file is refused.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from typing import IO, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

MAX_MEMORY = 4 * 1024 * 1024 * 1024
"""Address space of the process in bytes, of which Python and Arrow take one. S3's stripes have 64 MB."""
BATCH_ROWS = 64 * 1024
"""Rows that are sent at once, as many as `inventory_files` reads of other formats."""
DAMAGED = 65
"""Exit code of a process that could not read the file; why is its standard error."""


def read_orc(
    file: BinaryIO, columns: Collection[str], longest: int, max_memory: int = MAX_MEMORY
) -> Generator[pa.RecordBatch, None, None]:
    """Yield a file's rows: those of its columns that are named. The first batch is empty and has their schema.

    Parameters
    ----------
    file
        The whole file, at its start.
    longest
        Bytes of a text.
    max_memory
        Bytes. Linux keeps to it; where a system cannot, memory is not bounded.

    Raises
    ------
    ValueError
        It is no ORC, has a longer text, or takes more memory.
    """
    command = [sys.executable, "-m", "scripts.helpers.listing.orc_child", str(max_memory), str(longest), *columns]
    searched = {"PYTHONPATH": os.pathsep.join(sys.path)}
    broken: pa.ArrowException | OSError | None = None
    with (
        _on_disk(file) as opened,
        subprocess.Popen(
            command, env=os.environ | searched, stdin=opened, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
    ):
        try:
            yield from pa.ipc.open_stream(process.stdout)
        except (pa.ArrowException, OSError) as error:
            broken = error  # Most likely it has ended, and tells why.
        except BaseException:
            process.kill()  # The caller reads no further. It would wait for ever to be rid of its rows.
            raise
        _, told = process.communicate()
    if process.returncode == DAMAGED:
        raise ValueError(told.decode(errors="replace").strip())
    # A stream may end between two batches, and is then whole as far as Arrow can see: only the exit code counts.
    if process.returncode != 0:
        raise ValueError(f"it takes more than {max_memory:,} bytes of memory, or breaks what reads it")
    if broken is not None:
        raise broken


@contextmanager
def _on_disk(file: BinaryIO) -> Iterator[IO[bytes]]:
    """Give the file as one of the system, which a process can be given."""
    try:
        file.fileno()
    except UnsupportedOperation:
        with tempfile.TemporaryFile() as copied:
            shutil.copyfileobj(file, copied)
            copied.seek(0)
            yield copied
    else:
        yield file


def main() -> None:
    """Read ORC from standard input, and write its rows to standard output as a stream of Arrow."""
    max_memory, longest, *columns = sys.argv[1:]
    _bound_memory(int(max_memory))
    try:
        _copy(columns, int(longest))
    except (ValueError, OSError, pa.ArrowException) as error:
        # Neither of memory: that tells nothing of the file, and has the exit code of any other end.
        if isinstance(error, MemoryError):
            raise
        sys.stderr.write(str(error))
        sys.exit(DAMAGED)


def _bound_memory(limit: int) -> None:
    with suppress(ImportError, ValueError, OSError):  # Of other systems than Linux.
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _copy(columns: Collection[str], longest: int) -> None:
    from pyarrow import orc

    opened = orc.ORCFile(pa.PythonFile(sys.stdin.buffer, mode="r"))
    wanted = [name for name in opened.schema.names if name in columns]
    schema = pa.schema([opened.schema.field(name) for name in wanted])
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([], schema))
        for stripe in range(opened.nstripes if wanted else 0):
            rows = opened.read_stripe(stripe, columns=wanted).select(wanted)
            for name in wanted:
                _check_texts(rows.column(name), name, longest)
            for start in range(0, rows.num_rows, BATCH_ROWS):
                writer.write_batch(rows.slice(start, BATCH_ROWS))


def _check_texts(column: pa.Array, name: str, longest: int) -> None:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        found = pc.max(pc.binary_length(column)).as_py() or 0
        if found > longest:
            raise ValueError(f"a text of column {name!r} has {found:,} bytes, and the limit is {longest:,}")


if __name__ == "__main__":
    main()
