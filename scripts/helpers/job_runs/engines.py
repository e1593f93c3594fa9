"""The engines of the Job Runs API: AWS Glue itself, or `spark-submit` and Python in separate processes."""

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
"""Environment variable that passes settings to a launcher; the job does not see it."""
PACKAGE_ROOT = str(Path(__file__).parents[3])
OPTION_OF = {"--extra-py-files": "--py-files", "--extra-jars": "--jars", "--extra-files": "--files"}
"""Glue's special arguments that become options of spark-submit. The script does not receive them."""
CONF = "--conf"
MAX_FOLDER_NAME = 200
"""Most characters of a job's folder name: file systems allow 255 bytes, and quoting lengthens a job's name."""
_DEPLOY_MODE = "spark.submit.deployMode"
_MAIN = (
    "import sys; sys.path[:] = [sys.argv[1], *filter(None, sys.path)]; "
    "from scripts.helpers.job_runs.launcher import main; main()"
)
"""Starts the launcher without the current folder in `sys.path`, whose modules could hide others of the same name."""
_DETACH = 'old=$(umask); umask 077; : >>"$0" || exit 1; umask "$old"; "$@" </dev/null >>"$0" 2>&1 &'
"""Starts a command in the background. Only the owner can read its log; the job's files get the usual umask."""
INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "SPARK_HOME", "AWS_REGION", "AWS_DEFAULT_REGION",
)  # fmt: skip
"""Variables that a job inherits from the process that starts its run. Programs require them, and none is a secret."""
RUN_CONF = (
    "spark.default.parallelism", "spark.driver.cores", "spark.driver.memory", "spark.driver.memoryOverhead",
    "spark.dynamicAllocation.*", "spark.executor.cores", "spark.executor.instances", "spark.executor.memory",
    "spark.executor.memoryOverhead", "spark.sql.adaptive.enabled", "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.files.*", "spark.sql.session.timeZone", "spark.sql.shuffle.partitions",
    "spark.sql.sources.partitionOverwriteMode",
)  # fmt: skip
"""Spark settings that a run may make: sizes and numbers, but nothing that loads a class."""


@dataclass(frozen=True)
class Glue:
    """AWS Glue itself. Calls are passed to the client unchanged, and its answers and errors to the caller.

    Parameters
    ----------
    client
        ``boto3.client("glue")``.
    """

    client: Any


@dataclass(frozen=True)
class SparkSubmit:
    """`spark-submit` on this machine, in client mode with any master; plain Python for Python shell jobs.

    Each run has a launcher, a process that outlives the caller. It writes the logs, renews the run's
    lease, and stops the job. The job has its own process group, and the whole group is killed if the
    launcher dies. Requires a POSIX system such as Linux or macOS.

    Parameters
    ----------
    logs
        Folder for the logs, outside the places in `scripts`. Each run has a folder in it with ``stdout``, ``stderr``
        and ``launcher``.
    master
        Spark's master, such as ``local[4]``, ``spark://host:7077``, ``yarn`` or ``k8s://https://host``; by
        default the master in spark-submit's own settings.
    conf
        Settings of Spark. Those in the job's own ``--conf`` argument override them.
    options
        Further options of spark-submit.
    spark_home
        The folder of Spark; by default ``SPARK_HOME``, else that of the installed pyspark.
    python
        The Python that executes the job; by default this interpreter.
    environment
        Values of further environment variables of the job, by name.
    lease_seconds
        How long a run counts as alive after the last renewal by its launcher.
    beat_seconds
        How often the launcher renews the lease and checks whether the run is to be stopped.
    grace_seconds
        Seconds between SIGTERM and SIGKILL.
    scripts
        Where scripts and modules of jobs may be: folders and files of this machine, and URLs; a URL
        that ends in ``/`` stands for everything below it. Nothing else is run, and by default nothing
        is: the table holds the name of the script, so anybody who may write the table could choose it.
    pass_on
        Names of variables that a job inherits from the process that starts its run, besides those of
        `INHERITED`, such as ``AWS_PROFILE``. The job inherits no others.
    run_conf
        Names of Spark settings that a run's ``--conf`` and ``--spark-conf`` may set; a ``*`` at the
        end matches any ending. Other settings are refused, because they may load code.

    Raises
    ------
    InvalidValueError
        The deploy mode is cluster: then stopping spark-submit would not stop the driver. Or `logs` is inside a place of
        `scripts` or contains one, so a job could run text that another job printed.
    """

    logs: str
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    spark_home: str | None = None
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    # A renewal is retried for half the lease. With this default that is 30 s, as for every other write
    # (`store.BUDGET_SECONDS`), so a run survives a table that does not answer for up to 30 s.
    lease_seconds: float = 60.0
    beat_seconds: float = 5.0
    grace_seconds: float = 30.0  # Kubernetes also waits for 30 s by default.
    scripts: Sequence[str] = ()
    pass_on: Sequence[str] = ()
    run_conf: Sequence[str] = RUN_CONF

    def __post_init__(self) -> None:
        """Raise InvalidValueError for settings that are malformed, unsafe, or make a run impossible to stop."""
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
        """Return the folder of a run's logs; raise InvalidIdError for an invalid id, which could lead out of `logs`."""
        ids.check_own_id(run_id)
        name = quote(job_name, safe=" ")
        if not name.strip("."):
            name = name.replace(".", "%2E")
        if len(name) > MAX_FOLDER_NAME:
            # Cut the name, and append + and a hash. No quoted name contains a +, so no other job has this folder.
            name = f"{name[: MAX_FOLDER_NAME // 2]}+{ids.job_digest(job_name)}"
        return Path(os.path.abspath(self.logs), name, run_id)

    def make_folder(self, job_name: str, run_id: str) -> Path:
        """Create the folder of a run's logs, readable only by its owner.

        Raises
        ------
        ConfigurationError
            The path is not a folder or belongs to another user, or other users could rename folders in `logs`.
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
            made.chmod(0o700)  # A folder of an earlier version may have another mode.
        return folder

    def check(self, run: RunRecord) -> None:
        """Raise an error for a run that this engine may not start.

        Raises
        ------
        InvalidIdError
            Its id is not an id of this package.
        InvalidValueError
            Its script, or a module that an argument names, is outside `scripts` (reason ``script``). Or an argument
            would replace the script, load code, or be read as another argument (reason ``argument``).
        """
        ids.check_own_id(run.run_id)
        self.script(run)
        self.arguments(run)
        self._modules(run)
        if not is_python_shell(run):
            self._settings(run)

    def launch(self, run: RunRecord, shared: Mapping[str, Any]) -> None:
        """Start the launcher of a run as a detached process; `shared` is `Scheduler.settings`.

        Raise OSError if the process cannot be started, and the errors of `check` if the run is not allowed.
        """
        self.check(run)
        folder = self.make_folder(run.job_name, run.run_id)
        settings = {"shared": dict(shared), "engine": self.to_json(), "job": run.job_name, "run": run.run_id}
        # Start the launcher by a shell that exits at once, so that this process need not wait for the launcher.
        subprocess.run(
            ["/bin/sh", "-c", _DETACH, str(folder / "launcher"), sys.executable, "-c", _MAIN, PACKAGE_ROOT],
            env=os.environ | {SETTINGS: json.dumps(settings)},
            start_new_session=True,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def script(self, run: RunRecord) -> str:
        """Return the location of a run's script, with links resolved. InvalidValueError if it is outside `scripts`."""
        return allowed.checked(run.job_name, str(run.command.get("ScriptLocation", "")), self.scripts)

    def _modules(self, run: RunRecord) -> dict[str, list[str]]:
        """Return a run's modules, jars and files by argument. InvalidValueError if one is outside `scripts`."""
        found = {}
        for name in ("--extra-py-files",) if is_python_shell(run) else OPTION_OF:
            given = [one.strip() for one in run.told["Arguments"].get(name, "").split(",") if one.strip()]
            if is_python_shell(run) and (urls := [one for one in given if "://" in one]):
                raise allowed.refused(run.job_name, name, f"{urls[0]!r} is not a local file. Copy it to this machine.")
            found[name] = [allowed.checked_module(run.job_name, one, self.scripts) for one in given]
        return found

    def _settings(self, run: RunRecord) -> list[str]:
        """Return the settings in the run's ``--conf``, which may have several, as in Glue: ``a=1 --conf b=2``."""
        given = [one.strip() for one in run.told["Arguments"].get(CONF, "").split("--conf ") if one.strip()]
        names = [one.partition("=")[0].strip() for one in given]
        allowed.check_settings(run.job_name, CONF, names, self.run_conf)
        return given

    def to_json(self) -> dict[str, Any]:
        """Return the engine's settings for the launcher, with absolute paths."""
        lists = {name: list(getattr(self, name)) for name in ("options", "pass_on", "run_conf")}
        places = [absolute(place) for place in self.scripts]
        return asdict(self) | lists | {"logs": os.path.abspath(self.logs), "scripts": places}

    def command(self, run: RunRecord, script: str) -> list[str]:
        """Return the command line of a run: Python with the script, or spark-submit with its options.

        Raises
        ------
        ConfigurationError
            There is no spark-submit.
        InvalidValueError
            `check` would refuse the arguments of the run.
        """
        if is_python_shell(run):
            return [self.python, script, *self.arguments(run)]
        options = ["--name", run.job_name]
        options += ["--master", self.master] if self.master else []
        # Put client mode last: spark-submit uses the last value, so neither the run nor the environment can change it.
        client = ["--deploy-mode", "client"]
        spark = [self._spark_submit(), *options, *self.settings(run), *self.options, *client]
        return [*spark, script, *self.arguments(run)]

    def arguments(self, run: RunRecord) -> list[str]:
        """Return the command-line arguments of a run's script; raise InvalidValueError as `check` does."""
        given = run.told["Arguments"]
        allowed.check_arguments(run.job_name, given)
        allowed.check_spark_conf(run.job_name, given, self.run_conf)
        found: list[str] = []
        # Parsers use an argument's last value, so a run's `-t` or `--targ` could replace the job's fixed `--target`.
        # So sort short names first (`-t`, `--targ`, `--target`), and put `own`, arguments that no run can set, last.
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
        """Return all variables of a job: the inherited ones, `environment`, and PYTHONPATH with the job's modules."""
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
    """Return a local path as an absolute path, because another process may read it; return a URL unchanged."""
    return location if "://" in location or not location else os.path.abspath(location)


def is_python_shell(run: RunRecord) -> bool:
    """Return whether a run is a Python shell job, which needs no Spark."""
    return run.command.get("Name") == "pythonshell"
