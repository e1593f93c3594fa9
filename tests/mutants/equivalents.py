"""Changes that no test can notice, or that none should."""

from __future__ import annotations

from typing import NamedTuple


class Equivalent(NamedTuple):
    """A change to a line of code, and why a test need not notice it. Lines have no numbers, which would move."""

    path: str
    code: str
    after: str
    because: str


EQUIVALENT = [
    Equivalent(
        "scripts/helpers/sinks/iceberg.py",
        "return int(self._table().properties.get(_property(output)[0]) or 0)",
        "(-1)",
        because="it is compared with versions, which begin at 1",
    ),
    Equivalent(
        "scripts/helpers/sinks/iceberg.py",
        "is_recorded = int(table.properties.get(_property(output)[0]) or 0) >= output.version",
        "(-1)",
        because="it is compared with versions, which begin at 1",
    ),
    Equivalent(
        "scripts/helpers/protocol/jobs.py",
        "self._limit, self._pages_since_probe = FIRST_PAGE, 0",
        "(-1)",
        because="the next look for short histories comes a page later, which costs reads only",
    ),
    Equivalent(
        "scripts/helpers/protocol/jobs.py",
        'units = float(page.get("ConsumedCapacity", {}).get("CapacityUnits", 0))',
        "(-1)",
        because="each page is asked for its capacity, and DynamoDB says it",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "if sizes[name] < WORTH_BYTES or references({name: kept[name]}):",
        "(sizes[name] <= WORTH_BYTES)",
        because="an entry of exactly so many bytes is read the same, in chunks or not",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "if abs(value) < 10**MAX_DIGITS:",
        "(abs(value) <= 10 ** MAX_DIGITS)",
        because="10^38 has one digit, and DynamoDB takes it in either way of writing",
    ),
    Equivalent(
        "scripts/helpers/listing/ranges.py",
        "stuck: int = 0",
        "(-1)",
        because="the range with most pages is cut first: one without any is cut now, too, which costs requests only",
    ),
    Equivalent(
        "scripts/helpers/listing/cuts.py",
        "for depth in range(len(parts) + 1):",
        "(2)",
        because="below the innermost folder the same folder comes again, and its answer is kept",
    ),
    Equivalent(
        "scripts/helpers/listing/cuts.py",
        "return []  # A page of files in one folder: more of them are likely.",
        "return None",
        because="the caller asks only whether there are any",
    ),
    Equivalent(
        "scripts/helpers/rows/slicing.py",
        "if len(start) != 1 or end is None or len(end) != 1 or isinstance(start[0], str):",
        "(-1)",
        because="there is only one value by then",
    ),
    Equivalent(
        "scripts/helpers/display/units.py",
        "if seconds < 10:",
        "(seconds <= 10)",
        because="10 s are written so in either way",
    ),
    Equivalent(
        "scripts/helpers/files/unchanged.py",
        "LOOKED_AT_ONE_BY_ONE = 1_000",
        "(999)",
        because="both ways find the same, and at this number cost the same",
    ),
    Equivalent(
        "scripts/helpers/spark/tasks.py",
        "rdd = java_context(spark).parallelize(of_java, max(1, len(parts))).rdd()",
        "(2)",
        because="of two partitions for one part, one is empty",
    ),
    Equivalent(
        "scripts/helpers/reading/fetched_lines.py",
        "_BATCH = 2 * 1024 * 1024",
        "(3)",
        because="where files are parted into batches changes when they are parsed, and not what is read",
    ),
    Equivalent(
        "scripts/helpers/protocol/jobs.py",
        "self._pages_since_probe = self._pages_since_probe + 1 if self._limit == MIN_PAGE else 0",
        "(2)",
        because="a larger page is tried twice as often, which costs reads only",
    ),
    Equivalent(
        "scripts/helpers/display/units.py",
        "if seconds < 0:",
        "(-1)",
        because="from -1 s to 0 the next branch writes the same; of less than a tenth it leaves out the sign of -0 s",
    ),
    Equivalent(
        "scripts/helpers/protocol/jobs.py",
        "ENOUGH, TOO_MUCH = 24, 48",
        "(23)",
        because="pages grow or shrink a little sooner or later, which costs reads only",
    ),
    Equivalent(
        "scripts/helpers/protocol/jobs.py",
        "ENOUGH, TOO_MUCH = 24, 48",
        "(25)",
        because="pages grow or shrink a little sooner or later, which costs reads only",
    ),
    Equivalent(
        "scripts/helpers/protocol/jobs.py",
        "ENOUGH, TOO_MUCH = 24, 48",
        "(49)",
        because="pages grow or shrink a little sooner or later, which costs reads only",
    ),
    Equivalent(
        "scripts/helpers/tables/delta_log.py",
        'info = found["commitInfo"][0] if found["commitInfo"] else {}',
        "(-1)",
        because="a commit of Delta has one such action, so the first is the last",
    ),
    Equivalent(
        "scripts/helpers/rows/verification.py",
        "if self.everything or total <= self.recent + self.sample:",
        "(total < self.recent + self.sample)",
        because="of as many as are asked for, all are chosen by chance as well",
    ),
    Equivalent(
        "scripts/helpers/protocol/pace.py",
        "units = math.ceil((data_bytes + KEY_BYTES) / 1024)",
        "(1025)",
        because="a chunk costs at most a unit less, of the hundred a second that are left to others",
    ),
    Equivalent(
        "scripts/helpers/protocol/pace.py",
        "if self._paid_at > now:",
        "(self._paid_at >= now)",
        because="to wait for no time at all is not to wait",
    ),
    Equivalent(
        "scripts/helpers/listing/ranges.py",
        "self._lock.notify()",
        "pass",
        because="who waits for a range to part is woken by the next one that ends, which costs time only",
    ),
    Equivalent(
        "scripts/helpers/display/redaction.py",
        "_filtered.add(name)",
        "pass",
        because="a logger takes the same filter once; to ask each for it again costs time only",
    ),
    Equivalent(
        "scripts/report/charts.py",
        "top = max((count + mark for count, mark in zip(counts, marks, strict=True)), default=0) or 1",
        "(1)",
        because="a chart without a bar, or with none that is higher than 0, ends at 1 in either way",
    ),
    Equivalent(
        "scripts/helpers/sinks/iceberg.py",
        'return int(snapshot.summary["total-records"]) if snapshot is not None else 0',
        "(1)",
        because="a table without a snapshot loses no row, so that the totals before and after are the same",
    ),
    Equivalent(
        "scripts/helpers/listing/orc_child.py",
        "found = pc.max(pc.binary_length(column)).as_py() or 0",
        "(1)",
        because="no limit of a text is as short as one byte",
    ),
    Equivalent(
        "scripts/helpers/sinks/places.py",
        'answer = self._client.delete_objects(Bucket=self.bucket, Delete={"Objects": part, "Quiet": True})  '
        "# type: ignore[typeddict-item]",
        "(False)",
        because="of the answer only the errors are read, and it has them in either way",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "if total <= MAX_BYTES:",
        "(total < MAX_BYTES)",
        because="values of exactly so many bytes are read the same, in chunks or not",
    ),
    Equivalent(
        "scripts/helpers/protocol/store.py",
        "ATTEMPTS = 4",
        "(3)",
        because="how often a write is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/sinks/file_types.py",
        'first = spark.read.format("text").options(**options).load(uri)'
        '.select(F.substring("value", 1, MAX_LINE)).head()',
        "(0)",
        because="Spark takes a substring from 0 for one from 1",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "packed = zlib.compress(raw, 6)",
        "(5)",
        because="any level is read the same, and levels differ in size and time only",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "packed = zlib.compress(raw, 6)",
        "(7)",
        because="any level is read the same, and levels differ in size and time only",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "if quotes <= 4 * most:",
        "(5)",
        because="what has so many quotes is refused in either way, by its values or as no JSON",
    ),
    Equivalent(
        "scripts/helpers/protocol/jobs.py",
        'units = float(page.get("ConsumedCapacity", {}).get("CapacityUnits", 0))',
        "(1)",
        because="each page is asked for its capacity, and DynamoDB says it",
    ),
    Equivalent(
        "scripts/helpers/protocol/jobs.py",
        "self._limit, self._pages_since_probe = FIRST_PAGE, 0",
        "(1)",
        because="the next look for short histories comes a page sooner, which costs reads only",
    ),
    Equivalent(
        "scripts/helpers/protocol/jobs.py",
        'return "watermarks"',
        "return None",
        because="it is only compared with the two kinds of the Job Runs API",
    ),
    Equivalent(
        "scripts/helpers/protocol/lookups.py",
        "request = requests.query_log(self.store.table_name, job_id, below=max(below, 1), page=page)",
        "(0)",
        because="versions begin at 1, so nothing is below either",
    ),
    Equivalent(
        "scripts/helpers/protocol/names.py",
        "return before[1] == after[1] and int(before[2] or 0) <= int(after[2] or 0)",
        "(-1)",
        because="of the run that has the job: no attempt is below either. Of the other run a test notices it",
    ),
    Equivalent(
        "scripts/helpers/protocol/pace.py",
        "units = math.ceil((data_bytes + KEY_BYTES) / 1024)",
        "(1023)",
        because="a chunk counts for at most a unit more, which costs time only",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "limit = min(self.longest_pause, self.first_pause * 2.0 ** min(race - 1, 60))",
        "(59)",
        because="the longest pause is reached long before",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "limit = min(self.longest_pause, self.first_pause * 2.0 ** min(race - 1, 60))",
        "(61)",
        because="the longest pause is reached long before",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "TO_COMMIT_AT_ONCE = Patience(tries=30, first_pause=0.2, longest_pause=15.0)",
        "(29)",
        because="how often a change is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "TO_COMMIT_AT_ONCE = Patience(tries=30, first_pause=0.2, longest_pause=15.0)",
        "(31)",
        because="how often a change is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "TO_WRITE_CHUNKS = Patience(tries=60, first_pause=0.2, longest_pause=5.0)",
        "(59)",
        because="how often a change is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "TO_WRITE_CHUNKS = Patience(tries=60, first_pause=0.2, longest_pause=5.0)",
        "(61)",
        because="how often a change is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "TO_RECORD = Patience(tries=10, first_pause=0.2, longest_pause=5.0)",
        "(9)",
        because="how often a change is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "TO_RECORD = Patience(tries=10, first_pause=0.2, longest_pause=5.0)",
        "(11)",
        because="how often a change is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/protocol/retention.py",
        "PAGE = 25",
        "(24)",
        because="how many log entries one request reads changes how many requests there are, and not what is found",
    ),
    Equivalent(
        "scripts/helpers/protocol/retention.py",
        "PAGE = 25",
        "(26)",
        because="how many log entries one request reads changes how many requests there are, and not what is found",
    ),
    Equivalent(
        "scripts/helpers/protocol/store.py",
        "ATTEMPTS = 4",
        "(5)",
        because="how often a write is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "if abs(value) < 10**MAX_DIGITS:",
        "(9)",
        because="an int of up to 38 digits is written the same as a Decimal, which only takes longer",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "if value.bit_length() > 4 * (MAX_EXPONENT + 1):",
        "(0)",
        because="an int of 419 bits is refused already; from how many on it is not converted first is a choice",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "long = len(digits) > MAX_DIGITS or int(exponent) < LAST_PLACE",
        "(int(exponent) <= LAST_PLACE)",
        because="zeros at the end are left out that DynamoDB trims anyway; it takes in either way of writing",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "long = len(digits) > MAX_DIGITS or int(exponent) < LAST_PLACE",
        "(len(digits) >= MAX_DIGITS)",
        because="zeros at the end are left out that DynamoDB trims anyway; it takes in either way of writing",
    ),
    Equivalent(
        "scripts/helpers/protocol/retention.py",
        "if not gone or entry.version == 1:",
        "(0)",
        because="before the first version the query finds none, which costs a request only",
    ),
    Equivalent(
        "scripts/helpers/protocol/store.py",
        "if attempt + 1 == ATTEMPTS or self.timer() - started + pause > budget:",
        "(self.timer() - started + pause >= budget)",
        because="a random pause does not end at the very end of the budget",
    ),
    Equivalent(
        "scripts/helpers/protocol/store.py",
        "return []",
        "return None",
        because="the callers ask only whether there are any",
    ),
    Equivalent(
        "scripts/helpers/protocol/store.py",
        'status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)',
        "(-1)",
        because="it is compared with 500 only",
    ),
    Equivalent(
        "scripts/helpers/protocol/store.py",
        'status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)',
        "(1)",
        because="it is compared with 500 only",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "if value.bit_length() > 4 * (MAX_EXPONENT + 1):",
        "(2)",
        because="an int of 419 bits is refused already; from how many on it is not converted first is a choice",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "if value.bit_length() > 4 * (MAX_EXPONENT + 1):",
        "(value.bit_length() >= 4 * (MAX_EXPONENT + 1))",
        because="an int of 419 bits is refused already; from how many on it is not converted first is a choice",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "if not all(type(number) is int and number >= 0 for number in (reference.chunks, reference.length)):",
        "(1)",
        because="no value is stored as 0 chunks or 0 bytes; who reads such a reference gets a CorruptItemError anyway",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "if not all(type(number) is int and number >= 0 for number in (reference.chunks, reference.length)):",
        "(number > 0)",
        because="no value is stored as 0 chunks or 0 bytes; who reads such a reference gets a CorruptItemError anyway",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "return trimmed if int(trimmed.as_tuple().exponent) <= 0 else Decimal(int(trimmed))",
        "(-1)",
        because="a whole Decimal made of its int is the same, and DynamoDB keeps no sign of 0",
    ),
    Equivalent(
        "scripts/helpers/protocol/values.py",
        "return trimmed if int(trimmed.as_tuple().exponent) <= 0 else Decimal(int(trimmed))",
        "(int(trimmed.as_tuple().exponent) < 0)",
        because="a whole Decimal made of its int is the same, and DynamoDB keeps no sign of 0",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "INLINE_BYTES = 2_000",
        "(1999)",
        because="a blob of about so many bytes is read the same, in chunks or not",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "INLINE_BYTES = 2_000",
        "(2001)",
        because="a blob of about so many bytes is read the same, in chunks or not",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "WORTH_BYTES = 1_000",
        "(999)",
        because="an entry of about so many bytes is read the same, in chunks or not",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "WORTH_BYTES = 1_000",
        "(1001)",
        because="an entry of about so many bytes is read the same, in chunks or not",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "MAX_MARKS = 16 * MAX_ENTRIES",
        "(15)",
        because="what is written has fewer than half as many; how many of an altered value are read is a choice",
    ),
    Equivalent(
        "scripts/helpers/protocol/chunks.py",
        "MAX_MARKS = 16 * MAX_ENTRIES",
        "(17)",
        because="what is written has fewer than half as many; how many of an altered value are read is a choice",
    ),
    Equivalent(
        "scripts/helpers/protocol/pace.py",
        "KEY_BYTES = 200",
        "(199)",
        because="it is an estimate; at a few lengths a chunk counts for a unit more or less, which is a millisecond",
    ),
    Equivalent(
        "scripts/helpers/protocol/pace.py",
        "KEY_BYTES = 200",
        "(201)",
        because="it is an estimate; at a few lengths a chunk counts for a unit more or less, which is a millisecond",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "TO_CHANGE_A_JOB = Patience(tries=40, first_pause=0.05, longest_pause=5.0)",
        "(39)",
        because="how often a change is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "TO_CHANGE_A_JOB = Patience(tries=40, first_pause=0.05, longest_pause=5.0)",
        "(41)",
        because="how often a change is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "TO_CHANGE_A_RUN = Patience(tries=40)",
        "(39)",
        because="how often a change is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/protocol/races.py",
        "TO_CHANGE_A_RUN = Patience(tries=40)",
        "(41)",
        because="how often a change is tried is a choice; what follows when tries are used up is tested",
    ),
    Equivalent(
        "scripts/helpers/sinks/delta.py",
        "return recorded_with_deltalake(table, _app(of)) if table is not None else 0",
        "(-1)",
        because="it is compared with versions, which begin at 1",
    ),
    Equivalent(
        "scripts/helpers/sinks/places.py",
        "if size < MAX_COPY_BYTES:",
        "(size <= MAX_COPY_BYTES)",
        because="S3 copies an object of exactly so many bytes in either way",
    ),
    Equivalent(
        "scripts/helpers/sinks/places.py",
        "self._copy(PROBE, to, PROBE, 0)",
        "(1)",
        because="the size only decides whether to copy in parts, from 5 GiB on",
    ),
    Equivalent(
        "scripts/helpers/sinks/staged_rows.py",
        "return 0",
        "return None",
        because="the only caller raises for a number that is not 0, and None is as false",
    ),
    Equivalent(
        "scripts/helpers/sinks/staged_rows.py",
        'return pc.sum(pc.equal(column.cast(pa.string()), "")).as_py() or 0',
        """(pc.equal('', column.cast(pa.string())))""",
        because="equality has no order of its sides",
    ),
]
