"""``python -m xsim`` or ``xsim``: the demo, or one of the other commands: ``xsim view FILE``, ``xsim train TASK``, ``xsim bench``."""

from __future__ import annotations

import importlib
import sys

from xsim.compile.persistent_cache import use_compilation_cache
from xsim.dynamics.sharding import use_cores_with_xla

__all__ = ["main"]

COMMANDS = {"demo": "xsim.demo", "view": "xsim.view", "train": "xsim.train.__main__", "bench": "xsim.bench.__main__"}
"""Modules of the commands. Each has a function ``main`` of the command's arguments that returns the exit status."""


def main(arguments: list[str] | None = None) -> int:
    """The command ``xsim``. arguments: the name of a command and its arguments; without a name those of the demo. None: of the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else ("demo", arguments)
    return importlib.import_module(COMMANDS[name]).main(rest)


def script() -> int:
    """The entry point of the console script: `main` with all cores of the processor, and compiled programs kept on disk."""
    use_cores_with_xla()
    if sys.argv[1:2] != ["bench"]:  # which measures how long programs compile
        use_compilation_cache()
    return main()


if __name__ == "__main__":
    sys.exit(script())
