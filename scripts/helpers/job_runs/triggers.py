"""The operations on triggers, which start a run when a run of another job has ended."""

from __future__ import annotations

from scripts.helpers.glue_api.errors import AlreadyExistsException, InvalidInputException
from scripts.helpers.job_runs.job_record import JobRecord, TriggerRecord
from scripts.helpers.job_runs.operations import Answer, Operations, Request, operation


class Triggers(Operations):
    """Conditional triggers."""

    @operation("CreateTrigger")
    def create_trigger(self, given: Request) -> Answer:
        """Write a trigger, and its name into the records of the jobs that it watches."""
        name = self._checked(given.pop("Name"))
        given.pop("Tags", None)
        given["Actions"] = [self._arguments(action, "CreateTrigger") for action in given["Actions"]]
        predicate = given["Predicate"]
        if len(predicate["Conditions"]) > 1 and predicate.get("Logical", "AND") == "AND":
            raise InvalidInputException(
                "A trigger waits for one condition, or for ANY of several. Chain triggers to wait for all.",
                "CreateTrigger",
            )
        state = "ACTIVATED" if given.pop("StartOnCreation", False) else "CREATED"
        watched = {condition["JobName"] for condition in predicate["Conditions"]}
        for job_name in sorted(watched | {action["JobName"] for action in given["Actions"]}):
            self._job(job_name, "CreateTrigger")
        if self._records.trigger(name) is not None:
            raise AlreadyExistsException(f"Trigger {name!r} already exists. Delete it first.", "CreateTrigger")

        def attach(job: JobRecord | None) -> JobRecord | None:
            return job if job is None or name in job.triggers else job.changed(triggers=(*job.triggers, name))

        # A name without a trigger does nothing, so what breaks off in between does no harm.
        for job_name in sorted(watched):
            self._records.change_job(job_name, attach)
        if not self._records.write_trigger(None, TriggerRecord(name, given, state)):
            raise AlreadyExistsException(f"Trigger {name!r} already exists. Delete it first.", "CreateTrigger")
        return {"Name": name}

    @operation("GetTrigger")
    def get_trigger(self, given: Request) -> Answer:
        """Read a trigger."""
        return {"Trigger": self._trigger(given["Name"], "GetTrigger").to_trigger()}

    @operation("StartTrigger")
    def start_trigger(self, given: Request) -> Answer:
        """Activate a trigger."""
        return self._switch(given["Name"], "ACTIVATED", "StartTrigger")

    @operation("StopTrigger")
    def stop_trigger(self, given: Request) -> Answer:
        """Deactivate a trigger."""
        return self._switch(given["Name"], "DEACTIVATED", "StopTrigger")

    @operation("DeleteTrigger")
    def delete_trigger(self, given: Request) -> Answer:
        """Delete a trigger, and its name from the jobs that it watches."""
        name = given["Name"]
        trigger = self._records.trigger(name)
        self._records.delete_trigger(name)

        def detach(job: JobRecord | None) -> JobRecord | None:
            if job is None or name not in job.triggers:
                return job
            return job.changed(triggers=tuple(one for one in job.triggers if one != name))

        for condition in trigger.definition["Predicate"]["Conditions"] if trigger else ():
            self._records.change_job(condition["JobName"], detach)
        return {"Name": name}

    def _switch(self, name: str, state: str, operation: str) -> Answer:
        while True:
            trigger = self._trigger(name, operation)
            if trigger.state == state or self._records.write_trigger(trigger, trigger.in_state(state)):
                return {"Name": name}
