"""The mode of a job: whether it saves how far it got, and which range of runs it reads again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from scripts.helpers.display.options import check_choice
from scripts.helpers.errors import InvalidValueError, JobArgumentError
from scripts.helpers.protocol.names import check_run_id

ModeName = Literal["enable", "pause", "disable"]

PREFIX = "job-bookmark-"
ARGUMENTS = ("job_bookmark_option", "job_bookmark_from", "job_bookmark_to")
"""What `Mode.from_args` reads."""


@dataclass(frozen=True)
class Mode:
    """What AWS Glue calls the job bookmark option, with its range.

    Attributes
    ----------
    name
        ``enable`` takes what is new and saves it. ``pause`` takes what is new, or a range, and saves
        nothing. ``disable`` takes everything and saves nothing.
    from_run, to_run
        With ``pause``, both: take what runs after `from_run` took, up to and with `to_run`. Each stands
        for the last success at or before that run. One alone without ``pause`` says nothing, as in Glue.

    Examples
    --------
    >>> Mode("pause", "jr_1", "jr_3").is_range
    True
    >>> Mode.from_args({"JOB_NAME": "parking", "job_bookmark_option": "job-bookmark-disable"}).saves
    False
    """

    name: ModeName = "enable"
    from_run: str | None = None
    to_run: str | None = None

    def __post_init__(self) -> None:
        """Refuse what does not go together, in Glue's words."""
        check_choice("mode", self.name, get_args(ModeName))
        ends = {"--job-bookmark-from": self.from_run, "--job-bookmark-to": self.to_run}
        missing = [option for option, run_id in ends.items() if not run_id]
        if self.name == "pause" and len(missing) == 1:
            raise JobArgumentError(f"Missing option or value for {missing[0]}")
        if self.name != "pause" and not missing:
            raise JobArgumentError(f"Invalid option(s){' '.join(ends)}")
        for run_id in ends.values():
            if run_id:
                check_run_id(run_id)

    @classmethod
    def from_args(cls, args: Mapping[str, Any]) -> Mode:
        """Read resolved job arguments. Without ``job_bookmark_option`` the job saves.

        Glue's own `getResolvedOptions` always has that key, and ``job-bookmark-disable`` there where
        the job has no such option.

        Raises
        ------
        InvalidValueError, JobArgumentError
            The option is none of the three; or from and to do not fit it.
        """
        known: dict[str, ModeName] = {PREFIX + name: name for name in get_args(ModeName)}
        option, from_run, to_run = (args.get(key) for key in ARGUMENTS)
        if option is not None and option not in known:
            raise InvalidValueError(f"job_bookmark_option is {option!r}. Use {', '.join(known)}.")
        return cls("enable" if option is None else known[option], from_run, to_run)

    def changed_by(self, args: Mapping[str, Any]) -> Mode:
        """Return the mode that resolved job arguments ask for; this one as far as they leave it open.

        ``job_bookmark_option`` stands for the mode with its range. Ends alone change the range of this
        mode, and none where it is not ``pause``.

        Examples
        --------
        >>> Mode("disable").changed_by({"job_bookmark_from": "jr_1"}).name
        'disable'

        Raises
        ------
        InvalidValueError, JobArgumentError
            As `from_args`.
        """
        option, from_run, to_run = (args.get(key) for key in ARGUMENTS)
        if option is not None:
            return Mode.from_args(args)
        return Mode(self.name, from_run or self.from_run, to_run or self.to_run)

    @property
    def saves(self) -> bool:
        """Tell whether what is taken is saved."""
        return self.name == "enable"

    @property
    def is_range(self) -> bool:
        """Tell whether a range of runs is read again."""
        return self.name == "pause" and bool(self.from_run)
