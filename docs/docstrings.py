"""How the API pages show docstrings: as they are written, with one line for each argument or field that they describe."""

import inspect
import re

SENTENCE_END = r"(?:^|(?<=[.;])\s+)"


def setup(app) -> dict:
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-skip-member", skip_member)
    return {"parallel_read_safe": True}


def process_docstring(app, what, name, obj, options, lines) -> None:
    names = [] if what == "module" else argument_names(obj)
    text = "\n".join(lines)
    paragraphs = text.split("\n\n")
    parts = [paragraphs[0], *(as_list(p, names) for p in paragraphs[1:])]
    lines[:] = [literal(line) for line in "\n\n".join(parts).split("\n")]


def process_signature(app, what, name, obj, options, signature, returned):
    """Of a class, leave out the defaults that take more room than they tell."""
    if what != "class" or not (signature and inspect.isclass(obj)):
        return None
    return "(" + ", ".join(map(brief, inspect.signature(obj).parameters.values())) + ")", None


def skip_member(app, what, name, obj, skip, options):
    """Leave out the fields of named tuples: Python describes them by their number, the docstring of the class by their meaning."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def argument_names(obj) -> list[str]:
    try:
        return list(inspect.signature(obj).parameters)
    except (TypeError, ValueError):
        return []


def brief(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return str(parameter.replace(annotation=inspect.Parameter.empty))
    text = repr(parameter.default)
    return f"{parameter.name}={text if len(text) < 16 and '<' not in text and 'array' not in text else '...'}"


def as_list(paragraph: str, names: list[str]) -> str:
    """A paragraph of ``name: meaning`` sentences as a list, an item for each name, and one for the errors that are raised."""
    if not names or paragraph.lstrip().startswith(("* ", "==", "- ")) or paragraph.rstrip().endswith("::"):
        return paragraph
    name = "(?:" + "|".join(map(re.escape, sorted(names, key=len, reverse=True))) + ")"
    shape = r"(?: \([^():]*\))?"
    label = rf"`*{name}`*{shape}(?:,? (?:and )?`*{name}`*{shape})*"
    text = " ".join(line.strip() for line in paragraph.split("\n"))
    starts = [m for m in re.finditer(rf"{SENTENCE_END}(?:(?P<label>{label}): |(?=Raises ))", text)]
    if not starts:
        return paragraph
    items = [text[: starts[0].start()].strip()] if starts[0].start() else []
    for i, start in enumerate(starts):
        end = starts[i + 1].start() if i + 1 < len(starts) else len(text)
        head = start.group("label")
        body = text[start.end() : end].strip()
        items.append(f"* **{head.replace('`', '')}**: {body}" if head else f"* {body}")
    return "\n\n".join(items)


def literal(line: str) -> str:
    """A line with the asterisks, bars and trailing underscores outside of backticks and bold names taken as they stand."""
    pieces = re.split(r"(``.*?``|`[^`]*`|(?<=^\* )\*\*.*?\*\*(?=:))", line)
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            bullet = re.match(r"\s*\* ", piece) if i == 0 else None
            head = bullet.group() if bullet else ""
            pieces[i] = head + escape(piece[len(head) :])
        elif piece.startswith("**"):
            pieces[i] = "**" + escape(piece[2:-2]) + "**"
    return "".join(pieces)


def escape(text: str) -> str:
    return re.sub(r"[*|]|(?<=\w)_(?!\w)", lambda m: "\\" + m.group(), text)
