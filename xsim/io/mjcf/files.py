"""Files that a model names."""

from __future__ import annotations

import os
import re
from pathlib import Path

from xsim.io.files import is_file
from xsim.io.mjcf.nodes import scope
from xsim.io.reader import Element

__all__ = ["beside", "locate", "locate_asset", "outermost"]

CLIMB = 4  # ../../../../ from the model's folder: what real trees of robot files and shared assets need


def outermost(folder: Path) -> Path:
    """The folder that holds every file that a model in ``folder`` may name: CLIMB levels up, but never the root of the file system
    where the model lies deeper than that."""
    around = [folder, *folder.parents]
    return around[min(CLIMB, max(len(around) - 2, 0))]


def locate_asset(e: Element, attribute: str, folder: str) -> Path:
    """The file that an asset names: in the compiler's folder for its kind, else, in an included file, relative to that file.

    With ``strippath`` the folders in the name do not count, and neither does the second place. Raises ParseError.
    """
    name, settings = e.string(attribute), scope(e)
    if settings.strip_path:
        return locate(e, attribute, Path(folder) / re.split(r"[/\\]", name)[-1])
    return locate(e, attribute, Path(folder) / name, *beside(e, name))


def beside(e: Element, name: str) -> list[Path]:
    """Where a name leads that is relative to the included file that an element is in; nowhere for elements of the main file."""
    return [] if e.file == scope(e).file else [Path(e.file).parent / name]


def locate(e: Element, attribute: str, *paths: str | Path) -> Path:
    """The first of these paths that is a file; each relative to the folder of the main file or absolute.

    Models are not trusted, and shared assets are usual: a path may climb with ``..`` or be absolute, but must lead into the folder of the
    main file, one of the CLIMB folders above it, or below these (never through the root of the file system). What counts is the path as it
    is written, so links that the user made are followed; a backslash is a slash. Nothing is ever fetched. Raises ParseError.
    """
    settings = scope(e)
    looked = []
    for path in paths:
        full = Path(os.path.normpath(settings.folder / str(path).replace("\\", "/")))
        if not full.is_relative_to(settings.within):
            raise e.error(f"{str(path)!r} leads out of {settings.within}; allowed: files below that folder", attribute)
        looked.append(str(full))
        if is_file(full):
            return full
    raise e.error(f"the file is not there; looked for {' and '.join(dict.fromkeys(looked))}", attribute)
