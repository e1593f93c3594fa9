"""Shared fixtures: a moto server on loopback, one table per test, a clock that moves only when a test moves it."""

from __future__ import annotations

import functools
import gc
import itertools
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from hypothesis import HealthCheck, settings
from moto import mock_aws

from scripts.demo.local_s3 import find_jars, in_place, short_lived, spark_conf
from scripts.helpers.watermarks import Watermarks
from tests.support import maven_jars, reach, table_formats
from tests.support.clock import Clock
from tests.support.components import SCRIPTS_NOT_FETCHED, find_jdbc_jars, missing_component
from tests.support.java_names import remember_names
from tests.support.long import cases, is_long
from tests.support.moto_server import MotoServer, OneAtATime, call_servers_of_this_process
from tests.support.patience import PATIENCE
from tests.support.places import REGION, REPOSITORY, TEST_ENDPOINT

pytest_plugins = [
    "tests.support.group_results",
    *(f"tests.support.{name}_fixtures" for name in ("table", "server", "database")),
]


# In CI, the default is Hypothesis' own profile for CI, which makes the examples repeatable.
settings.register_profile(
    "patient",
    settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=cases(30, long=300),
)
settings.load_profile("patient")


LEFT_OUT = [
    ("pyspark", (3, 4), "timestamp_ntz", {"spark", "jdbc"}, "Spark 3.3 has no timestamps without zone"),
    ("pyspark", (3, 4), "datetime(6)-Europe/London", {"jdbc"}, "Spark 3.3 has no timestamps without zone"),
    ("pyspark", (3, 4), "timestamp-Europe/London", {"jdbc"}, "Spark 3.3 has no timestamps without zone"),
    ("pyspark", (3, 5), "", {"connect"}, "Spark 3.3 has no Spark Connect"),
    ("pyspark", (3, 4), "url_names_either_driver", {"jdbc"}, "Spark 3.3 has no timestamps without zone"),
    ("pandas", (3,), "[-9223372036854775808-csv", {"number"}, "pandas 2 reads -2**63 in CSV as missing"),
]
"""Tests that an older package cannot pass: the version needed, part of their names, a fixture they use, and why."""
ALLOWED_SKIPS = (maven_jars.UNREACHABLE, SCRIPTS_NOT_FETCHED, *(why for *_, why in LEFT_OUT))
"""How the reason of a skip must start for CI and the matrix to allow it."""
UNCHANGED = pytest.StashKey[dict[str, int]]()
"""How many tests of each group did not run, because nothing that they reach has changed."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that an older Spark or pandas cannot pass, and give the reason. CI's versions leave out none."""
    if not is_long():
        take_out(config, items, [item for item in items if item.get_closest_marker("long")])
    for group, count in Counter(map(reach.group_of, items)).items():
        if group and reach.is_passed_over(group):
            take_out(config, items, [item for item in items if reach.group_of(item) == group])
            config.stash.setdefault(UNCHANGED, {})[group] = count
    if hasattr(config, "workerinput"):
        put_long_files_first(items, float(config.getini("timeout")))
    for package, needed, part, fixtures, why in LEFT_OUT:
        found = version(package) if find_spec(package) else "0"
        if tuple(map(int, found.split(".")[: len(needed)])) < needed:
            for item in items:
                if part in item.name and fixtures & set(getattr(item, "fixturenames", ())):
                    item.add_marker(pytest.mark.skip(reason=f"{why}; this is {package} {found}"))


def take_out(config: pytest.Config, items: list[pytest.Item], unwanted: list[pytest.Item]) -> None:
    """Remove tests from a run; pytest counts them as deselected."""
    left_out = set(unwanted)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=unwanted)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report which tests did not run because nothing that they reach has changed."""
    for group, count in sorted(config.stash.get(UNCHANGED, {}).items()):
        terminalreporter.write_line(reach.passing_over(group, f"{count} tests"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ids-to", metavar="FILE", help="write the ids of the collected tests to a file")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the test ids to the file that --ids-to names, and freeze the collected tests for the garbage collector."""
    if file := session.config.getoption("--ids-to"):
        Path(file).write_text("".join(f"{item.nodeid}\n" for item in session.items), encoding="utf-8")
    gc.collect()
    gc.freeze()
    # moto keeps the tables of all tests. With the default thresholds a tenth of the time goes into looking at them.
    gc.set_threshold(20_000, 20, 50)


def put_long_files_first(items: list[pytest.Item], usual_seconds: float) -> None:
    """Sort files for parallel processes: first files with a long-running test, then by number of tests.

    xdist sorts only by number, so a file with a single test of minutes comes last and the other process waits for it.
    """
    counts = Counter(item.path for item in items)
    long = set()
    for item in items:
        limit = item.get_closest_marker("timeout")
        if limit is not None and limit.args[0] > usual_seconds:
            long.add(item.path)
    items.sort(key=lambda item: (item.path not in long, -counts[item.path]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI that skipped a test without an allowed reason: a check that did not run must not look green."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    unlisted = [report for report in skipped if not is_allowed(report.longrepr)]
    if os.environ.get("CI") and reporter and unlisted:
        message = f"{len(unlisted)} skipped for a reason that is not in ALLOWED_SKIPS, and CI takes that for a failure"
        reporter.write_line(message, red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def is_allowed(skip: Any) -> bool:
    """Return whether the reason of a skip is allowed; pytest passes its file, its line and the reason."""
    reason = skip[2] if isinstance(skip, tuple) else str(skip)
    return reason.removeprefix("Skipped: ").startswith(ALLOWED_SKIPS)


@pytest.fixture(scope="session", autouse=True)
def aws_environment() -> Iterator[None]:
    """Set credentials and region for a local server, ignore the user's profiles, and let JVMs start fast."""
    patch = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
        patch.delenv(name)
    patch.setenv("AWS_ACCESS_KEY_ID", "testing")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    patch.setenv("AWS_DEFAULT_REGION", REGION)
    patch.setenv("AWS_CONFIG_FILE", os.devnull)
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    patch.setenv("PYSPARK_PYTHON", sys.executable)
    # With the default size of its young generation, a JVM that runs a thousand tests collects garbage 670 times.
    patch.setenv("SPARK_SUBMIT_OPTS", f"{short_lived()} -Xmn320m")
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def service_models() -> Iterator[None]:
    """Let botocore find and parse its service models once; otherwise each session spends a tenth of a second on it."""
    patch = pytest.MonkeyPatch()
    patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def short_way() -> Iterator[None]:
    """Let boto3 call the moto servers of this process without a connection."""
    undo = call_servers_of_this_process()
    yield
    undo()


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Reset the package's log level after a test, because a job that runs within the tests shows its INFO lines."""
    logger = logging.getLogger("scripts")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    """End a Glue job that a test began: a process has only one such job, and later tests would get it."""
    yield
    # Most tests do not use Glue and need not import it.
    if (module := sys.modules.get("scripts.helpers.glue.job")) is not None:
        module.Job.forget()


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """Return the URL of a moto server that serves DynamoDB and S3 on loopback."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = MotoServer(OneAtATime())
    yield server.url
    server.stop()


@pytest.fixture
def mocked_aws() -> Iterator[None]:
    """Let moto answer within this process. It shares its backends with `endpoint`, so neither may reset them."""
    mock = mock_aws()
    mock.start(reset=False)
    yield
    mock.stop(remove_data=False)


def _shared(service: str, url: str) -> Any:
    """Return a client that many tests share; it refuses event handlers, because they would stay registered."""
    client = boto3.client(service, endpoint_url=url)  # type: ignore[call-overload]

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("This client is every test's: register handlers with one of the test's own, as own_s3.")

    client.meta.events.register = refuse
    return client


@pytest.fixture(scope="session")
def dynamodb(request: pytest.FixtureRequest) -> Any:
    return _shared("dynamodb", os.environ.get(TEST_ENDPOINT) or request.getfixturevalue("endpoint"))


@pytest.fixture(scope="session")
def s3(endpoint: str) -> Any:
    return _shared("s3", endpoint)


@pytest.fixture
def own_s3(endpoint: str) -> Any:
    """Return a client for this test only, on which it may register event handlers."""
    return boto3.client("s3", endpoint_url=endpoint)


_numbers = itertools.count(1)


@pytest.fixture
def bucket(s3: Any) -> str:
    """Return a new, empty bucket."""
    name = f"bucket-{next(_numbers)}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    return name


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def default_table(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watermarks]:
    """Return the table that `Watermarks()` uses by default, for this test alone, in a separate region."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    made = Watermarks()
    made.create_table()
    yield made
    made.store.client.delete_table(TableName=made.table_name)


@pytest.fixture(scope="session")
def spark(endpoint: str) -> Iterator[Any]:
    """Return a Spark session whose s3:// and s3a:// are the moto server."""
    from pyspark.sql import SparkSession

    remember_names()
    if not find_jars():
        missing_component("S3A", "pip install --no-deps sagemaker_pyspark==1.4.5")
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = spark_conf(endpoint)
    more_jars = [*(jar for _, jar in find_jdbc_jars()), *maven_jars.jars().paths]
    settings["spark.jars"] = in_place([*find_jars(), *more_jars])
    settings |= {
        "spark.executorEnv.AWS_ENDPOINT_URL": endpoint,
        "spark.ui.enabled": "false",
        # Many tests make the same queries. By default, Spark remembers the compiled code of only 100 of their parts.
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.python.daemon.module": "tests.support.spark_daemon",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "Europe/London",
        "spark.sql.warehouse.dir": tempfile.mkdtemp(prefix="warehouse-"),
    }
    settings |= table_formats.start_conf()
    for name, value in settings.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as while_it_starts:
        # Python workers of Spark Connect start in their session's folder, where they would not find the daemon module.
        while_it_starts.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_with_tables(spark_with_packages: Any) -> Any:
    """Return another session of that Spark, with the connectors of Delta Lake and an Iceberg catalog `lake`."""
    if not table_formats.start_conf():
        pytest.skip(f"{maven_jars.UNREACHABLE}: no connectors for Spark {version('pyspark')}")
    session = spark_with_packages.newSession()
    for name, value in table_formats.catalog_conf(tempfile.mkdtemp(prefix="lake-")).items():
        session.conf.set(name, value)
    return session


@pytest.fixture(autouse=True)
def spark_with_tables_is_active(request: pytest.FixtureRequest) -> None:
    """Make that session the active one, because Delta's connector takes its catalog from the active session."""
    if "spark_with_tables" in request.fixturenames:
        session = request.getfixturevalue("spark_with_tables")
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)


@pytest.fixture(scope="session")
def spark_with_packages(spark: Any) -> Any:
    """Return the Spark session if Maven has copied the packages that read Avro and XML."""
    found = maven_jars.jars()
    assert not found.wrong, found.wrong
    if found.unreachable:
        pytest.skip(found.unreachable)
    return spark


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built from a copy of the source without network."""
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(REPOSITORY / "scripts", source / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "tests" / "house", source / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "setup.py", "README.md", "LICENSE", "MANIFEST.in", "pyproject.toml"):
        if (REPOSITORY / name).exists():
            shutil.copy(REPOSITORY / name, source / name)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(output), str(source)],
        cwd=output,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = output.glob("*.whl")
    return built
