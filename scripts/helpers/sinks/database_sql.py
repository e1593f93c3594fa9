"""The statements by which a batch gets into a table of a database, through a landing and a staging table. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence

from scripts.helpers.databases.database import TableColumn
from scripts.helpers.databases.writing import Arriving, WritableDatabase
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.sql import SQL, VALUE, Bound, Values, in_quotes, internal, joined, naming, of_catalogue, sql
from scripts.helpers.sinks.merging import DELETED, Merge
from scripts.helpers.sinks.outputs import LANDING, batch_value, epoch_in_batches

BATCHES = "glue_watermarks_batches"
"""The table beside the target that holds the batches which are published."""
GONE = "glue_watermarks_deleted_"
"""How the table of remembered deletes begins; the name of the target follows."""
TAKEN_BACK = "taken back"
"""What stands for the staging table of a batch that is never to be published."""
LOCK = "lock of merges"
"""What stands for the staging table in the row of a target that merges lock."""
OF_JOB = sql("target = {0} AND job = {0} AND epoch = {0} AND job_name = {0}", VALUE)
"""Condition for the batches of a job and epoch in the table beside the target."""
OF_BATCH = sql("{} AND version = {}", OF_JOB, VALUE)
KEPT = sql("{0} AND version BETWEEN {1} AND {1} AND staged <> {2}", OF_JOB, VALUE, in_quotes(TAKEN_BACK))
OF_LOCK = sql("target = {} AND job = '' AND epoch = '' AND version = 0", VALUE)
BATCHES_AT_ONCE = 10_000
"""Batches in one statement, each as two values: SQLite takes 32,766 of them, and PostgreSQL 65,535."""
ROW = internal("row")
"""Column of a staging table that tells its rows apart."""
PLACE, STARTED, ENDED = internal("place"), internal("started"), internal("ended")
"""What is computed in a statement."""
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|\w+|.""", re.DOTALL)


def checks_in(definition: str) -> list[str]:
    """Return the conditions of the CHECK constraints in the definition of a table, each in its parentheses.

    >>> checks_in("CREATE TABLE t (id int CHECK (id > 0), word text DEFAULT 'CHECK (', CHECK ((id < 9) OR word = ')'))")
    ['(id > 0)', "((id < 9) OR word = ')')"]
    """
    # With a backslash a text may end elsewhere. One that is not enforced refuses no row.
    is_clear = "\\" not in definition and "NOT ENFORCED" not in definition
    found, tokens = [], iter(_TOKENS.findall(definition) if is_clear else ())
    for word in tokens:
        if word.upper() == "CHECK":
            depth, text = 0, ""
            for token in tokens:
                depth += (token == "(") - (token == ")")
                text += token
                if not depth and text.strip():
                    break
            found.append(text.strip())
    return found


class Statements:
    """The statements about one target and its staging tables. All tables of ours lie in the schema of the target."""

    def __init__(self, database: WritableDatabase, schema: str, table: str) -> None:
        self.sql, self.schema, self.table = database, schema, table
        self.target, self.batches = self.beside(table), self.beside(BATCHES)

    def beside(self, table: str) -> SQL:
        """Return the quoted name of a table beside the target."""
        return self.sql.table([self.schema, table])

    @property
    def gone_table(self) -> str:
        """The name of the table of remembered deletes."""
        name = GONE + self.table
        limit = self.sql.longest_name
        if limit and len(name.encode()) > limit:
            return GONE + hashlib.sha256(self.table.encode()).hexdigest()[:16]
        return name

    # --- staging --------------------------------------------------------------------------------

    def create_landing(self, staging: str, columns: Sequence[Arriving]) -> SQL:
        """Return the CREATE TABLE for rows as they arrive."""
        # `a` and `p` keep the attempts of Spark's tasks apart: one that is lost after its commit is done again.
        declared = [sql("{} {}", column.landing, self.sql.landing_type(column)) for column in columns]
        listed = joined(", ", [*declared, sql("a bigint DEFAULT ({}), p bigint, n bigint, d bigint", self.sql.attempt)])
        return sql("CREATE TABLE {} ({}){}", self.beside(staging + LANDING), listed, self.sql.engine)

    def create_staging(self, staging: str, columns: Sequence[Arriving]) -> SQL:
        """Return the CREATE TABLE with columns of the target, and two of ours."""
        # Never UNLOGGED or temporary: after a crash of the server a batch that is committed would be gone.
        table = self.beside(staging)
        names = [self.sql.quote(column.name) for column in columns]
        if not names:
            return sql("CREATE TABLE {} ({} bigint, {} bigint){}", table, DELETED, ROW, self.sql.engine)
        return self.sql.create_like(table, names, self.target, (DELETED, ROW))

    def copy(self, staging: str, columns: Sequence[tuple[Arriving, TableColumn]]) -> SQL:
        """Return the INSERT that brings the rows of one attempt at each task from landing to staging."""
        names = self._list([*(column.name for column, _ in columns), DELETED, ROW])
        values = [self.sql.arrived(column, found.declared) for column, found in columns]
        return sql(
            "INSERT INTO {} ({}) SELECT {} FROM {landing} l JOIN "
            "(SELECT p, MIN(a) AS a FROM {landing} GROUP BY p) taken ON taken.p = l.p AND taken.a = l.a",
            self.beside(staging), names, joined(", ", [*values, sql("COALESCE(l.d, 0), l.n")]),
            landing=self.beside(staging + LANDING),
        )  # fmt: skip

    def nulls(self, staging: str, column: Arriving, *, in_deletes: bool) -> SQL:
        """Return the count of rows without a value in a column."""
        count = sql("SELECT COUNT(*) FROM {} l WHERE l.{} IS NULL", self.beside(staging + LANDING), column.landing)
        return count if in_deletes else sql("{} AND COALESCE(l.d, 0) = 0", count)

    def changed(self, staging: str, columns: Sequence[tuple[Arriving, TableColumn]]) -> SQL | None:
        """Return the counts, for each column, of staged values that are not those that arrived; None if none can be."""
        changes = [self.sql.changes(*pair) for pair in columns]
        if not any(changes):
            return None
        counts = [sql("COUNT(CASE WHEN {} THEN 1 END)", change or sql("1 = 0")) for change in changes]
        if not self.sql.compares_staged:
            return sql("SELECT {} FROM {} l", joined(", ", counts), self.beside(staging + LANDING))
        return sql(
            "SELECT {} FROM {landing} l JOIN (SELECT p, MIN(a) AS a FROM {landing} GROUP BY p) taken "
            "ON taken.p = l.p AND taken.a = l.a JOIN {} s ON s.{} = l.n",
            joined(", ", counts), self.beside(staging), ROW, landing=self.beside(staging + LANDING),
        )  # fmt: skip

    def refused(
        self, staging: str, constraints: Sequence[Sequence[str | None]], absent: Collection[str], *, has_keys: bool
    ) -> dict[str, SQL]:
        """Return the counts of staged rows that constraints refuse, by constraint.

        Parameters
        ----------
        constraints
            What the queries of `WritableDatabase.constraints` find.
        absent
            Columns that the rows lack: what is there is known when they are inserted.
        has_keys
            Whether no two staged rows may share a unique key.
        """
        lacks, staged = naming(absent), self.beside(staging)
        counts: dict[str, SQL] = {}
        keys: dict[str, list[tuple[str, str]]] = {}
        for name, text, *condition in constraints:
            for check in checks_in(text or ""):
                if not lacks(check):
                    # Of a delete no row is left.
                    where = sql("{} = 0 AND NOT {}", DELETED, of_catalogue(check))
                    counts[f"CHECK {check}"] = sql("SELECT COUNT(*) FROM {} WHERE {}", staged, where)
            if name is not None and condition and has_keys:
                keys.setdefault(name, []).append((text or "", condition[0] or "(1 = 1)"))
        for parts in keys.values():
            if all(part and not lacks(f"{part} {condition}") for part, condition in parts):
                listed = [of_catalogue(part) for part, _ in parts]
                where = _all(of_catalogue(parts[0][1]), *(sql("({}) IS NOT NULL", part) for part in listed))
                counts[f"unique key ({joined(', ', listed)})"] = sql(
                    "SELECT COALESCE(SUM({0}), 0) FROM (SELECT COUNT(*) AS {0} FROM {1} WHERE {2} GROUP BY {3} "
                    "HAVING COUNT(*) > 1) copies",
                    PLACE, staged, where, joined(", ", listed),
                )  # fmt: skip
        return counts

    def count(self, table: str) -> SQL:
        """Return the count of all rows of a table beside the target."""
        return sql("SELECT COUNT(*) FROM {}", self.beside(table))

    def drop(self, table: str) -> SQL:
        """Return the DROP of a table of ours."""
        return sql("DROP TABLE IF EXISTS {}", self.beside(table))

    # --- publishing -----------------------------------------------------------------------------

    def record(self, of: Output | Retraction, version: int, staging: str) -> Bound:
        """Return the INSERT of a batch, which does nothing if it is there."""
        return self.sql.insert_once(self.batches), self._of(of, version, staging)

    def _of(self, of: Output | Retraction, *more: str | int) -> Values:
        """Return the values of `OF_JOB`, and more."""
        return [self.table, of.job[:8], epoch_in_batches(of), of.job_id[:255], *more]

    def forget(self, output: Output) -> Bound:
        """Return the DELETE of a batch."""
        return sql("DELETE FROM {} WHERE {}", self.batches, OF_BATCH), self._of(output, output.version)

    def versions(self, of: Output | Retraction) -> Bound:
        """Return the query for the version of an output, or for those to take back that are published, if recorded."""
        which, values = (OF_BATCH, [of.version]) if isinstance(of, Output) else (KEPT, [of.first, of.last])
        return sql("SELECT version FROM {} WHERE {}", self.batches, which), self._of(of, *values)

    def recorded(self, job: str) -> Bound:
        """Return the query for the last version of each epoch of the jobs whose marks begin like one; of all for ''."""
        of_job = sql("AND job = {}", VALUE) if job else sql("")
        statement = sql(
            "SELECT job, epoch, MAX(version) FROM {} WHERE target = {} {} GROUP BY job, epoch",
            self.batches, VALUE, of_job,
        )  # fmt: skip
        return statement, [self.table, *filter(None, [job[:8]])]

    def take_back(self, of: Retraction) -> Bound:
        """Return the UPDATE that records published batches as taken back."""
        statement = sql("UPDATE {} SET staged = {} WHERE {}", self.batches, in_quotes(TAKEN_BACK), KEPT)
        return statement, self._of(of, of.first, of.last)

    def count_of(self, of: Retraction, versions: Sequence[int]) -> list[Bound]:
        """Return the counts of rows whose batch column holds one of some versions."""
        return self._by_batch(sql("SELECT COUNT(*)"), of, versions)

    def delete_of(self, of: Retraction, versions: Sequence[int]) -> list[Bound]:
        """Return what deletes those rows."""
        return self._by_batch(sql("DELETE"), of, versions)

    def _by_batch(self, verb: SQL, of: Retraction, versions: Sequence[int]) -> list[Bound]:
        found: list[Bound] = []
        column = self.sql.quote(of.batch_column)
        for start in range(0, len(versions), BATCHES_AT_ONCE):
            batches = [batch_value(of, version) for version in versions[start : start + BATCHES_AT_ONCE]]
            # An index serves the first condition. The second leaves rows whose text a collation only takes for equal.
            statement = sql(
                "{} FROM {} WHERE {} IN ({marks}) AND {} IN ({marks})",
                verb, self.target, column, self.sql.binary(column), marks=joined(", ", [VALUE] * len(batches)),
            )  # fmt: skip
            found.append((statement, [*batches, *batches]))
        return found

    def lock_row(self) -> Bound:
        """Return the INSERT of the row that merges into this target lock, one at a time."""
        return self.sql.insert_once(self.batches), [self.table, "", "", "", 0, LOCK]

    def has_lock_row(self) -> Bound:
        """Return the query for that row."""
        return sql("SELECT staged FROM {} WHERE {}", self.batches, OF_LOCK), [self.table]

    def lock(self) -> Bound:
        """Return the UPDATE that waits until no other merge into this target is under way."""
        # Without it two merges, of different batches, could both find no row of a key and both insert one.
        return sql("UPDATE {} SET staged = {} WHERE {}", self.batches, in_quotes(LOCK), OF_LOCK), [self.table]

    def append(self, staging: str, names: Sequence[str]) -> list[SQL]:
        """Return what moves all rows to the target."""
        insert = sql("INSERT INTO {0} ({1}) SELECT {1} FROM {2}", self.target, self._list(names), self.beside(staging))
        return [insert] if names else []

    # --- merging --------------------------------------------------------------------------------

    def create_gone(self, merge: Merge) -> SQL:
        """Return the CREATE TABLE for remembered deletes: the key and the sequence of each."""
        names = [self.sql.quote(name) for name in (*merge.keys, *merge.sequence_by)]
        return self.sql.create_like(self.beside(self.gone_table), names, self.target)

    def drop_older(self, staging: str, merge: Merge) -> SQL:
        """Return the DELETE of staged rows for which a newer one of their key is staged."""
        newest_first = joined(", ", (sql("{} DESC", self.sql.quote(name)) for name in merge.sequence_by))
        return self._drop_ranked(staging, sql("RANK"), merge.keys, newest_first)

    def drop_copies(self, staging: str, merge: Merge) -> SQL:
        """Return the DELETE of staged rows that are there twice: what is left has one row for each key and sequence."""
        return self._drop_ranked(staging, sql("ROW_NUMBER"), (*merge.keys, *merge.sequence_by), ROW)

    def _drop_ranked(self, staging: str, function: SQL, partition: Sequence[str], order: SQL) -> SQL:
        return sql(
            "DELETE FROM {table} WHERE {row} IN (SELECT {row} FROM (SELECT {row}, "
            "{}() OVER (PARTITION BY {} ORDER BY {}) AS {place} FROM {table}) ranked WHERE {place} > 1)",
            function, self._list(partition), order, table=self.beside(staging), row=ROW, place=PLACE,
        )  # fmt: skip

    def ties_within(self, staging: str, merge: Merge, declared: Mapping[str, str]) -> SQL:
        """Return the count of staged rows that are tied with another one."""
        unequal, differ = sql("s.{0} <> t.{0}", DELETED), self._differ(merge, declared)
        # Two deletes are equal whatever else they hold.
        if differ:
            unequal = sql("{} OR (s.{} = 0 AND ({}))", unequal, DELETED, joined(" OR ", differ))
        return sql(
            "SELECT COUNT(*) FROM {table} t JOIN {table} s ON {} AND s.{row} < t.{row} WHERE {}",
            self._tied(merge), unequal, table=self.beside(staging), row=ROW,
        )  # fmt: skip

    def ties_beside(self, staging: str, merge: Merge, declared: Mapping[str, str]) -> SQL:
        """Return the count of staged rows that are tied with what the target has, or has deleted."""
        unequal = joined(" OR ", [sql("s.{} <> 0", DELETED), *self._differ(merge, declared)])
        return sql(
            "SELECT (SELECT COUNT(*) FROM {} t JOIN {staged} s ON {same} WHERE {}) + "
            "(SELECT COUNT(*) FROM {} t JOIN {staged} s ON {same} WHERE s.{} = 0)",
            self.target, unequal, self.beside(self.gone_table), DELETED,
            staged=self.beside(staging), same=self._tied(merge),
        )  # fmt: skip

    def _differ(self, merge: Merge, declared: Mapping[str, str]) -> list[SQL]:
        """Write for each column beside key and sequence that two rows differ in it."""
        return [
            self.sql.differ(sql("s.{}", self.sql.quote(name)), sql("t.{}", self.sql.quote(name)), declared[name])
            for name in declared
            if name not in (*merge.keys, *merge.sequence_by)
        ]

    def _tied(self, merge: Merge) -> SQL:
        return sql("{} AND {}", merge.matches(self.sql.quote), merge.ties(self.sql.quote))

    def merge(self, staging: str, merge: Merge, names: Sequence[str]) -> list[SQL]:
        """Return what brings staged rows, one for each key or event, into the target."""
        return self._versions(staging, merge, names) if merge.history else self._newest(staging, merge, names)

    def _newest(self, staging: str, merge: Merge, names: Sequence[str]) -> list[SQL]:
        writing, staged, gone = self.sql, self.beside(staging), self.beside(self.gone_table)
        match, newer = merge.matches(writing.quote), merge.newer(writing.quote)
        row, delete = sql("s.{} = 0", DELETED), sql("s.{} <> 0", DELETED)
        named, source = [*merge.keys, *merge.sequence_by], sql("{} s", staged)
        not_there, not_remembered = _none(self.target, match), _none(gone, match)
        no_newer_delete = _none(gone, match, sql("NOT {}", newer))

        def from_staged(columns: Sequence[str]) -> dict[str, SQL]:
            return {name: sql("s.{}", writing.quote(name)) for name in columns}

        return [
            # The keys, too: a collation may take two spellings for one.
            writing.update_from(self.target, source, match, from_staged(names), _all(row, newer)),
            writing.delete_where(self.target, _some(staged, match, delete, newer)),
            writing.update_from(gone, source, match, from_staged(named), _all(delete, newer)),
            self._insert(gone, named, staged, _all(delete, not_there, not_remembered)),
            self._insert(self.target, names, staged, _all(row, not_there, no_newer_delete)),
            # A newer row is there: no older one can bring the key back any more, so the delete need not be remembered.
            writing.delete_where(gone, _some(staged, match, row, newer)),
        ]

    def _versions(self, staging: str, merge: Merge, names: Sequence[str]) -> list[SQL]:
        assert merge.history is not None
        writing, staged, gone = self.sql, self.beside(staging), self.beside(self.gone_table)
        match = merge.matches(writing.quote)
        (by,) = merge.sequence_by
        from_, to = merge.history.valid_from, merge.history.valid_to
        start, end, sequence = map(writing.quote, (from_, to, by))
        # The column may be that of the sequence itself.
        started = [] if from_ in names else [from_]
        following = sql(
            "(SELECT {keys}, {started}, LEAD({started}) OVER (PARTITION BY {keys} ORDER BY {started}) AS {ended} FROM "
            "(SELECT {of_t}, t.{} AS {started} FROM {} t WHERE {touched} UNION "
            "SELECT {of_t}, t.{} FROM {} t WHERE {touched}) events) s",
            start, self.target, sequence, gone, keys=self._list(merge.keys), of_t=self._list(merge.keys, sql("t.")),
            touched=_some(staged, match), started=STARTED, ended=ENDED,
        )  # fmt: skip
        # Each time column is set to what it is: MySQL may have declared the first one ON UPDATE CURRENT_TIMESTAMP.
        sets = {to: sql("s.{}", ENDED), from_: sql("t.{}", start), by: sql("t.{}", sequence)}
        new_delete = sql("s.{} <> 0 AND {}", DELETED, _none(gone, match, merge.ties(writing.quote)))
        same_start = sql("t.{} = s.{}", start, sequence)
        new_row = sql("s.{} = 0 AND {}", DELETED, _none(self.target, match, same_start))
        return [
            self._insert(gone, [*merge.keys, by], staged, new_delete),
            self._insert(self.target, [*names, *started], staged, new_row, [*names, *(by for _ in started)]),
            writing.update_from(
                self.target,
                following,
                _all(match, sql("t.{} = s.{}", start, STARTED)),
                sets,
                writing.differ(sql("t.{}", end), sql("s.{}", ENDED), "timestamp"),
            ),
        ]

    def _insert(
        self, into: SQL, names: Sequence[str], staged: SQL, condition: SQL, values: Sequence[str] | None = None
    ) -> SQL:
        columns, listed = self._list(names), self._list(values or names, sql("s."))
        return sql("INSERT INTO {} ({}) SELECT {} FROM {} s WHERE {}", into, columns, listed, staged, condition)

    def _list(self, names: Sequence[str], side: SQL | None = None) -> SQL:
        return joined(", ", (sql("{}{}", side or sql(""), self.sql.quote(name)) for name in names))


def _all(*conditions: SQL) -> SQL:
    return joined(" AND ", conditions)


def _some(staged: SQL, *conditions: SQL) -> SQL:
    """Write that there is an event `s` like that."""
    return sql("EXISTS (SELECT 1 FROM {} s WHERE {})", staged, _all(*conditions))


def _none(table: SQL, *conditions: SQL) -> SQL:
    """Write that a table has no row `t` like that."""
    return sql("NOT EXISTS (SELECT 1 FROM {} t WHERE {})", table, _all(*conditions))
