"""Generate the tables of versions, resources, inputs and outputs in terraform/README.md from the HCL.

`python -m tests.infra.inputs` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import hcl2

from tests.infra.terraform import TERRAFORM_FOLDER

PLAIN = hcl2.SerializationOptions(strip_string_quotes=True, explicit_blocks=False, with_comments=False)
README = TERRAFORM_FOLDER / "README.md"
START = "## Requirements\n"


def blocks(file: str, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the body of each variable or output in a file of the module."""
    with (TERRAFORM_FOLDER / file).open(encoding="utf-8") as text:
        for block in hcl2.load(text, serialization_options=PLAIN)[kind]:
            yield from block.items()


def first_line(block: dict[str, Any]) -> str:
    """Return the first line of a description."""
    lines = [line.strip() for line in block["description"].replace('\\"', '"').splitlines()]
    return next(line for line in lines if not line.startswith("<<"))


def default_of(block: dict[str, Any]) -> str:
    """Return the default as Terraform writes it, or an empty text if the variable has none."""
    if "default" not in block:
        return ""
    value = block["default"]
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def type_of(block: dict[str, Any]) -> str:
    """Return the type of a variable on one line."""
    found = re.fullmatch(r"\$\{(.*)\}", block["type"])
    return found[1] if found else str(block["type"])


def parts(text: str) -> Iterator[str]:
    """Split a text at its commas, but not within brackets."""
    depth, start = 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def attributes(of_type: str) -> list[tuple[str, str, str, str]]:
    """Return the name, type, "yes" if required, and default of each attribute of the objects in a map."""
    found = re.fullmatch(r"map\(object\(\{(.*)\}\)\)", of_type)
    if found is None:
        return []
    rows = []
    for part in parts(found[1]):
        name, _, kind = part.partition(" = ")
        optional = re.fullmatch(r"optional\((.*)\)", kind)
        inner, *default = parts(optional[1] if optional else kind)
        rows.append((name, inner, "no" if optional else "yes", default[0] if default else "null" if optional else ""))
    return rows


def shown_type(of_type: str) -> str:
    """Return the type to show in the table; the attributes of objects have a table of their own."""
    return "map(object)" if attributes(of_type) else of_type


def versions() -> list[str]:
    """Return the lines about the versions of Terraform and its provider."""
    with (TERRAFORM_FOLDER / "versions.tf").open(encoding="utf-8") as text:
        [block] = hcl2.load(text, serialization_options=PLAIN)["terraform"]
    [providers] = block["required_providers"]
    lines = [START, "| name | version |", "|---|---|", f"| Terraform | `{block['required_version']}` |"]
    lines += [f"| {name} | `{provider['version']}` |" for name, provider in providers.items()]
    lines += ["", "## Providers", "", "| name | source |", "|---|---|"]
    return [*lines, *(f"| {name} | `{provider['source']}` |" for name, provider in providers.items())]


def resources() -> list[str]:
    """Return the lines about the resources and data sources of the module."""
    lines = ["", "## Resources", "", "| name | type |", "|---|---|"]
    for kind in ("resource", "data"):
        for path in sorted(TERRAFORM_FOLDER.glob("*.tf")):
            with path.open(encoding="utf-8") as text:
                found = hcl2.load(text, serialization_options=PLAIN).get(kind, [])
            lines += [
                f"| `{of_type}.{name}` | {kind} |"
                for block in found
                for of_type, named in block.items()
                for name in named
                if not name.startswith("__")
            ]
    return lines


def tables() -> str:
    """Return the generated part of the README: versions, resources, variables and outputs."""
    variables = list(blocks("variables.tf", "variable"))
    lines = [
        *versions(),
        *resources(),
        "",
        "## Variables",
        "",
        "| variable | what | type | required | default |",
        "|---|---|---|---|---|",
    ]
    for name, block in variables:
        required = "no" if "default" in block else "yes"
        kind = shown_type(type_of(block))
        lines.append(f"| `{name}` | {first_line(block)} | `{kind}` | {required} | {default_of(block)} |")
    for name, block in variables:
        rows = attributes(type_of(block))
        if rows:
            lines += ["", f"Attributes of each of `{name}`:", ""]
            lines += ["| attribute | type | required | default |", "|---|---|---|---|"]
            lines += [
                f"| `{part}` | `{kind}` | {needed} | {value and f'`{value}`'} |" for part, kind, needed, value in rows
            ]
    lines += ["", "## Outputs", "", "| output | what |", "|---|---|"]
    lines += [f"| `{name}` | {first_line(block)} |" for name, block in blocks("outputs.tf", "output")]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the tables into the README."""
    before, _, _ = README.read_text(encoding="utf-8").partition(START)
    README.write_text(before + tables(), encoding="utf-8")


if __name__ == "__main__":
    main()
