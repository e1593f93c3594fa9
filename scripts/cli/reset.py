"""`watermarks reset`: forget the watermarks."""

from __future__ import annotations

from scripts.cli.commands import command, context_option, job_argument, read_job
from scripts.cli.deciding import Said, decide, deciding
from scripts.cli.retracting import retract_now, retract_option, show_outputs
from scripts.cli.surroundings import Surroundings
from scripts.helpers.errors import InvalidValueError


@command("reset")
@job_argument
@context_option
@retract_option
@deciding()
def reset(around: Surroundings, job: str, context: str | None, retract: bool, said: Said) -> None:
    """Forget the watermarks, so that the next run takes everything.

    Only --retract deletes data from the target.
    """
    before = read_job(around, job)
    # To forget what is not there would succeed, and hide that the name is mistyped.
    if context is not None and context not in before.watermarks:
        raise InvalidValueError(f"Job {job!r} has no context {context!r}. It has: {', '.join(before.watermarks)}.")
    outputs = around.watermarks.decisions.outputs_after(before, 0) if context is None else ()
    after = before.reset(said.previewed(around), context, outputs, retract=retract)
    show_outputs(around, before, after, outputs, retract)
    act = around.watermarks.reset
    decide(around, said, before, after, act, job, transformation_ctx=context, retract=retract)
    if retract:
        retract_now(around, job)
