"""Passwords, keys and tokens are kept out of log lines at every level."""

from __future__ import annotations

import logging
import pkgutil
import time
from types import ModuleType
from typing import Any

import boto3
import botocore
import pytest
import urllib3

from scripts.helpers.display import redaction
from scripts.helpers.display.redaction import HIDDEN, PACKAGES, redact_logs, redacted
from scripts.helpers.errors import TargetUnavailableError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.database import DatabaseSink
from tests.support.staging import staged_by

SECRET = "hunter2/+=%"
URL_SECRET = "hunter2%2F,"


@pytest.mark.parametrize(
    "line",
    [
        f"Command to send: c\no22\noption\nspassword\ns{SECRET} x\ne\n",
        f"Command to send: c\no22\nput\nspark.hadoop.fs.s3a.secret.key\ns{SECRET}\ne\n",
        f"Command to send: c\nz:java.sql.DriverManager\ngetConnection\nsjdbc:postgresql://h/d\nsme\ns{SECRET}\ne\n",
        f"Command to send: A\n{SECRET}\n",
        f"Command to send: c\no22\noption\nsurl\nsjdbc:postgresql://h/d?password={URL_SECRET}&ssl=true\ne\n",
        f"jdbc:postgresql://me:{URL_SECRET}@db.example/shop",
        "jdbc:sqlserver://h;user=me;password={hunter2;x hunter2};encrypt=true",
        f"jdbc:mysql://(host=h,user=u,password={URL_SECRET})/shop",
        f"jdbc:oracle:thin:scott/{URL_SECRET}@//h:1521/x",
        f"params: {{'X-Amz-Security-Token': b'{SECRET}', 'Authorization': b'Credential={SECRET}, Signature={SECRET}'}}",
        f"[('password', '{SECRET}'), ('user', 'me')]",
        '{"PASSWORD": "hun\\"ter2 hunter2", "USERNAME": "u"}',
        f'"{{\\"password\\": \\"{SECRET}\\", \\"user\\": 1}}"',
        r"""b'{"SecretString": "{\\"username\\": \\"u\\", \\"engine\\": \\"hunter2\\"}", "Name": "n"}'""",
        r"""{"SecretString": "{\"username\": \"u\", \"engine\": \"hunter2\"}", "Name": "n"}""",
        f"<SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>{SECRET}</SessionToken>",
        f"CanonicalRequest:\nGET\n/\n\nhost:x\nx-amz-security-token:{SECRET}\n\nhost",
        "Signature:\nhunter2",
        f'"GET /b/k?X-Amz-Credential={URL_SECRET}&X-Amz-Signature=hunter2 HTTP/1.1" 200',
        f"https://b.s3.amazonaws.com/k?X-Amz-Security-Token={URL_SECRET}&versionId=1",
        f"Authorization: Bearer {SECRET}",
        "c\no2\noption\nsurl\nsjdbc:oracle:thin:scott/hunter2@//h:1521/x\ne\n",
        """{'url': "jdbc:oracle:thin:scott/'a hunter2'@//h:1521/x"}""",
        "jdbc:oracle:thin:scott/a@hunter2@//h:1521/x",
        "sjdbc:sqlserver://h;user=u;password=a'hunter2;encrypt=true",
        'sjdbc:sqlserver://h;user=u;password=a"hunter2;encrypt=true',
        "sjdbc:sqlserver://h;user=u;password=a<hunter2;encrypt=true",
        "sjdbc:sqlserver://h;user=u;password=a&hunter2;encrypt=true",
        "Check the URL: jdbc:sqlserver://h;user=u; password = a, hunter2;encrypt=true",
        """{'url': "jdbc:sqlserver://h;user=u;password=a' hunter2"}""",
        r"""{'url': 'jdbc:sqlserver://h;user=u;password=a\'"hunter2'}""",
        "cannot open 'jdbc:sqlserver://h;user=u;password=a'hunter2;encrypt=true'",
        r'"{\"url\": \"jdbc:sqlserver://h;password=a\\\"hunter2\"}"',
        "sjdbc:sqlserver://h;user=u;password={a}}hunter2};encrypt=true",
        "Server=h;Password={a}}hunter2}",
        f"Server=h;Password={{{'a' * 300} hunter2}};Encrypt=true",
        "sjdbc:postgresql://h/d?password=a;hunter2&ssl=true",
        "sjdbc:postgresql://h/d?password=a 'hunter2",
        "Answer received: !ysjdbc:postgresql://h/d?password=a hunter2",
        "sjdbc:postgresql://me:a/hunter2@h/d",
        "sjdbc:mysql://me:a?hunter2@h/d",
        r"Answer received: !ysjava.net.UnknownHostException: u:a@hunter2@127.0.0.1\n\tat java.base/x",
        'PlainLoginModule required username="u" password="a hunter2";',
        "PlainLoginModule required username='u' password='a; hunter2';",
        r'{"kafka.sasl.jaas.config": "x username=\"u\" password=\"a \\\"hunter2\";"}',
        "Answer received: !ys{user=u, password=a'b}hunter2, c, x=y}",
        "{password=a, hunter2}",
        "{'token': 'hunter2', 'user': 'u'}",
        "{'gcs.oauth2.token': 'hunter2'}",
        "c\no22\nset\nsspark.sql.catalog.lake.token\nshunter2\ne\n",
        "{'adls.account-key': 'hunter2', 'adls.sas-token': 'hunter2'}",
        "sfs.azure.account.key.shop.dfs.core.windows.net\nshunter2\ne\n",
        "sfs.azure.sas.fixed.token.shop\nshunter2\ne\n",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hunter2==;",
        "https://shop.blob.core.windows.net/c?sv=1&sig=hunter2%3D&se=2",
        "{'SSECustomerKey': 'hunter2', 'x-amz-server-side-encryption-customer-key': 'hunter2'}",
    ],
)
def test_secret_is_hidden_when_its_name_says_so(line: str) -> None:
    clean = redacted(line)

    assert "hunter2" not in clean
    assert HIDDEN in clean


@pytest.mark.parametrize(
    "line",
    [
        "event=planned job=parking context=files key=s3://landing/a@b/c.csv token=1",
        "Command to send: c\no1\noption\nsdbtable\nspublic.repairs\ne\n",
        'b\'{"NextToken": "a", "Key": {"jobName": {"S": "parking"}}}\'',
        "jdbc:postgresql://db.example:5432/shop?ssl=true",
        "['user', 'password']",
        "jdbc:oracle:thin:@//db.example:1521/shop was opened for me@db.example",
        "sjdbc:postgresql://db.example:5432/shop?user=me@shop\nspublic.repairs",
        "java.net.UnknownHostException: db.example",
        "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
        "com.example.InvalidSecretException: The name is taken",
        "not authorized to perform: secretsmanager:GetSecretValue on arn:aws:secretsmanager:eu-west-1:1:secret:shop",
        "{'next_token': 1, 'NextToken': 'a', 'keys': ['customer_key']}",
    ],
)
def test_line_stays_as_it_is_when_it_has_no_secret(line: str) -> None:
    assert redacted(line) == line


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("url jdbc:postgresql://h/d?password=a&ssl=true of t", "url jdbc:postgresql://h/d?password=***&ssl=true of t"),
        ("jdbc:postgresql://h/d?password=a of t", "jdbc:postgresql://h/d?password=*** of t"),
        ("sjdbc:sqlserver://h;password={a;b};x=1\nst", "sjdbc:sqlserver://h;password=***;x=1\nst"),
        (
            "{'url': 'jdbc:sqlserver://h;password=a b', 'x': 'y'}",
            "{'url': 'jdbc:sqlserver://h;password=***', 'x': 'y'}",
        ),
        (r"URL: jdbc:sqlserver://h;password=a\n\tat b.C", r"URL: jdbc:sqlserver://h;password=***\n\tat b.C"),
        ("sjdbc:oracle:thin:scott/a@//h:1521/x", "sjdbc:oracle:thin:***@//h:1521/x"),
        ("jdbc:mysql://(host=h,password=a,user=u)/d of t", "jdbc:mysql://(host=h,password=***,user=u)/d of t"),
        ("{user=u, password=a b, x=y} of t", "{user=u, password=***, x=y} of t"),
        ('x username="u" password="a b"; more', 'x username="u" password="***"; more'),
        ("f(password='', user='u')", "f(password='', user='u')"),
        ("postgresql://me:secret@db.example/shop", "postgresql://***@db.example/shop"),
        (r"UnknownHostException: u:a@h\n\tat b.C", r"UnknownHostException: ***@h\n\tat b.C"),
    ],
)
def test_rest_of_the_line_stays_when_a_secret_in_it_is_hidden(line: str, shown: str) -> None:
    assert redacted(line) == shown


@pytest.mark.parametrize(
    "part",
    [
        "a+b/", "password:", "'password': '", "jdbc:oracle:", "password={", "://", "<", "s-", "'pwd': '\\", "\\",
        "'jdbc:", "jdbc: ", "jdbc:a;", "URL: jdbc:?pwd= ", "sjdbc://a", ";pwd={", "pwd=\"", ", pwd=", "{pwd=}",
        "UnknownHostException: ", "?sig=", "\n\\n\\tjdbc:;pwd=", "s.token",
    ],
)  # fmt: skip
def test_long_body_takes_no_longer_than_its_length_when_it_is_logged(part: str) -> None:
    """A regular expression that looks back from each character would take minutes here, and stall the job."""
    began = time.process_time()

    redacted(part * (200_000 // len(part)))

    assert time.process_time() - began < 10


def test_requests_and_answers_of_botocore_hold_no_key_when_everything_is_logged(
    caplog: pytest.LogCaptureFixture, mocked_aws: None
) -> None:
    caplog.set_level(logging.DEBUG, "botocore")
    redact_logs()

    session = boto3.Session(
        aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
        aws_secret_access_key="my-own-key",
        aws_session_token="my-session/1+2==",
        region_name="eu-west-1",
    )
    given = session.client("sts").get_session_token()["Credentials"]

    assert "x-amz-security-token" in caplog.text.lower()
    assert "SecretAccessKey" in caplog.text
    secrets = ["my-session", "my-own-key", "AKIAIOSFODNN7EXAMPLE", given["SecretAccessKey"], given["SessionToken"]]
    assert [secret for secret in secrets if secret in caplog.text] == []


def test_secret_in_a_traceback_is_hidden_when_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    redact_logs()
    try:
        raise ValueError("jdbc:postgresql://me:hunter2@h/d")
    except ValueError:
        logging.getLogger("py4j.java_gateway").exception("password=%s", "hunter2")

    assert "hunter2" not in caplog.text
    assert "ValueError" in caplog.text


@pytest.mark.parametrize(
    "lines",
    [
        ["Command to send: c\no22\nget\nsfs.s3a.secret.key\nn\ne\n"],
        ["Command to send: c\no22\nget\nsfs.s3a.secret.key\nn\ne\n", "Answer received: !yv"],
        ["Answer received: !ysspark.hadoop.fs.s3a.session.token", "Command to send: c\no10\n_2\ne\n"],
    ],
    ids=["setting", "given-up-reference", "pair"],
)
def test_answer_of_the_jvm_is_hidden_when_it_was_asked_for_a_secret(
    lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "py4j")
    redact_logs()
    py4j = logging.getLogger("py4j.clientserver")

    for line in [*lines, "Answer received: !yshunter2\\nhunter2", "Answer received: !ysthe next one"]:
        py4j.debug(line)

    assert caplog.messages == [*lines, f"Answer received: !{HIDDEN}", "Answer received: !ysthe next one"]


def test_record_is_let_through_as_it_is_when_its_values_do_not_fit_its_text() -> None:
    redact_logs()
    (filter_,) = (one for one in logging.getLogger("py4j").filters if isinstance(one, logging.Filter))
    record = logging.LogRecord("py4j", logging.INFO, __file__, 1, "%d rows", ("many",), None)

    assert filter_.filter(record)
    assert (record.msg, record.args) == ("%d rows", ("many",))


def test_only_loggers_of_these_packages_are_touched_when_it_is_called_again() -> None:
    others, root = logging.getLogger("somebody.else"), logging.getLogger()
    before = [list(others.filters), list(root.filters), list(root.handlers), root.level]

    redact_logs()
    redact_logs()

    assert before == [list(others.filters), list(root.filters), list(root.handlers), root.level]
    for package in PACKAGES:
        assert len([one for one in logging.getLogger(package).filters if "redaction" in type(one).__module__]) == 1


@pytest.mark.parametrize("name", ["py4j.signals", "botocore.docs.bcdoc.style", "scripts.helpers.spark.java_errors"])
def test_logger_of_a_module_is_redacted_when_it_is_imported_later(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    # As before the first call: nothing has requested the logger yet.
    monkeypatch.setattr(redaction, "_filtered", set())
    monkeypatch.delitem(logging.root.manager.loggerDict, name, raising=False)

    redact_logs()

    assert name in logging.root.manager.loggerDict
    assert "redaction" in type(logging.getLogger(name).filters[0]).__module__


@pytest.mark.parametrize("package", [boto3, botocore, urllib3], ids=lambda package: str(package.__name__))
def test_logger_of_each_module_that_python_finds_is_redacted_when_a_package_is(package: ModuleType) -> None:
    redact_logs()

    found = [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    assert len(found) > 10
    assert [name for name in found if name not in logging.root.manager.loggerDict] == []


def test_password_is_in_no_line_when_a_sink_is_the_first_to_have_it(
    jdbc: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redaction, "_filtered", set())
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    caplog.set_level(logging.DEBUG)
    url = f"jdbc:postgresql://127.0.0.1:1/shop?password={URL_SECRET}"
    sink = DatabaseSink("repairs", spark=jdbc, url=url, properties={"password": SECRET})

    with pytest.raises(TargetUnavailableError):
        staged_by(sink, BatchId("repairs", "e1", 1), 1, jdbc.range(1))

    assert "password\ns***" in caplog.text
    assert "hunter2" not in caplog.text
