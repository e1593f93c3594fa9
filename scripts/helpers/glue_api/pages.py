"""Paginators of botocore over calls of ours that come in pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import OperationNotPageableError
from botocore.paginate import Paginator

Call = Callable[..., Mapping[str, Any]]

_MODEL = SimpleNamespace(input_shape=SimpleNamespace(members={"MaxResults": SimpleNamespace(type_name="integer")}))
"""What a paginator asks of the model of an operation: of which type the size of a page is."""


def paginator(operation_name: str, calls: Mapping[str, tuple[str, Call]]) -> Any:
    """Return the paginator of a call that takes `NextToken` and `MaxResults`, as ``client.get_paginator`` does.

    Parameters
    ----------
    calls
        By name, the key of the results in an answer, and the call. An answer without ``NextToken`` is the last.

    Raises
    ------
    OperationNotPageableError
        There is no such call, as botocore says it.

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
