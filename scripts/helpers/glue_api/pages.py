"""Botocore's paginators for this package's calls that return pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import OperationNotPageableError
from botocore.paginate import Paginator

Call = Callable[..., Mapping[str, Any]]

_MODEL = SimpleNamespace(input_shape=SimpleNamespace(members={"MaxResults": SimpleNamespace(type_name="integer")}))
"""The part of an operation's model that a paginator reads: the type of the page size."""


def paginator(operation_name: str, calls: Mapping[str, tuple[str, Call]]) -> Any:
    """Return the paginator for a call with `NextToken` and `MaxResults`, as ``client.get_paginator`` does.

    Parameters
    ----------
    calls
        The key of a call's results and its function, by the call's name. On the last page, ``NextToken`` is missing.

    Raises
    ------
    OperationNotPageableError
        `calls` has no such call; the error is botocore's.

    Examples
    --------
    >>> pages = {"": {"Numbers": [1, 2], "NextToken": "b"}, "b": {"Numbers": [3]}}
    >>> found = paginator("get_numbers", {"get_numbers": ("Numbers", lambda NextToken="": pages[NextToken])})
    >>> [page["Numbers"] for page in found.paginate()]
    [[1, 2], [3]]
    """
    if operation_name not in calls:
        raise OperationNotPageableError(operation_name=operation_name)
    result_key, call = calls[operation_name]
    config = {
        "input_token": "NextToken",
        "output_token": "NextToken",
        "limit_key": "MaxResults",
        "result_key": result_key,
    }
    made: Any = Paginator
    return made(call, config, _MODEL)
