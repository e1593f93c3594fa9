"""`EvaluateDataQuality`: the check that Glue Studio writes before each target. Supports only the default ruleset."""

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
"""The ruleset that Glue Studio writes into scripts, with any number in place of its 0."""
INSTEAD = "Check the DataFrame of toDF(), and raise an error. Leave the call out, or name the rule ColumnCount > 0."


class EvaluateDataQuality:
    """Evaluates ``Rules = [ColumnCount > 0]``, the ruleset that Glue Studio writes, and refuses other rules.

    As on Glue, a failed rule changes no rows and does not stop the job. It is logged as a WARNING, not published.

    Examples
    --------
    >>> rules = "Rules = [ ColumnCount > 0 ]"
    >>> df = glue_context.spark_session.createDataFrame([(1,)], "id INT")
    >>> checked = EvaluateDataQuality().process_rows(DynamicFrame.fromDF(df, glue_context, "parking"), rules)
    """

    @classmethod
    def apply(cls, *args: Any, **options: Any) -> NoReturn:
        """Raise NotOffGlueError, because the result would be the outcomes of the rules, which are not computed here."""
        raise NotOffGlueError("EvaluateDataQuality.apply", INSTEAD)

    def process_rows(
        self,
        frame: DynamicFrame,
        ruleset: str,
        publishing_options: Mapping[str, Any] | None = None,
        additional_options: Mapping[str, Any] | None = None,
    ) -> NotHere:
        """Compare the number of columns with the ruleset's ``ColumnCount > N``, and log the outcome.

        Parameters
        ----------
        publishing_options, additional_options
            Glue's options. Only ``dataQualityEvaluationContext``, the name of the check, has an effect: it is logged.

        Returns
        -------
        NotHere
            A placeholder for the frames of outcomes: selecting one raises NotOffGlueError.

        Raises
        ------
        NotOffGlueError
            The ruleset is not ``Rules = [ ColumnCount > N ]``, Glue's default, with any number N.
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
                "event=data_quality_failed context=%s columns=%d rule=ColumnCount>%d: the job continues, as on Glue",
                context, columns, least,
            )  # fmt: skip
        return NotHere("The outcome of EvaluateDataQuality")
