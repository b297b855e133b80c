"""Answers as one self-contained HTML page, for any of their kinds."""

from collections.abc import Sequence
from pathlib import Path

from airrep._version import __version__
from airrep.answers.answer import Answer
from airrep.answers.reading import ANSWERS
from airrep.errors import ConfigError
from airrep.reports.answers.tables import answer_tables
from airrep.reports.exhibits import Exhibit, Section
from airrep.reports.page import asset, check_page_free, environment, page_bytes, policy
from airrep.reports.sources import Run
from airrep.runtime.remote.outputs import write_output

TITLE = "Answers about training data"
HEADINGS = {
    "explain": "What taught these answers",
    "clean": "What to look at in the data",
    "audit": "What the data have of the evaluation",
    "mix": "How to mix sources",
    "harmful": "What harms these queries",
    "top-of-set": "What helps or harms all queries",
    "proof": "What these rows taught, by fine-tunes",
}


def read_answer(run: str | Path | Run) -> Answer:
    """Read an answer of any kind.

    Raises:
        ArtifactError: unfinished or altered.
        ConfigError: another kind of artifact.
        DataError: it holds what an answer cannot.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    if opened.kind not in ANSWERS:
        raise ConfigError(
            f"report: {opened.path} is of kind '{opened.kind}'; expected answers alone ({', '.join(ANSWERS)}). "
            "Write one page for each."
        )
    return ANSWERS[opened.kind].read(opened.path)


def write_answer_report(
    answers: Sequence[str | Path | Run | Answer],
    out: str | Path,
    *,
    title: str | None = None,
    notes: Sequence[str] = (),
    replace: bool = False,
) -> Path:
    """Write answers as one HTML page that needs nothing else: no network, no other file, no script.

    Args:
        answers: what :func:`airrep.explain` and the like return, or artifacts that hold it.
        out: the file to write; missing directories are made.
        title: heading of the page.
        notes: sentences set apart at its top.
        replace: whether a file that is there already may be replaced.

    Returns:
        The path of the page.

    Raises:
        ConfigError: no answers, or an artifact that holds none.
        DataError: an artifact that holds what an answer cannot.
        ArtifactError: an artifact that cannot be read, or a file that exists or cannot be written.
    """
    path = Path(out)
    check_page_free(path, replace)
    found = [one if isinstance(one, Answer) else read_answer(one) for one in answers]
    if not found:
        raise ConfigError("report: no answers; expected at least one. Give the path of one.")
    write_output(path, page_bytes(_page(found, title, notes)))
    return path


def _page(answers: Sequence[Answer], title: str | None, notes: Sequence[str]) -> str:
    several = len({one.provenance.index for one in answers}) > 1
    signs = dict.fromkeys(one.provenance.sign for one in answers)
    shown = [_section(number, answer, several, len(signs) > 1) for number, answer in enumerate(answers, 1)]
    names = [exhibit.name for section in shown for exhibit in section.exhibits]
    styles = [asset("report.css"), asset("evaluations.css")]
    origins = dict.fromkeys((one.provenance.method, one.provenance.index[:12]) for one in answers)
    cautions = dict.fromkeys(one.provenance.caution for one in answers if one.provenance.caution)
    return (
        environment()
        .get_template("evaluations.html.j2")
        .render(
            title=title or TITLE,
            notes=[*notes, *cautions, *dict.fromkeys(one.note for one in answers)],
            sections=shown,
            labels={name: f"Table {number}" for number, name in enumerate(names, 1)},
            facts={
                "Method": ", ".join(dict.fromkeys(method for method, _ in origins)),
                "Index": ", ".join(dict.fromkeys(index for _, index in origins)),
                **({"Sign": next(iter(signs))} if len(signs) == 1 else {}),
            },
            styles=styles,
            policy=policy(styles),
            version=__version__,
        )
    )


def _section(number: int, answer: Answer, several: bool, signed: bool) -> Section:
    name, origin = f"{answer.kind}-{number}", answer.provenance
    heading = HEADINGS[answer.kind]
    if several:
        heading += f": {origin.method}, index {origin.index[:12]}"
    exhibits = [
        Exhibit(f"{name}-{place}", table.title, table.caption, (), (table,) if table.lines else ())
        for place, table in enumerate(answer_tables(answer), 1)
    ]
    return Section(name, heading, tuple(exhibits), f"Sign: {origin.sign}." if signed else "")
