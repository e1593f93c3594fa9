"""`EvaluateDataQuality`: the check that Glue Studio writes before each target, with its default ruleset alone."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from scripts.helpers.errors import NotOffGlueError
from scripts.helpers.glue.frames import DynamicFrame
from scripts.helpers.glue.transforms import NotHere

logger = logging.getLogger(__name__)

_DEFAULT = re.compile(r"\s*Rules\s*=\s*\[\s*ColumnCount\s*>\s*(\d+)\s*\]\s*")
"""The ruleset of scripts that Glue Studio writes, whatever the number."""
INSTEAD = "Check the DataFrame of toDF(), and raise an error. Leave the call out, or name the rule ColumnCount > 0."


class EvaluateDataQuality:
    """Evaluates ``Rules = [ColumnCount > 0]``, the ruleset that Glue Studio writes, and refuses other rules.

    As on Glue, a rule that fails changes no row and stops no job. It is a WARNING, as nothing is published.

    Examples
    --------
    >>> rules = "Rules = [ ColumnCount > 0 ]"
    >>> df = glue_context.spark_session.createDataFrame([(1,)], "id INT")
    >>> checked = EvaluateDataQuality().process_rows(DynamicFrame.fromDF(df, glue_context, "parking"), rules)
    """

    @classmethod
    def apply(cls, *args: Any, **options: Any) -> NoReturn:
        """Refuse: what it returns is the outcome of the rules."""
        raise NotOffGlueError("EvaluateDataQuality.apply", INSTEAD)

    def process_rows(
        self,
        frame: DynamicFrame,
        ruleset: str,
        publishing_options: Mapping[str, Any] | None = None,
        additional_options: Mapping[str, Any] | None = None,
    ) -> NotHere:
        """Evaluate the number of columns.

        Parameters
        ----------
        publishing_options, additional_options
            Passed over: there is nowhere to publish outcomes.

        Returns
        -------
        NotHere
            The frames of outcomes are not here: to select one is a NotOffGlueError.

        Raises
        ------
        NotOffGlueError
            Another ruleset.
        """
        rule = _DEFAULT.fullmatch(ruleset)
        if rule is None:
            raise NotOffGlueError("A ruleset of EvaluateDataQuality", INSTEAD)
        columns, least = len(frame.toDF().columns), int(rule[1])
        context = str((publishing_options or {}).get("dataQualityEvaluationContext", ""))
        if columns > least:
            logger.info("event=data_quality context=%s columns=%d: the rule holds", context, columns)
        else:
            logger.warning(
                "event=data_quality_failed context=%s columns=%d rule=ColumnCount>%d: the job goes on, as on Glue",
                context, columns, least,
            )  # fmt: skip
        return NotHere("The outcome of EvaluateDataQuality")
