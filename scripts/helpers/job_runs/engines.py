"""The engines behind the Job Runs API: AWS Glue itself, or `spark-submit` and Python in processes of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scripts.helpers.errors import ConfigurationError, InvalidValueError
from scripts.helpers.job_runs import ids
from scripts.helpers.job_runs.run_record import RunRecord

SETTINGS = "GLUE_WATERMARKS_LAUNCHER"
"""Environment variable through which a launcher gets what it must know; the job does not see it."""
PACKAGE_ROOT = str(Path(__file__).parents[3])
OPTION_OF = {"--extra-py-files": "--py-files", "--extra-jars": "--jars", "--extra-files": "--files"}
"""Glue's special arguments that are options of spark-submit. The script does not see them."""
SCRIPT_LOCATION, CONF = "--scriptLocation", "--conf"
RESERVED = ("--JOB_NAME", "--JOB_ID", "--JOB_RUN_ID")
"""Arguments that every job gets, and nobody gives."""
MAX_FOLDER_NAME = 200
"""Characters of a job's folder: file systems take 255 bytes, and a job's name grows when it is quoted."""
_DEPLOY_MODE = "spark.submit.deployMode"
_MAIN = (
    "import sys; sys.path[:] = [sys.argv[1], *filter(None, sys.path)]; "
    "from scripts.helpers.job_runs.launcher import main; main()"
)
"""Without the folder that the process is in, whose modules would hide those of the same name."""
_DETACH = '"$@" </dev/null >>"$0" 2>&1 &'


@dataclass(frozen=True)
class Glue:
    """AWS Glue itself: every call goes to the client as it is, and its answer and its errors come back as they are.

    Parameters
    ----------
    client
        ``boto3.client("glue")``.
    """

    client: Any


@dataclass(frozen=True)
class SparkSubmit:
    """`spark-submit` on this machine, in client mode on any master; plain Python for Python shell jobs.

    Each run has a launcher, a process that outlives the caller. It keeps the logs, renews the run's
    lease, and stops the job. The job has a process group of its own, and is killed as a whole when
    its launcher dies. Needs a POSIX system, as Linux or macOS.

    Parameters
    ----------
    logs
        Folder of the logs. Each run has a folder in it with ``stdout``, ``stderr`` and ``launcher``.
    master
        Such as ``local[4]``, ``spark://host:7077``, ``yarn`` or ``k8s://https://host``; by default
        what spark-submit's own settings say.
    conf
        Spark's settings. Those in the job's own ``--conf`` argument win.
    options
        Further options of spark-submit.
    spark_home
        By default ``SPARK_HOME``, else the installed pyspark.
    python
        By default this interpreter.
    environment
        Variables of the job, on top of those of the caller.
    lease_seconds
        For how long a run without a sign of its launcher counts as alive.
    beat_seconds
        How often the launcher renews the lease, and looks whether it shall stop.
    grace_seconds
        Between SIGTERM and SIGKILL.

    Raises
    ------
    InvalidValueError
        The deploy mode is cluster: then stopping spark-submit would not stop the driver.
    """

    logs: str
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    spark_home: str | None = None
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    lease_seconds: float = 60.0
    beat_seconds: float = 5.0
    grace_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what could not keep the promises."""
        settings = [f"{name}={value}" for name, value in self.conf.items()]
        if "cluster" in self.options or any(map(_is_cluster, [*settings, *self.options])):
            raise InvalidValueError(_CLUSTER)
        if not 0 < self.beat_seconds < self.lease_seconds or self.grace_seconds < 0:
            raise InvalidValueError(
                f"beat_seconds={self.beat_seconds:g}, lease_seconds={self.lease_seconds:g} and "
                f"grace_seconds={self.grace_seconds:g}: the beat must be above 0 and shorter than the lease, and the "
                "grace not below 0."
            )

    def folder(self, job_name: str, run_id: str) -> Path:
        """Return the folder of a run's logs."""
        name = quote(job_name, safe=" ")
        if len(name) > MAX_FOLDER_NAME:
            name = f"{name[: MAX_FOLDER_NAME // 2]}-{ids.job_digest(job_name)}"
        return Path(os.path.abspath(self.logs), name, run_id)

    def to_json(self) -> dict[str, Any]:
        """Return the settings, for the launcher."""
        return asdict(self) | {"logs": os.path.abspath(self.logs), "options": list(self.options)}

    def command(self, run: RunRecord, script: str) -> list[str]:
        """Return what is started for a run: Python with the script, or spark-submit with its options.

        Raises
        ------
        ConfigurationError
            There is no spark-submit, or the job asks for the cluster mode.
        """
        given: Mapping[str, str] = run.told["Arguments"]
        arguments = ["--JOB_NAME", run.job_name, "--JOB_ID", ids.job_digest(run.job_name), "--JOB_RUN_ID", run.run_id]
        for name, value in given.items():
            if name not in (*OPTION_OF, *RESERVED, SCRIPT_LOCATION, CONF):
                arguments += [name, value]
        if is_python_shell(run):
            return [self.python, script, *arguments]
        options = ["--name", run.job_name]
        options += ["--master", self.master] if self.master else []
        settings = [f"{name}={value}" for name, value in self.conf.items()]
        # One argument of Glue holds many settings: "a=1 --conf b=2".
        settings += [one.strip() for one in given.get(CONF, "").split("--conf ") if one.strip()]
        if any(map(_is_cluster, settings)):
            raise ConfigurationError(_CLUSTER)
        for setting in settings:
            options += ["--conf", setting]
        for name, option in OPTION_OF.items():
            options += [option, given[name]] if given.get(name) else []
        # The last one wins, over settings and the environment too.
        client = ["--deploy-mode", "client"]
        return [self._spark_submit(), *options, *self.options, *client, script, *arguments]

    def variables(self, run: RunRecord) -> dict[str, str]:
        """Return the environment of a job: that of the launcher, with this package and the job's own modules."""
        found = {name: value for name, value in os.environ.items() if name != SETTINGS} | dict(self.environment)
        modules = run.told["Arguments"].get("--extra-py-files", "").split(",") if is_python_shell(run) else []
        path = [*modules, *found.get("PYTHONPATH", "").split(os.pathsep), PACKAGE_ROOT]
        found["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(part for part in path if part))
        found.setdefault("PYSPARK_PYTHON", self.python)
        return found

    def _spark_submit(self) -> str:
        home = self.spark_home or os.environ.get("SPARK_HOME")
        if home is None:
            spec = importlib.util.find_spec("pyspark")
            home = str(Path(spec.origin).parent) if spec and spec.origin else None
        if home is None or not Path(home, "bin", "spark-submit").exists():
            raise ConfigurationError(
                f"There is no spark-submit {'under ' + repr(home) if home else 'here'}. Set SPARK_HOME, or install it: "
                "pip install 'glue-watermarks[spark]'."
            )
        return str(Path(home, "bin", "spark-submit"))


_CLUSTER = (
    "The deploy mode is cluster, where the end of spark-submit does not end the driver: a run could be neither stopped "
    "nor timed out. Use the client mode."
)


def _is_cluster(option: str) -> bool:
    name, _, value = option.removeprefix("--conf=").partition("=")
    return name.strip() in (_DEPLOY_MODE, "--deploy-mode") and value.strip().lower() == "cluster"


def absolute(location: str) -> str:
    """Return a local path as it is meant here, whichever process will read it; a URL as it is."""
    return location if "://" in location or not location else os.path.abspath(location)


def is_python_shell(run: RunRecord) -> bool:
    """Tell whether a run needs no Spark."""
    return run.command.get("Name") == "pythonshell"


def script_location(run: RunRecord) -> str:
    """Return where the script of a run is: its argument ``--scriptLocation``, else what its job says."""
    return str(run.told["Arguments"].get(SCRIPT_LOCATION) or run.command["ScriptLocation"])


@dataclass(frozen=True)
class Shared:
    """What every process that looks after the runs of a table must agree on: launchers get it from who starts them."""

    table: str
    region: str
    endpoint: str
    queue_seconds: float
    keep_seconds: float | None

    @property
    def queue_time(self) -> timedelta:
        """For how long a run waits for a slot."""
        return timedelta(seconds=self.queue_seconds)

    @property
    def keep(self) -> timedelta | None:
        """For how long the record of a run is kept after its end; None: for ever."""
        return None if self.keep_seconds is None else timedelta(seconds=self.keep_seconds)


class Launching:
    """Starts the launcher of a run as a process that nobody waits for."""

    def __init__(self, engine: SparkSubmit, shared: Shared) -> None:
        self._engine, self._shared = engine, shared

    def launch(self, run: RunRecord) -> None:
        """Start the launcher; OSError if that fails."""
        folder = self._engine.folder(run.job_name, run.run_id)
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "shared": asdict(self._shared),
            "engine": self._engine.to_json(),
            "job": run.job_name,
            "run": run.run_id,
        }
        # A shell in between, so that the launcher has no parent to be waited for by.
        subprocess.run(
            ["/bin/sh", "-c", _DETACH, str(folder / "launcher"), sys.executable, "-c", _MAIN, PACKAGE_ROOT],
            env=os.environ | {SETTINGS: json.dumps(settings)},
            start_new_session=True,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
