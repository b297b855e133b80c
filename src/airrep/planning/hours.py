"""The hours of fine-tunes, told before they are spent."""

from airrep.runtime.metering import clock_text

_RESUMES = "Ctrl-C stops, and the same command goes on where it stopped"
_ANEW = "one that is interrupted begins anew"


def hours_line(
    fine_tunes: int,
    seconds: float | None,
    *,
    measured: str = "on the first",
    resumes: bool = True,
    what: str = "",
) -> str:
    """Say in a line how many fine-tunes are still to be done and how long they take.

    Args:
        fine_tunes: how many.
        seconds: of all of them by the clock, on as many workers as there are; None before any was timed.
        measured: what the time was measured on.
        resumes: whether the command goes on where it was interrupted.
        what: what they are called; fine-tunes if empty.
    """
    many = f"{fine_tunes:,} {what or 'fine-tune' + 's' * (fine_tunes != 1)}"
    after = _RESUMES if resumes else _ANEW
    if seconds is None:
        return f"{many} to do; the first tells how long they take; {after}"
    return f"{many} to do, about {clock_text(seconds)} (measured {measured}); {after}"
