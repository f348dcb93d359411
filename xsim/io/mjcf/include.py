"""<include>: other files, put in place of the element as text would be."""

from __future__ import annotations

from pathlib import Path

from xsim.io.errors import Notes
from xsim.io.mjcf.files import beside, locate
from xsim.io.mjcf.nodes import Budget, Node, scope
from xsim.io.reader import Element, parse_xml, read_bytes
from xsim.limits import limits

__all__ = ["expand_includes"]


def expand_includes(root: Node, budget: Budget, notes: Notes) -> None:
    """Replace every <include> by the contents of the root element of its file, whatever that is called.

    Paths start at the folder of the main file, of an include in an included file else at that file's own. A file may be included once.
    Raises ParseError.
    """
    done = {scope(Element(root, root.file)).folder / Path(root.file).name}
    size = 0
    pending = [root]
    while pending:
        node = pending.pop()
        if node.tag != "include":
            pending.extend(reversed(node.children))
            continue
        e = Element(node, node.file)
        if node.parent is None:
            raise e.error("is the root element; allowed: <mujoco>")
        e.only(["file"])
        if node.children:
            raise e.error("has elements inside; allowed: none")
        name = e.string("file")
        path = locate(e, "file", name, *beside(e, name))
        if path in done:
            raise e.error(f"the include of {path}: the file is in the model already; allowed: each file once", "file")
        done.add(path)
        data = read_bytes(path)
        size += len(data)
        if size > limits().bytes:
            raise e.error(f"the included files have more than {limits().bytes} bytes together (limits: bytes)")
        included = Node.of(parse_xml(data, str(path), notes))
        if not included.children:
            raise e.error(f"{path} holds no elements to include", "file")
        budget.spend(e, nodes=included.size())
        children = included.children
        node.parent.replace(node, children)
        pending.extend(reversed(children))
