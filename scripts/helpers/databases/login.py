"""The login of a database as AWS Secrets Manager keeps it."""

from __future__ import annotations

import json
from typing import Any

from scripts.helpers.display.redaction import aws_client, redact_logs
from scripts.helpers.errors import SourceError, SourceUnavailableError

NAMES = {"user": ("username", "user", "USERNAME"), "password": ("password", "PASSWORD")}
"""What a secret calls them: RDS, Redshift and the console, people, and Glue's own connections."""
TRY_LATER = ("InternalServiceError", "ThrottlingException")


def login_of_secret(secret_id: str, client: Any = None) -> dict[str, str]:
    """Return user and password of a secret, as `JdbcTable` takes them in `properties`.

    They are asked for at each call, so that a login that is rotated needs no new job.

    Parameters
    ----------
    secret_id
        The name or ARN of a secret that holds JSON with ``username`` and ``password``, as those of RDS do. The role
        needs ``secretsmanager:GetSecretValue`` on it, and ``kms:Decrypt`` where it has a key of yours.
    client
        A boto3 client of ``secretsmanager``; by default one of boto3's default session.

    Raises
    ------
    SourceUnavailableError
        Secrets Manager does not answer, or not now.
    SourceError
        There is no such secret, it may not be read, or it holds no login. No text shows what it holds.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    redact_logs()  # Before a client that was given logs its answer.
    name = f"secret {secret_id}"
    try:
        made: Any = client or aws_client("secretsmanager")
        found = made.get_secret_value(SecretId=secret_id)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in TRY_LATER:
            raise SourceUnavailableError(name, code) from None
        raise SourceError(
            name, f"Secrets Manager says {code}. Check its name, the region and the role's rights."
        ) from None
    except BotoCoreError as error:
        raise SourceUnavailableError(name, type(error).__name__) from None
    try:
        kept = json.loads(found.get("SecretString", ""))
    except (ValueError, RecursionError):
        kept = None
    fields = kept if isinstance(kept, dict) else {}
    login: dict[str, str] = {}
    for ours, theirs in NAMES.items():
        value = next((fields[key] for key in theirs if isinstance(fields.get(key), str)), None)
        if value is None:
            raise SourceError(name, f"it holds no {theirs[0]}. Store JSON with 'username' and 'password', as RDS does.")
        login[ours] = value
    return login
