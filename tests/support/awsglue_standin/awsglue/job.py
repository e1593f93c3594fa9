# ruff: noqa: N802, RUF012
"""The job: one per process, its versions in a JSON file."""

import json
import os
from pathlib import Path


class Job:
    name = None
    option = "job-bookmark-disable"
    run_id = None
    start = {}
    until = None
    contexts = {}
    known = {}

    def __init__(self, glue_context):
        self.glue_context = glue_context

    def init(self, job_name, args=None):
        args = args or {}
        versions = self._versions(job_name)
        Job.name, Job.contexts = job_name, {}
        Job.option = args.get("job_bookmark_option", "job-bookmark-disable")
        Job.run_id = args.get("JOB_RUN_ID")
        Job.known = versions[-1]["contexts"] if versions else {}
        Job.start, Job.until = Job.known, None
        if args.get("job_bookmark_from"):
            by_run = {version["run"]: version["contexts"] for version in versions}
            Job.start, Job.until = by_run[args["job_bookmark_from"]], by_run[args["job_bookmark_to"]]

    def isInitialized(self):
        return Job.name is not None

    def commit(self):
        if Job.option != "job-bookmark-enable":
            return
        versions = self._versions(Job.name)
        versions.append({"run": Job.run_id, "contexts": {**Job.known, **Job.contexts}})
        file = Path(os.environ["STANDIN_BOOKMARKS"])
        everything = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**everything, Job.name: versions}))

    @staticmethod
    def _versions(job_name):
        file = Path(os.environ["STANDIN_BOOKMARKS"])
        return json.loads(file.read_text()).get(job_name, []) if file.exists() else []

    @classmethod
    def tracks(cls, context):
        return bool(context) and cls.name is not None and cls.option != "job-bookmark-disable"
