"""Read the login of a database from AWS Secrets Manager."""

from __future__ import annotations

import json
from typing import Any

from scripts.helpers.display.redaction import aws_client, redact_logs
from scripts.helpers.errors import SourceError, SourceUnavailableError

NAMES = {"user": ("username", "user", "USERNAME"), "password": ("password", "PASSWORD")}
"""Names of the two fields in a secret: those of RDS, Redshift and the console, others in use, and Glue's own."""
TRY_LATER = ("InternalServiceError", "ThrottlingException")


def login_of_secret(secret_id: str, client: Any = None) -> dict[str, str]:
    """Return user and password from a secret, for the argument `properties` of `JdbcTable`.

    Each call asks Secrets Manager, so that the job need not be changed when the login is rotated.

    Parameters
    ----------
    secret_id
        The name or ARN of a secret that holds JSON with ``username`` and ``password``, as those of RDS do. The role
        needs ``secretsmanager:GetSecretValue`` on it, and ``kms:Decrypt`` if it is encrypted with your own key.
    client
        A boto3 client for ``secretsmanager``; by default one of boto3's default session.

    Raises
    ------
    SourceUnavailableError
        Secrets Manager cannot be reached, throttles, or has an internal error.
    SourceError
        There is no such secret, it may not be read, or it has no login. No error text shows its content.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    redact_logs()  # Install the log filter before the caller's client can log the response.
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
