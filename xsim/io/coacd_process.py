"""CoACD in a process of its own: it ends its process where a mesh is none, and nothing interrupts it.

The standard input is an npz archive of ``vertices`` and ``faces``, the argument a JSON object of CoACD's parameters. The standard output
is an npz archive of the vertices of each part. What the library prints goes to the standard error.
"""

from __future__ import annotations

import io
import json
import os
import sys

import numpy as np


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import coacd  # pyright: ignore[reportMissingImports]

    coacd.set_log_level("error")
    with np.load(io.BytesIO(sys.stdin.buffer.read())) as given:
        mesh = coacd.Mesh(given["vertices"], given["faces"])
    parts = coacd.run_coacd(mesh, **json.loads(sys.argv[1]))
    archive = io.BytesIO()
    np.savez(archive, *(vertices for vertices, _ in parts))
    with out:
        out.write(archive.getvalue())


if __name__ == "__main__":
    main()
