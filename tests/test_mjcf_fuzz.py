"""MJCF that is wrong or too large: whatever a file holds, it becomes a model or is refused with file and line, within bounded time.

Faults are made in the models of the corpus (and those that come with xsim), with the words and numbers that the corpus has in the same
place as often as with nonsense; and in the files of meshes, heights and flexes that they name.
"""

from __future__ import annotations

import copy
import json
import random
import re
import shutil
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from corpus import corpus, needs_corpus
from lxml import etree
from test_conformance_mjcf import models

import xsim
import xsim.models
from xsim.io import ParseError, parse_text
from xsim.model.build import assemble

SECONDS = 20.0  # of the processor, for one model: many times what the slowest needs
FEW, MANY = 600, 12_000
SEEDS = [range(FEW), pytest.param(range(FEW, MANY), marks=pytest.mark.nightly)]
NONSENSE = [
    "nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "0", "-1", "1", "2", "", " ", "x", "1 2", "0 0 0", "0 0 1", "1 0 0 0",
    "1e308 1e308 1e308", "0 0 0 0 0 0", "1e200 -1e200 1e200 1e308 1e308 1e308", "true", "false", "auto", "world", "main", "9" * 400,
    "2147483648", "-2147483649", "100000", "1000000", "1.5", "\u0661", "0x10", "1_0", "1,2,3",
]  # fmt: skip
WRAPPINGS = ("frame", "replicate", "body", "worldbody", "default", "composite", "flexcomp", "mujoco")
COUNTS = ("2", "3", "1000", "1000000", "0")
UNKNOWN = ("actuator.length_range",)  # leaves in which NaN stands for what the file does not say


class Hang(BaseException):
    """More time than any model needs: no Exception, that nothing may take it for a fault of the file."""


@contextmanager
def bounded(seconds: float = SECONDS) -> Iterator[None]:
    """Raise Hang after so much time of the processor."""

    def end(*_):
        raise Hang(f"more than {seconds} s of the processor")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.1)  # again and again: what collects garbage swallows exceptions
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def infinite(x, path: str = "spec") -> Iterator[str]:
    """Where a spec holds numbers that are none, or infinite ones."""
    if is_dataclass(x):
        for f in fields(x):
            yield from infinite(getattr(x, f.name), f"{path}.{f.name}")
    elif isinstance(x, dict):
        for key, value in x.items():
            yield from infinite(value, f"{path}.{key}")
    elif isinstance(x, (tuple, list)):
        for value in x:
            yield from infinite(value, f"{path}[]")
    elif isinstance(x, (np.ndarray, float)) and np.asarray(x).dtype.kind == "f" and not np.isfinite(x).all():
        yield path


def fault(text: str | bytes, file: Path | str, rules: str = "3.2") -> str | None:
    """What is wrong with what comes of a document; None: a sound model, or an error that says where."""
    try:
        with bounded(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(text, bytes):
                text = text.decode("latin-1")
            spec = parse_text(text, "mjcf", file=str(file), rules=rules)
            wrong = [f"{path} is not finite" for path in infinite(spec)]
            wrong += [f"body {i} stands before its parent" for i, body in enumerate(spec.bodies) if not -1 <= body.parent < i]
            model = assemble(spec)  # what muscles may need besides is a simulation
            leaves = ((path, np.asarray(model.get(path))) for path in model.paths() if path not in UNKNOWN)
            wrong += [f"{path} has a NaN" for path, x in leaves if x.dtype.kind == "f" and np.isnan(x).any()]
            return wrong[0] if wrong else None
    except (ParseError, ValueError) as error:
        message = str(error)
        placed = re.match(r"[^\n]*\.\w+:\d+: |[^\n]*not well-formed XML", message)
        return None if placed else f"{type(error).__name__} without a line: {message}"
    except (Exception, Hang) as error:
        return f"{type(error).__name__}: {error}"


# ---- faults ------------------------------------------------------------------------------------------------------------------


@cache
def documents() -> dict[Path, bytes]:
    """The models by path."""
    root = corpus()
    paths = [p for p in map(xsim.models.path, xsim.models.names()) if p.parent.name == "mjcf"]
    paths += [root / "models" / "mjcf" / p for p in models()] if root is not None else []
    return {p: p.read_bytes() for p in paths}


@cache
def vocabulary() -> tuple[list[str], dict[str, dict[str, list[str]]], list[str]]:
    """Of all models: tags; values by tag and attribute; all values."""
    values: dict[str, dict[str, list[str]]] = {}
    for document in documents().values():
        for e in etree.fromstring(document).iter(etree.Element):
            for name, value in e.attrib.items():
                values.setdefault(e.tag, {}).setdefault(name, []).append(value)
    return sorted(values), values, [v for names in values.values() for found in names.values() for v in found]


def wrong_value(value: str, rng: random.Random) -> str:
    """A value with another word, one fewer or more, scaled, turned round, or too long."""
    words = value.split()
    if not words:
        return rng.choice(NONSENSE)
    i, kind = rng.randrange(len(words)), rng.choice(("word", "fewer", "more", "scaled", "turned", "long"))
    if kind == "word":
        words[i] = rng.choice(NONSENSE)
    elif kind == "fewer":
        del words[i]
    elif kind == "more":
        words.append(rng.choice(words))
    elif kind == "scaled":
        try:
            words[i] = repr(float(words[i]) * rng.choice((-1, 0, 1e-3, 1e3, 1e30, 1e-30, 1e150)))
        except ValueError:
            words[i] += "x"
    elif kind == "turned":
        words.reverse()
    else:
        words *= rng.choice((2, 3, 50))
    return " ".join(words)


def mutate(document: bytes, rng: random.Random) -> bytes:
    """The document with one to five faults."""
    tags, values, every = vocabulary()
    root = etree.fromstring(document)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        nodes = list(root.iter(etree.Element))
        node, other = rng.choice(nodes), rng.choice(nodes)
        names, known = list(node.attrib), values.get(node.tag, {})
        kind = rng.choice(("value", "value", "word", "drop", "known", "known", "known", "swap", "same", "text", "tag") + STRUCTURAL)
        if kind in STRUCTURAL and node is root:
            continue
        if kind == "value" and names:
            name = rng.choice(names)
            node.set(name, wrong_value(node.get(name), rng))
        elif kind == "word" and names:
            node.set(rng.choice(names), rng.choice(NONSENSE if rng.random() < 0.5 else every))
        elif kind == "drop" and names:
            del node.attrib[rng.choice(names)]
        elif kind == "known" and known:  # an attribute that may stand there
            name = rng.choice(sorted(known))
            value = rng.choice(known[name])
            node.set(name, value if rng.random() < 0.6 else wrong_value(value, rng))
        elif kind == "swap" and names and other.attrib and other is not node:  # an attribute under the name of another
            value = node.attrib.pop(rng.choice(names))
            node.set(rng.choice(list(other.attrib)), value)
        elif kind == "same" and names:  # as another element of its kind has it: names twice, references to others
            name = rng.choice(names)
            node.set(name, rng.choice([n.get(name, "") for n in nodes if n.tag == node.tag]))
        elif kind == "text":
            node.text = rng.choice(NONSENSE)
        elif kind == "tag":
            node.tag = rng.choice(tags if rng.random() < 0.5 else [n.tag for n in nodes])
        elif kind == "remove":
            node.getparent().remove(node)
        elif kind == "copy":
            node.getparent().append(copy.deepcopy(node))
        elif kind == "nest":
            other.append(copy.deepcopy(node))
        elif kind == "wrap":
            around = etree.Element(rng.choice(WRAPPINGS))
            if around.tag == "replicate":
                around.set("count", rng.choice(COUNTS))
            node.getparent().replace(node, around)
            around.append(node)
    text = etree.tostring(root)
    return damaged(text, rng) if rng.random() < 0.05 else text


STRUCTURAL = ("remove", "copy", "nest", "wrap")


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes cut off, or added, or changed: more often near the start, where formats have their numbers of things."""
    kind = rng.choice(("cut", "more", "changed", "changed", "counts"))
    if kind == "cut" or not data:
        return data[: rng.randrange(len(data) + 1)]
    if kind == "more":
        return data + rng.randbytes(rng.randrange(100))
    out = bytearray(data)
    for _ in range(rng.choice((1, 3, 30))):
        out[rng.randrange(len(out) if rng.random() < 0.5 else min(len(out), 120))] = rng.randrange(256)
    if kind == "counts":  # of the triangles of an STL file
        out[80:84] = b"\xff" * 4
    return bytes(out)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
def test_wrong_models_are_read_or_refused(seeds):
    paths, wrong = sorted(documents()), []
    for seed in seeds:
        rng = random.Random(seed)
        path, rules = rng.choice(paths), rng.choice(("3.2", "3.2", "4.0"))
        found = fault(mutate(documents()[path], rng), path, rules)
        wrong += [f"seed {seed}, {path.stem} ({rules}): {found}"] if found else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@needs_corpus
@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 2000), marks=pytest.mark.nightly)], ids=["few", "many"])
def test_wrong_files_of_models_are_read_or_refused(seeds, tmp_path):
    """Meshes, heights, flexes, and parts that are included or attached."""
    root = corpus()
    assert root is not None
    folder = tmp_path / "mjcf"
    shutil.copytree(root / "models" / "mjcf", folder)
    parts = [folder / part for part in json.loads((folder / "parts.json").read_text())["parts"]]
    named = sorted([*parts, *(p for p in folder.rglob("*") if p.suffix in (".stl", ".obj", ".png"))])
    users = {p: [folder / m for m in models() if re.search(rf"\b{re.escape(p.name)}\b", (folder / m).read_text())] for p in named}
    tried = [p for p in named if users[p]]
    assert {p.suffix for p in tried} == {".stl", ".obj", ".png", ".xml"}
    wrong = []
    for seed in seeds:
        rng = random.Random(seed)
        path = rng.choice(tried)
        user, before = rng.choice(users[path]), path.read_bytes()
        path.write_bytes(mutate(before, rng) if path.suffix == ".xml" else damaged(before, rng))
        found = fault(user.read_bytes(), user)
        path.write_bytes(before)
        wrong += [f"seed {seed}, {path.name} of {user.stem}: {found}"] if found else []
    assert not wrong, "\n".join(wrong)


def test_the_models_are_good_before():
    """Some of them, and an error without a place would be seen."""
    for path, document in sorted(documents().items())[::8]:
        assert fault(document, path) is None, path
    assert str(fault(model("<geom/>"), "here")).startswith("ParseError without a line: here:1: <geom>: size: ")


# ---- models that ask for too much --------------------------------------------------------------------------------------------

BODY = '<body name="b"><joint name="j"/><geom name="g" size=".1"/></body>'


def model(world: str = BODY, before: str = "", after: str = "") -> str:
    return f"<mujoco>{before}<worldbody>{world}</worldbody>{after}</mujoco>"


def copies(count: int) -> str:
    return f'<replicate count="{count}">{BODY}</replicate>'


def flexcomp(kind: str, count: str, dim: int) -> str:
    return model(f'<flexcomp name="f" type="{kind}" count="{count}" spacing=".1 .1 .1" dim="{dim}"/>')


ENTITIES = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
TOO_MUCH = {
    "copies of all that refers": (
        model(copies(2000), "", "<actuator>" + '<motor joint="j"/>' * 300 + "</actuator>"), "the model grows to"),
    "copies of long names": (model(copies(60_000).replace('"g"', f'"{"g" * 1000}"')), "the names of the model grow to"),
    "heights": (model(before='<asset><hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/></asset>'), "allowed: from 1 to"),
    "heights of many fields": (
        model(before="<asset>" + "".join(f'<hfield name="h{i}" nrow="3000" ncol="3000" size="1 1 1 1"/>' for i in range(50)) + "</asset>"),
        "the arrays of the model grow to"),
    "points of a grid": (
        model('<composite type="grid" count="1000 1000 1" spacing=".1"><geom size=".01"/></composite>'), "the model grows to"),
    "particles": (
        model('<composite type="particle" count="1000 1000 1000" spacing=".1"><geom size=".01"/></composite>'), "the model grows to"),
    "pieces of a cable": (
        model('<body><composite type="cable" curve="s" count="1000000 1 1" size="1"><geom type="capsule" size=".01"/></composite></body>'),
        "found more points"),
    "points of a flex": (flexcomp("grid", "300 300 300", 3), "the model grows to"),
    "points of a box": (flexcomp("box", "100000 100000 100000", 3), "the model grows to"),
    "points of a line": (flexcomp("grid", "1000000 1 1", 1), "the model grows to"),
    "points in several flexes": (
        model(copies(300).replace(BODY, '<body name="b"><flexcomp name="f" type="grid" count="9 9 9" spacing=".1 .1 .1" dim="3"/></body>')),
        "the model grows to"),
    "numbers of users": (model(before='<size nuser_geom="2147483647"/>'), "nuser_geom"),
    "numbers of users of all": (model(copies(1000), '<size nuser_body="1000000"/>'), "the arrays of the model grow to"),
    "custom numbers": (model(after='<custom><numeric name="a" size="2000000000" data="1"/></custom>'), "size: found 2000000000"),
    "keyframes": (model(before='<size nkey="2000000000"/>'), "nkey"),
    "depth": (model("<body>" * 1500 + "</body>" * 1500), "nested deeper than"),
    "entities": (f'<!DOCTYPE mujoco [<!ENTITY e0 "x">{ENTITIES}]>' + model(after="&e11;"), "entities are not allowed"),
    "entities of other files": (
        '<!DOCTYPE mujoco [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + model(after="&e;"), "entities are not allowed"),
    "entities after a comment": (f'<!-- --><!DOCTYPE m [<!ENTITY e0 "x">{ENTITIES}]>' + model('<geom name="&e11;"/>'), "are not allowed"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_models_that_ask_for_too_much_are_refused(name):
    document, words = TOO_MUCH[name]
    with bounded(5), pytest.raises(ParseError, match=r"m\.xml:1: ") as caught:
        parse_text(document, "mjcf", file="m.xml")
    assert words in str(caught.value)


def of_files(folder: Path, files: dict[str, str]) -> None:
    """Read main.xml of these files."""
    for name, text in files.items():
        (folder / name).write_text(text)
    with bounded(5):
        xsim.parse(folder / "main.xml")


@pytest.mark.parametrize("ring", [1, 2, 5])
def test_circles_of_files(ring, tmp_path):
    """Contacts in the file that closes them."""
    names = ["main.xml", *(f"{i}.xml" for i in range(1, ring))]
    include = {name: model(f'<include file="{names[(i + 1) % ring]}"/>') for i, name in enumerate(names)}
    with pytest.raises(ParseError, match=rf"{names[-1]}:1: .*the file is in the model already"):
        of_files(tmp_path, include)
    attach = {name: model(before=f'<asset><model file="{names[(i + 1) % ring]}"/></asset>') for i, name in enumerate(names)}
    with pytest.raises(ParseError, match=rf"{names[-1]}:1: .*attaches itself"):
        of_files(tmp_path, attach)


def test_includes_that_double(tmp_path):
    """Thirty files, each names the next twice: a path may be written in any number of ways, the file is the same."""
    files = {f"{i}.xml": f'<x><include file="{i + 1}.xml"/><include file="../{tmp_path.name}/{i + 1}.xml"/></x>' for i in range(30)}
    with pytest.raises(ParseError, match=r"29\.xml:1: .*the file is in the model already"):
        of_files(tmp_path, files | {"main.xml": model('<include file="0.xml"/>'), "30.xml": f"<x>{BODY}</x>"})
