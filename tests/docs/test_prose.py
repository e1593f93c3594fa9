"""Pages, help and errors have no phrase that a reader must decode, and no aphorism in place of a fact.

`codespell`, which `make lint` runs too, finds misspelt words. This test finds words that are spelt right but used as
no engineer uses them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from scripts.cli.main import cli
from scripts.helpers import errors
from tests.docs.pages import FENCE, PAGES, text_of
from tests.support.prose import unfit

SENTENCES_THAT_WERE_BAD = [
    "That one says how late an event may be. Ours says how far a job got, and lasts between runs.",
    "`settled=True` lifts the last of these.",
    "It does for any Spark job what Glue's job bookmarks do for Glue's own readers.",
    "It is for data engineers who load tables on a schedule and are held to the numbers.",
    "When a batch has to come again, say so and say why; the history keeps it",
    "Silence is filled in with a value that is too high (`FILL`).",
    "it shows its values, asks, and can do without `--why`",
    "Checkov finds nothing that is not explained beside the resource.",
    "-1 files · 1 rows have NULL",
    "Exports leave runs out, and a process that dies in it tells nobody the id",
    "make what is lost anew, from the rest and a listing of the source",
    "A context that goes on with a renamed column",
    "files that Spark passed over",
    "they were counted over the whole history, and jobs looked failed for good",
    "Who changes a text changes the pages that show it.",
    "two sources whose ledgers lie in one folder",
    "value is no number",
    "listing 1,000,000 keys, beside boto3's paginator",
    "If the run is alive after all, it can commit no more.",
    "Table elsewhere is there already; nothing was done.",
    "the script is in no place that this engine runs scripts from",
]


def prose_of(page: str) -> str:
    """Return a page without its code blocks and its inline code."""
    return re.sub(r"`[^`]*`", "", FENCE.sub("", text_of(page)))


def help_texts(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the name and the help of a command and its subcommands, as a wide terminal shows them."""
    shown = CliRunner().invoke(cli, [*words, "--help"], max_content_width=500).output
    yield " ".join(words), shown
    for name, below in getattr(command, "commands", {}).items():
        yield from help_texts(below, (*words, name))


@pytest.mark.parametrize("page", [*PAGES, "model/README.md"])
def test_page_has_no_phrase_that_nobody_uses_when_it_is_read(page: str) -> None:
    assert unfit(prose_of(page)) == []


def test_help_has_no_phrase_that_nobody_uses_when_a_command_is_asked_for_it() -> None:
    found = {name: unfit(text) for name, text in help_texts(cli, ())}

    assert len(found) > 20
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def test_error_has_no_phrase_that_nobody_uses_when_its_class_writes_it() -> None:
    nodes = list(ast.walk(ast.parse(inspect.getsource(errors))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]
    texts = [node.value for node in constants if isinstance(node.value, str)]

    assert len(texts) > 100
    assert [phrase for text in texts for phrase in unfit(text)] == []


@pytest.mark.parametrize("sentence", SENTENCES_THAT_WERE_BAD)
def test_sentence_is_found_when_it_is_one_of_those_that_were_bad(sentence: str) -> None:
    assert unfit(sentence)
