"""The operations on definitions of jobs."""

from __future__ import annotations

from scripts.helpers.glue_api.errors import AlreadyExistsException
from scripts.helpers.job_runs.job_record import JobRecord
from scripts.helpers.job_runs.operations import Answer, Operations, Request, operation


class Definitions(Operations):
    """Jobs: what their runs have by default."""

    @operation("CreateJob")
    def create_job(self, given: Request) -> Answer:
        """Write a definition."""
        name = self._checked(given.pop("Name"))
        given.pop("Tags", None)
        given = self._arguments(given, "CreateJob")

        def create(job: JobRecord | None) -> JobRecord:
            if job is not None and job.definition is not None:
                raise AlreadyExistsException(f"Job {name!r} already exists. Use update_job.", "CreateJob")
            now = self._scheduler.clock()
            definition = given | {"CreatedOn": now, "LastModifiedOn": now}
            return job.changed(definition=definition) if job else JobRecord(name, definition)

        self._records.change_job(name, create)
        return {"Name": name}

    @operation("GetJob")
    def get_job(self, given: Request) -> Answer:
        """Read a definition."""
        job = self._job(given["JobName"], "GetJob")
        assert job.definition is not None
        limits = {"ExecutionProperty": {"MaxConcurrentRuns": 1}, "MaxRetries": 0}
        return {"Job": {"Name": job.name} | limits | dict(job.definition)}

    @operation("UpdateJob")
    def update_job(self, given: Request) -> Answer:
        """Replace a definition."""
        wanted = self._arguments(given["JobUpdate"], "UpdateJob")

        def update(job: JobRecord | None) -> JobRecord:
            before = self._defined(job, given["JobName"], "UpdateJob")
            assert before.definition is not None
            times = {
                "CreatedOn": before.definition["CreatedOn"],
                "LastModifiedOn": self._scheduler.clock(),
            }
            return before.changed(definition=wanted | times)

        self._records.change_job(given["JobName"], update)
        self._scheduler.tend(given["JobName"])
        return {"JobName": given["JobName"]}

    @operation("DeleteJob")
    def delete_job(self, given: Request) -> Answer:
        """Delete a definition; the record stays for the runs that are still in its lists."""

        def delete(job: JobRecord | None) -> JobRecord | None:
            return job.changed(definition=None) if job and job.definition is not None else job

        self._records.change_job(given["JobName"], delete)
        self._scheduler.tend(given["JobName"])
        return {"JobName": given["JobName"]}
