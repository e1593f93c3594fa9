"""Passwords, keys and tokens do not get into log lines, whatever the level."""

from __future__ import annotations

import logging
import time
from typing import Any

import boto3
import pytest

from scripts.helpers.display import redaction
from scripts.helpers.display.redaction import HIDDEN, PACKAGES, redact_logs, redacted
from scripts.helpers.errors import TargetUnavailableError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.database import DatabaseSink

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
    ],
)
def test_line_stays_as_it_is_when_it_has_no_secret(line: str) -> None:
    assert redacted(line) == line


def test_user_and_host_are_told_apart_when_a_url_has_both() -> None:
    assert redacted("postgresql://me:secret@db.example/shop") == f"postgresql://{HIDDEN}@db.example/shop"


@pytest.mark.parametrize(
    "part", ["a+b/", "password:", "'password': '", "jdbc:oracle:", "password={", "://", "<", "s-", "'pwd': '\\"]
)
def test_long_body_takes_no_longer_than_its_length_when_it_is_logged(part: str) -> None:
    """An expression that looks back from each sign would take minutes for this, and the job with it."""
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


@pytest.mark.parametrize("name", ["py4j.signals", "botocore.docs.bcdoc.style", "scripts.helpers.sinks.java_errors"])
def test_logger_of_a_module_is_redacted_when_it_is_imported_later(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    # As before the first call: nobody has asked for the logger yet.
    monkeypatch.setattr(redaction, "_filtered", set())
    monkeypatch.delitem(logging.root.manager.loggerDict, name, raising=False)

    redact_logs()

    assert name in logging.root.manager.loggerDict
    assert "redaction" in type(logging.getLogger(name).filters[0]).__module__


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
        sink.stage(BatchId("repairs", "e1", 1), 1, jdbc.range(1))

    assert "password\ns***" in caplog.text
    assert "hunter2" not in caplog.text
