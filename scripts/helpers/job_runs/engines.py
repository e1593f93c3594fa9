"""The engines behind the Job Runs API: AWS Glue itself, or `spark-submit` and Python in processes of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scripts.helpers.errors import ConfigurationError, InvalidValueError
from scripts.helpers.job_runs import allowed, ids
from scripts.helpers.job_runs.run_record import RunRecord

SETTINGS = "GLUE_WATERMARKS_LAUNCHER"
"""Environment variable through which a launcher gets what it must know; the job does not see it."""
PACKAGE_ROOT = str(Path(__file__).parents[3])
OPTION_OF = {"--extra-py-files": "--py-files", "--extra-jars": "--jars", "--extra-files": "--files"}
"""Glue's special arguments that are options of spark-submit. The script does not see them."""
CONF = "--conf"
MAX_FOLDER_NAME = 200
"""Characters of a job's folder: file systems take 255 bytes, and a job's name grows when it is quoted."""
_DEPLOY_MODE = "spark.submit.deployMode"
_MAIN = (
    "import sys; sys.path[:] = [sys.argv[1], *filter(None, sys.path)]; "
    "from scripts.helpers.job_runs.launcher import main; main()"
)
"""Without the folder that the process is in, whose modules would hide those of the same name."""
_DETACH = 'old=$(umask); umask 077; : >>"$0" || exit 1; umask "$old"; "$@" </dev/null >>"$0" 2>&1 &'
"""The log is its owner's alone; the files that a job makes have the mode that its starter would give them."""
INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "SPARK_HOME", "AWS_REGION", "AWS_DEFAULT_REGION",
)  # fmt: skip
"""Variables that a job gets from whoever starts its run: what programs need to be found, and no login."""
RUN_CONF = (
    "spark.default.parallelism", "spark.driver.cores", "spark.driver.memory", "spark.driver.memoryOverhead",
    "spark.dynamicAllocation.*", "spark.executor.cores", "spark.executor.instances", "spark.executor.memory",
    "spark.executor.memoryOverhead", "spark.sql.adaptive.enabled", "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.files.*", "spark.sql.session.timeZone", "spark.sql.shuffle.partitions",
    "spark.sql.sources.partitionOverwriteMode",
)  # fmt: skip
"""Spark's settings that a run may choose by itself: sizes and numbers, and nothing that loads a class."""


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
        Folder of the logs, apart from `scripts`. Each run has a folder in it with ``stdout``, ``stderr`` and
        ``launcher``.
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
        Variables of the job, besides those of `INHERITED`.
    lease_seconds
        For how long a run without a sign of its launcher counts as alive.
    beat_seconds
        How often the launcher renews the lease, and looks whether it shall stop.
    grace_seconds
        Between SIGTERM and SIGKILL.
    scripts
        Where scripts and modules of jobs may be: folders and files of this machine, and URLs; a URL
        that ends in ``/`` stands for all below it. Nothing else is run, and by default nothing is:
        what a job names is in its items, and whoever may write these would choose.
    pass_on
        Names of variables that a job gets from whoever starts its run, besides those of `INHERITED`,
        such as ``AWS_PROFILE``. The job sees no others.
    run_conf
        Names of Spark's settings that a run's ``--conf`` and ``--spark-conf`` may set; a ``*`` at the
        end stands for any end. Others may load code.

    Raises
    ------
    InvalidValueError
        The deploy mode is cluster: then stopping spark-submit would not stop the driver. Or `logs` is in a place of
        `scripts` or around one, so that a job could run what another one printed.
    """

    logs: str
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    spark_home: str | None = None
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    # One renewal may take half the lease, which is as long as a write is tried (`store.BUDGET_SECONDS`): a table that
    # does not answer for so long costs no run.
    lease_seconds: float = 60.0
    beat_seconds: float = 5.0
    grace_seconds: float = 30.0  # As Kubernetes gives.
    scripts: Sequence[str] = ()
    pass_on: Sequence[str] = ()
    run_conf: Sequence[str] = RUN_CONF

    def __post_init__(self) -> None:
        """Refuse what could not keep the promises."""
        for name in ("options", "scripts", "pass_on", "run_conf"):
            if isinstance(getattr(self, name), str):
                raise InvalidValueError(f"{name}={getattr(self, name)!r} must be a list of texts, not one text.")
        allowed.check_places(self.scripts, self.logs)
        settings = [f"{name}={value}" for name, value in self.conf.items()]
        if "cluster" in self.options or any(map(_is_cluster, [*settings, *self.options])):
            raise InvalidValueError(
                "The deploy mode is cluster, where the end of spark-submit does not end the driver: a run could be "
                "neither stopped nor timed out. Use the client mode."
            )
        if not 0 < self.beat_seconds < self.lease_seconds or self.grace_seconds < 0:
            raise InvalidValueError(
                f"beat_seconds={self.beat_seconds:g}, lease_seconds={self.lease_seconds:g} and "
                f"grace_seconds={self.grace_seconds:g}: the beat must be above 0 and shorter than the lease, and the "
                "grace not below 0."
            )

    def folder(self, job_name: str, run_id: str) -> Path:
        """Return the folder of a run's logs; InvalidIdError of an id that is none, and might lead out of `logs`."""
        ids.check_own_id(run_id)
        name = quote(job_name, safe=" ")
        if not name.strip("."):
            name = name.replace(".", "%2E")
        if len(name) > MAX_FOLDER_NAME:
            # No name has a + when it is quoted, so this is the folder of no other job.
            name = f"{name[: MAX_FOLDER_NAME // 2]}+{ids.job_digest(job_name)}"
        return Path(os.path.abspath(self.logs), name, run_id)

    def make_folder(self, job_name: str, run_id: str) -> Path:
        """Make the folder of a run's logs, which its owner alone can read.

        Raises
        ------
        ConfigurationError
            There is something else, it is somebody else's, or others could rename folders in `logs`.
        """
        folder = self.folder(job_name, run_id)
        logs = folder.parents[1]
        with suppress(FileExistsError):
            logs.mkdir(mode=0o700, parents=True)
        unsafe, found = partial(ConfigurationError, reason="log_folder"), logs.stat()
        if found.st_uid not in (0, os.geteuid()):
            raise unsafe("belongs to another user", folder=str(logs))
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
            raise unsafe("can be changed by other users. Run chmod go-w on it", folder=str(logs))
        for made in (folder.parent, folder):
            made.mkdir(mode=0o700, exist_ok=True)
            found = made.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise unsafe("is a link, or belongs to another user", folder=str(made))
            made.chmod(0o700)  # It may be one of an earlier version.
        return folder

    def check(self, run: RunRecord) -> None:
        """Refuse a run that this engine does not start.

        Raises
        ------
        InvalidIdError
            Of its id.
        InvalidValueError
            Its script, or a module that an argument names, is outside `scripts` (reason ``script``). An argument would
            replace the script, bring code with it, or be read as another one (reason ``argument``).
        """
        ids.check_own_id(run.run_id)
        self.script(run)
        self.arguments(run)
        self._modules(run)
        if not is_python_shell(run):
            self._settings(run)

    def launch(self, run: RunRecord, shared: Mapping[str, Any]) -> None:
        """Start the launcher of a run as a process that nobody waits for; `shared` is `Scheduler.settings`.

        OSError if that fails, an error of `check` if it may not be.
        """
        self.check(run)
        folder = self.make_folder(run.job_name, run.run_id)
        settings = {"shared": dict(shared), "engine": self.to_json(), "job": run.job_name, "run": run.run_id}
        # A shell in between, so that the launcher has no parent to be waited for by.
        subprocess.run(
            ["/bin/sh", "-c", _DETACH, str(folder / "launcher"), sys.executable, "-c", _MAIN, PACKAGE_ROOT],
            env=os.environ | {SETTINGS: json.dumps(settings)},
            start_new_session=True,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def script(self, run: RunRecord) -> str:
        """Return where the script of a run is, links resolved; InvalidValueError outside `scripts`."""
        return allowed.checked(run.job_name, str(run.command.get("ScriptLocation", "")), self.scripts)

    def _modules(self, run: RunRecord) -> dict[str, list[str]]:
        """Return the modules, jars and files of a run by argument; InvalidValueError outside `scripts`."""
        found = {}
        for name in ("--extra-py-files",) if is_python_shell(run) else OPTION_OF:
            given = [one.strip() for one in run.told["Arguments"].get(name, "").split(",") if one.strip()]
            if is_python_shell(run) and (urls := [one for one in given if "://" in one]):
                raise allowed.refused(run.job_name, name, f"{urls[0]!r} is not a local file. Copy it to this machine.")
            found[name] = [allowed.checked_module(run.job_name, one, self.scripts) for one in given]
        return found

    def _settings(self, run: RunRecord) -> list[str]:
        """Return what the run's own ``--conf`` sets; one argument of Glue holds many: "a=1 --conf b=2"."""
        given = [one.strip() for one in run.told["Arguments"].get(CONF, "").split("--conf ") if one.strip()]
        names = [one.partition("=")[0].strip() for one in given]
        allowed.check_settings(run.job_name, CONF, names, self.run_conf)
        return given

    def to_json(self) -> dict[str, Any]:
        """Return the settings, for the launcher."""
        lists = {name: list(getattr(self, name)) for name in ("options", "pass_on", "run_conf")}
        places = [absolute(place) for place in self.scripts]
        return asdict(self) | lists | {"logs": os.path.abspath(self.logs), "scripts": places}

    def command(self, run: RunRecord, script: str) -> list[str]:
        """Return what is started for a run: Python with the script, or spark-submit with its options.

        Raises
        ------
        ConfigurationError
            There is no spark-submit.
        InvalidValueError
            As `check`, of the arguments.
        """
        if is_python_shell(run):
            return [self.python, script, *self.arguments(run)]
        options = ["--name", run.job_name]
        options += ["--master", self.master] if self.master else []
        # The last one wins, over a run's own settings and the environment too.
        client = ["--deploy-mode", "client"]
        spark = [self._spark_submit(), *options, *self.settings(run), *self.options, *client]
        return [*spark, script, *self.arguments(run)]

    def arguments(self, run: RunRecord) -> list[str]:
        """Return what the script of a run gets; InvalidValueError as of `check`."""
        given = run.told["Arguments"]
        allowed.check_arguments(run.job_name, given)
        allowed.check_spark_conf(run.job_name, given, self.run_conf)
        found: list[str] = []
        # To a parser the last one counts. So a full name comes after `-n` and its own abbreviations, which else could
        # replace what the job fixes, and at the end comes what no run may choose.
        for name in sorted(given.keys() - {*OPTION_OF, CONF}, key=lambda name: (name.startswith("--"), name)):
            found += [name, given[name]]
        own = ["--JOB_NAME", run.job_name, "--JOB_ID", ids.job_digest(run.job_name), "--JOB_RUN_ID", run.run_id]
        return found + own

    def settings(self, run: RunRecord) -> list[str]:
        """Return the options of spark-submit for settings, modules, jars and files of a run."""
        found = []
        for setting in [*(f"{name}={value}" for name, value in self.conf.items()), *self._settings(run)]:
            found += ["--conf", setting]
        for name, modules in self._modules(run).items():
            found += [OPTION_OF[name], ",".join(modules)] if modules else []
        return found

    def variables(self, run: RunRecord) -> dict[str, str]:
        """Return the whole environment of a job: named variables, with this package and the job's own modules."""
        named = (*INHERITED, *self.pass_on)
        found = {name: os.environ[name] for name in named if name in os.environ} | dict(self.environment)
        modules = self._modules(run)["--extra-py-files"] if is_python_shell(run) else []
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
                "pip install pyspark."
            )
        return str(Path(home, "bin", "spark-submit"))


def _is_cluster(option: str) -> bool:
    name, _, value = option.removeprefix("--conf=").partition("=")
    return name.strip() in (_DEPLOY_MODE, "--deploy-mode") and value.strip().lower() == "cluster"


def absolute(location: str) -> str:
    """Return a local path as it is meant here, whichever process will read it; a URL as it is."""
    return location if "://" in location or not location else os.path.abspath(location)


def is_python_shell(run: RunRecord) -> bool:
    """Tell whether a run needs no Spark."""
    return run.command.get("Name") == "pythonshell"
