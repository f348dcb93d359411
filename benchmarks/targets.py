"""The programs of models with contacts for an NVIDIA H200, compiled without one: ``python benchmarks/targets.py FILE [MODEL ...]``
(minutes; needs the extra ``aot``). MODEL: further files, of whose programs that of the gradient is left out."""

import json
import sys

from xsim.bench import targets
from xsim.bench.compare import Settings

MODELS = {"half_cheetah": True, "go1": True, "ant": True, "humanoid_v5": False}
"""Whether the gradient is compiled too."""


def main() -> None:
    """Print a table of each model, and write all as JSON."""
    reports = []
    for name, gradient in (MODELS | dict.fromkeys(sys.argv[2:], False)).items():
        settings = Settings(name, batch=8192, steps=50, constraints=True, gradient=gradient)
        reports.append(targets.programs("h200", settings, lambda text: print(text, file=sys.stderr)))
        print(targets.table(reports[-1]), end="\n\n", flush=True)
        with open(sys.argv[1], "w") as file:
            file.write(json.dumps(reports, indent=1) + "\n")


if __name__ == "__main__":
    main()
