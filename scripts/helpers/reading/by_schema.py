"""Read planned files with the columns that `on_schema_change` decides, whatever columns the files of a batch have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from scripts.helpers._lazy import Column, DataFrame, F, S3Client, SparkSession, T
from scripts.helpers.errors import FileContentError, InvalidValueError, MisfitError
from scripts.helpers.listing.paths import folder_columns
from scripts.helpers.reading.dialects import check_reader_options, format_name, nanoseconds_of, with_dialect
from scripts.helpers.reading.fetched_lines import GZIP, NAMED_WRONG, marked
from scripts.helpers.reading.headers import avro_schema, can_compare, csv_header, grouped_by_header
from scripts.helpers.reading.misfits import Misfits, check_related, differing
from scripts.helpers.reading.probe import check_numbers, nanosecond_columns
from scripts.helpers.reading.records import REASON, RECORD, TIME_OF_DAY, lowered, marker
from scripts.helpers.schemas.kinds import Columns, Kind, common, differing_by_case
from scripts.helpers.schemas.policy import Decision, Given, OnSchemaChange, check_policy, decide
from scripts.helpers.schemas.spark_frames import check_rescue, columns_of_schema, fitted, quoted, struct_of, type_of

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location

TEXTS = ("csv", "json", "xml")
"""Formats whose types are inferred, so that values may not fit."""
RESCUED = "_rescued"
_FLAGS = ("header", "multiline", "enforceschema", "wholetext")
"""Options that this module evaluates. Their values must be true or false, as they are compared as text."""

_DUPLICATES = re.compile("(?:COLUMN_ALREADY_EXISTS|duplicate column)(?:[^`]*(`[^`]+`))?")
"""Matches Spark's error about duplicate columns; the group is the name of the column."""

ReadFiles = Callable[[pa.Table, Any, Mapping[str, Any]], "DataFrame"]
"""Reads some files with a schema and reader options. With None as schema, it infers columns and types."""


class Part(NamedTuple):
    """Files with the same header, and their columns.

    `frame` has the rows as Spark reads them; None if it was not created. `header` is empty if it was not fetched.
    """

    table: pa.Table
    columns: Mapping[str, Kind]
    frame: DataFrame | None = None
    header: bytes = b""


def _first_key(part: Part) -> str:
    return str(part.table["key"][0].as_py())


def _columns_of_files(part: Part) -> list[str]:
    """Return the names of the columns that the files of a part contain; columns of its folders are left out."""
    folders = {name.lower() for name in folder_columns(_first_key(part))}
    return [name for name in part.columns if name.lower() not in folders]


@dataclass(frozen=True)
class Asked:
    """How files are to be read.

    Attributes
    ----------
    format, schema, path_column, options
        As in `read_files`; the format as `format_name` returns it.
    policy
        What happens to columns that changed. None means ``add`` for CSV and JSON, and ``take`` for other formats. XML
        is among these, as its types vary by batch: several elements of one name are a list, but a single one is not.
    rescue
        Name of the column for values that do not fit; None for no such column.
    """

    format: str
    schema: T.StructType | str | None = None
    path_column: str | None = None
    policy: OnSchemaChange | None = None
    rescue: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        format: str,
        policy: Any,
        rescue: bool | str,
        *,
        options: Mapping[str, Any],
        **others: Any,
    ) -> Asked:
        """Check the arguments of a caller, and return them as `Asked`.

        Raises
        ------
        InvalidValueError
            A value is invalid, or cannot be combined with the other options.
        """
        called = format_name(format)
        check_reader_options(called, options)
        if policy is not None:
            check_policy(policy)
        if not isinstance(rescue, (bool, str)) or rescue == "":
            raise InvalidValueError(f"rescue is {rescue!r}. Use True, or the name of a column.")
        name = RESCUED if rescue is True else rescue or None
        options = with_dialect(called, options)
        for flag, value in options.items():
            if flag.lower() in _FLAGS and value is not None:
                if str(value).lower() not in ("true", "false"):
                    raise InvalidValueError(f"{flag} is {value!r}. Pass True or False.")
                options[flag] = str(value).lower() == "true"
        made = cls(called, policy=policy, rescue=name, options=options, **others)
        wide = re.match("utf[-_]?(16|32)", str(made.option("encoding") or made.option("charset")).lower())
        is_cut = called in ("csv", "json") and str(made.option("multiLine")).lower() != "true"
        if wide and is_cut and made.option("lineSep") is None:
            raise InvalidValueError(f"{wide[0].upper()} cannot be cut into lines at single bytes. Pass multiLine=True.")
        if name is not None and name == made.path_column:
            raise InvalidValueError(f"rescue and path_column are both {name!r}. Give one of them another name.")
        if name is not None and made.handles_misfits:
            raise InvalidValueError(
                "rescue does not go with mode or columnNameOfCorruptRecord, by which Spark decides what becomes of "
                "values that do not fit. Leave one of the two out."
            )
        return made

    @property
    def is_text(self) -> bool:
        """Whether the types of the files' columns are inferred from texts."""
        return self.format in TEXTS

    @property
    def handles_misfits(self) -> bool:
        """Whether the caller's options set what Spark does with values that do not fit."""
        return self.is_text and bool({"mode", "columnnameofcorruptrecord"} & {name.lower() for name in self.options})

    @property
    def finds_by_header(self) -> bool:
        """Whether CSV columns are found by name. If Spark's enforceSchema is given, they are found by position."""
        has_header = str(self.option("header")).lower() == "true"
        return self.format == "csv" and has_header and self.option("enforceSchema") is None

    @property
    def policy_in_force(self) -> OnSchemaChange:
        """The policy that applies: the given one, or the default of the format."""
        return self.policy or ("add" if self.format in ("csv", "json") else "take")

    def option(self, option: str) -> Any:
        """Return a reader option, ignoring the case of its name as Spark does; None if it is not given."""
        return next((value for name, value in self.options.items() if name.lower() == option.lower()), None)


@dataclass(frozen=True)
class SchemaReader:
    """Reads planned files of one source.

    Parameters
    ----------
    asked
        How to read the files.
    read_files
        Function that returns the rows of some of the files, with the columns of their folders and `Asked.path_column`.
    kept
        The columns that earlier batches had; None for the first batch.
    context
        The name of the source in its job, for error texts.
    client, request_payer
        Used to fetch headers of CSV files from S3.
    skip_changed
        Whether `read_files` leaves out files that were overwritten or deleted.
    """

    spark: SparkSession
    location: Location
    asked: Asked
    read_files: ReadFiles
    kept: Columns | None
    context: str | None = None
    client: S3Client | None = None
    request_payer: bool = False
    skip_changed: bool = False

    def decided(self, table: pa.Table) -> tuple[Decision, list[Part]]:
        """Decide which columns the rows of some files get. Return the decision, and the files grouped by their headers.

        Raises
        ------
        SchemaChangedError
            The policy does not allow a change.
        MisfitError
            A JSON record cannot be parsed, and there is no rescue column.
        InvalidValueError, SourceError
            Two options exclude each other, or `spark.read_files` refuses the files or options.
        """
        asked = self.asked
        if not table.num_rows:
            columns = self._given_columns() or (self.kept if asked.policy_in_force != "take" else None)
            if columns is None:
                # Use the columns that Spark returns even without files, such as `value` for text.
                columns = self._found(table).columns
            return Decision(columns, columns), [Part(table, columns)]
        if asked.schema is not None:
            return self._by_given_schema(table)
        policy, parts = asked.policy_in_force, [self._found(*part) for part in self._groups(table)]
        decision = decide(self._where(), self.kept, self._merged(parts), policy, rescues=self._rescues)
        if asked.finds_by_header:
            kept = () if policy == "take" else self.kept or ()
            check_related(str(self.location), kept, {_first_key(part): _columns_of_files(part) for part in parts})
        return decision, parts

    def again(self, decision: Decision, parts: list[Part], table: pa.Table) -> tuple[Decision, list[Part]]:
        """Return arguments of `read` for only the files in `table`; `decision` and `parts` are those of all files."""
        if self.asked.finds_by_header or self.asked.format == "avro":
            return decision, [self._found(*part) for part in self._groups(table)]
        # Read Parquet and ORC with the types in the files: Spark cannot read each such type as the type in `decision`.
        return decision, [Part(table, decision.target if self.asked.is_text else parts[0].columns)]

    def read(self, decision: Decision, parts: list[Part]) -> DataFrame:
        """Return the rows of the files, lazily, with the columns of a decision."""
        asked = self.asked
        if asked.rescue is not None:
            check_rescue(asked.rescue, decision.target)
        as_it_is = asked.policy_in_force == "take" and asked.rescue is None
        if asked.is_text and not (as_it_is and asked.policy is not None and len(parts) == 1):
            frames = [self._texts(decision, part) for part in parts]
            return reduce(lambda one, other: one.unionByName(other), frames)
        frames = []
        for part in parts:
            frame = part.frame
            # If the caller gave a schema, do not use `part.frame`: it served to find the header, with inferred types.
            if frame is None or asked.schema is not None:
                # In an empty batch use `part.columns` (of a schema or earlier batches): no file has columns to infer.
                schema = asked.schema if part.table.num_rows else None
                frame = self._frame(part.table, schema or struct_of(part.columns))
            if not as_it_is or len(parts) > 1:
                beside = [] if asked.path_column is None else [asked.path_column]
                frame = fitted(frame, decision, asked.rescue, beside)
            frames.append(frame)
        return reduce(lambda one, other: one.unionByName(other), frames)

    # --- which columns there are ----------------------------------------------------------------

    def _given_columns(self) -> dict[str, Kind] | None:
        if self.asked.schema is None:
            return None
        given = columns_of_schema(self.spark.createDataFrame([], self.asked.schema).schema)
        alike = differing_by_case(given)
        if self.asked.is_text and alike:
            raise InvalidValueError(f"schema names {', '.join(alike)}, which differ only by case. Rename one of them.")
        return given

    @property
    def _rescues(self) -> bool:
        """Whether values of a wrong type are rescued. Not in XML: Spark may read a part of a value without an error."""
        return self.asked.rescue is not None and self.asked.format != "xml"

    def _where(self) -> Given:
        # Let a changed type in XML stop the run: if an element repeats now, Spark would read only its last value.
        is_text, may_lack = self.asked.format in ("csv", "json"), self.asked.format in ("json", "xml")
        return Given(str(self.location), self.context, is_text, may_lack)

    def _by_given_schema(self, table: pa.Table) -> tuple[Decision, list[Part]]:
        """Return decision and parts for a schema that the caller gave. That schema is also stored for later batches."""
        asked, wanted = self.asked, self._given_columns()
        assert wanted is not None
        if not asked.is_text or (asked.format == "csv" and not self.asked.finds_by_header):
            if asked.policy not in (None, "take"):
                why = f"columns of {asked.format} have their types in the files"
                if asked.is_text:
                    why = "CSV without a header has no names of columns to compare"
                raise InvalidValueError(
                    f"on_schema_change={asked.policy!r} does not go with schema= here: {why}. Leave one of them out."
                )
            if asked.format == "parquet" and (self.location.is_local or self.location.is_s3):
                check_numbers(self.location, table, wanted, self.client, self.request_payer)
            return Decision(wanted, wanted), [Part(table, wanted)]
        if asked.format != "csv" and asked.policy in (None, "take"):
            # Do not look for other columns in the files: the schema may select only some of them on purpose.
            return Decision(wanted, wanted), [Part(table, wanted)]
        parts = [self._found(*part) for part in self._groups(table)]
        decision = Decision(wanted, wanted)
        if asked.policy not in (None, "take"):
            decision = decide(self._where(), wanted, self._merged(parts), asked.policy, rescues=self._rescues)
        if asked.format == "csv":
            self._check_names(wanted, parts)
        return decision, parts

    def _check_names(self, wanted: Columns, parts: list[Part]) -> None:
        """Raise InvalidValueError if a header has no name of the schema: the caller may mean columns by position."""
        known = {name.lower() for name in wanted}
        for part in parts:
            if part.columns and not known & {name.lower() for name in _columns_of_files(part)}:
                raise InvalidValueError(
                    f"schema names {', '.join(wanted)}, and the header of {part.table.num_rows:,} of the CSV files has "
                    f"none of these: it has {', '.join(part.columns)}. Name columns as the header does. To go by their "
                    "position, whatever the header says, pass enforceSchema=True."
                )

    def _groups(self, table: pa.Table) -> list[tuple[pa.Table, bytes]]:
        asked = self.asked
        is_avro = asked.format == "avro" and asked.option("avroSchema") is None
        if not (is_avro or asked.finds_by_header) or not can_compare(self.location, table):
            return [(table, b"")]
        first_line = avro_schema if is_avro else partial(csv_header, lowered(asked.options))
        return grouped_by_header(
            self.location, table, first_line, self.client,
            request_payer=self.request_payer, skip_changed=self.skip_changed,
        )  # fmt: skip

    def _found(self, table: pa.Table, header: bytes = b"") -> Part:
        """Return the columns that Spark infers from some files. If only names are needed, read only the first file."""
        asked = self.asked
        names_only = asked.schema is not None and asked.policy in (None, "take")
        try:
            frame = self._frame(table.slice(0, 1) if names_only and header else table, None)
        except Exception as error:
            # Spark raises this error for equal names inside a struct. Equal names of columns are found below.
            if asked.format == "json" and (same := _DUPLICATES.search(str(error))):
                names = same[1] or "see Spark's error"
                raise MisfitError(str(self.location), None, names, MisfitError.CASE) from error
            raise
        found = columns_of_schema(frame.schema)
        if asked.path_column is not None:
            del found[asked.path_column]
        if not asked.is_text or not self._looks_at_values:
            return Part(table, found, frame, header)
        if asked.format == "csv" and next(iter(found), "").startswith(GZIP.decode("latin-1")):
            raise FileContentError(str(self.location), _first_key(Part(table, found)), "csv", NAMED_WRONG)
        if asked.format == "csv" and any("\ufffd" in name for name in found):
            raise MisfitError(str(self.location), None, "", MisfitError.ENCODING)
        alike = differing_by_case(found)
        if alike:
            raise MisfitError(str(self.location), None, ", ".join(alike), MisfitError.CASE)
        if found.pop(self._corrupt, None) is not None and asked.rescue is None:
            raise MisfitError(str(self.location), None, asked.format)
        times = [name for name, kind in found.items() if kind == "timestamp"]
        if times and asked.option("timestampFormat") is None:
            # Spark infers 09:00 as a timestamp of today. Look for such texts in 100 rows: `Misfits` finds later ones.
            texts = self._frame(table, struct_of(found | dict.fromkeys(times, "string")))
            rows = texts.select(*(quoted(name).rlike(TIME_OF_DAY) for name in times)).take(100)
            found |= {name: "string" for place, name in enumerate(times) if any(row[place] for row in rows)}
        return Part(table, found, frame, header)

    def _merged(self, parts: list[Part]) -> dict[str, Kind]:
        """Return the columns of all parts, each with a type that fits the values of all parts, or else string."""
        merged: dict[str, Kind] = {}
        spelled: dict[str, str] = {}
        for part in parts:
            for name, kind in part.columns.items():
                known = spelled.setdefault(name.lower(), name)
                both = common(merged.get(known, kind), kind)
                if both is None and not self.asked.is_text:
                    raise differing(str(self.location), name, _first_key(part), kind, merged[known])
                merged[known] = both or "string"
        return merged

    # --- rows -----------------------------------------------------------------------------------

    def _frame(self, table: pa.Table, schema: Any, **more: Any) -> DataFrame:
        asked = self.asked
        options = {**asked.options, **more}
        if self.asked.finds_by_header and table.num_rows > 1 and not can_compare(self.location, table):
            # Let Spark compare headers; otherwise it reads values by position under the header of the first file.
            options["enforceSchema"] = False
        names = {}
        if nanoseconds_of(asked.format, options)[0] == "microseconds":
            names = nanosecond_columns(self.location, table, self.client, self.request_payer)
        if names and schema is not None:
            given = columns_of_schema(self.spark.createDataFrame([], schema).schema)
            schema = struct_of({name: "long" if name in names else kind for name, kind in given.items()})
        frame = self.read_files(table, schema, options)
        if not names:
            return frame
        return frame.select(*(self._time(one, names[one]) if one in names else quoted(one) for one in frame.columns))

    def _time(self, name: str, is_utc: bool) -> Column:
        """Return a column of nanoseconds as times, in UTC or without a zone. Spark 3.3 has only times in UTC."""
        value = quoted(name)
        seconds = (value.cast("decimal(20,0)") / 10**9).cast("decimal(18,6)")
        # Use the type object: spark.sql.timestampType can make the text "timestamp" mean a time without a zone.
        time = seconds.cast(type_of("timestamp"))
        if not is_utc and self.spark.version >= "3.4":
            time = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + seconds.cast("interval second")
        detail = f"column {name!r} has nanoseconds, and a time with a part of a microsecond. Read it as bigint."
        error = MisfitError(str(self.location), name, "timestamp", detail=detail)
        fails = F.raise_error(F.lit(marked(error)))
        return F.when(value % 1000 != 0, fails).otherwise(time).alias(name)

    def _texts(self, decision: Decision, part: Part) -> DataFrame:
        """Read files with the same header: each column by its name, with the type that `decision` has for it."""
        asked = self.asked
        left_out = {name.lower() for name in decision.left_out}
        kinds = self._kinds_to_read(decision, part.columns)
        keys = part.table.column("key").to_pylist()
        folders = {name.lower() for name in folder_columns(keys[0])} if keys else set()
        in_files = {name: kind for name, kind in kinds.items() if name.lower() not in folders}
        looks = bool(keys) and self._looks_at_values
        if looks:
            mark = marker(inferred=asked.schema is None, header=part.header, rescues=asked.rescue is not None)
            marked = struct_of(kinds).add(mark)
            frame = self._frame(part.table, marked, columnNameOfCorruptRecord=RECORD)
        else:
            frame = self._frame(part.table, struct_of(kinds))
        misfits = Misfits(str(self.location), asked.format, in_files, asked.options, REASON in frame.columns)
        there = {name.lower(): name for name in kinds}
        selected: list[Column] = []
        for name, kind in decision.target.items():
            in_file = there.get(name.lower())
            if in_file is None:
                selected.append(F.lit(None).cast(type_of(kind)).alias(name))
            elif looks and asked.rescue is None:
                selected.append(misfits.checked(in_file).alias(name))
            else:
                selected.append(quoted(in_file).alias(name))
        if asked.rescue is not None:
            beside = [name for name in kinds if name.lower() in left_out]
            rescued = misfits.rescued(beside) if looks else F.lit(None).cast("string")
            selected.append(rescued.alias(asked.rescue))
        if asked.path_column is not None:
            selected.append(quoted(asked.path_column))
        return frame.select(*selected)

    def _kinds_to_read(self, decision: Decision, columns: Mapping[str, Kind]) -> dict[str, Kind]:
        """Return the columns to read from files, spelled as in the files, with the types that `decision` chose."""
        wanted = {name.lower(): kind for name, kind in decision.target.items()}
        kinds: dict[str, Kind] = {}
        for name, kind in columns.items():
            if name.lower() in wanted:
                kinds[name] = wanted[name.lower()]
            elif self.asked.format == "csv" or self.asked.rescue is not None:
                # Read a column that is not wanted, too: CSV counts positions, and a rescue column stores its values.
                kinds[name] = kind
        if kinds and self._corrupt in decision.target and not self._looks_at_values:
            kinds.setdefault(self._corrupt, decision.target[self._corrupt])
        return kinds

    @property
    def _corrupt(self) -> str:
        """The name of the column to which Spark writes the text of records that it cannot read."""
        named = self.asked.option("columnNameOfCorruptRecord")
        return str(named or self.spark.conf.get("spark.sql.columnNameOfCorruptRecord"))

    @property
    def _looks_at_values(self) -> bool:
        """Whether to look for values that do not fit. False if the caller lets Spark handle such values."""
        asked = self.asked
        if asked.rescue is not None:
            return True
        given = self._given_columns() or {}
        return not (asked.handles_misfits or asked.policy == "take" or self._corrupt in given)
