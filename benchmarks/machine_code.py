"""The machine code of rollouts and their gradients for this processor: ``python benchmarks/machine_code.py FILE [MODEL...]`` (minutes).

Of each program: operations; environments in a vector; instructions, and how many of them only load or store; bytes of the code, of the
stack, and of the scratch memory of a block of environments, where its arrays are and the numbers for which there is no register."""

import json
import re
import sys

from xsim.bench import targets
from xsim.bench.compare import Settings
from xsim.compile.code_generation import assembly, machine_code

MODELS = {"half_cheetah": None, "go1": None, "ant": "4.0", "humanoid_v5": "4.0"}
"""Bundled models and their rules."""


def report(name: str, model: str) -> list[dict]:
    """The programs of a model, leaves shared by the environments."""
    settings = Settings(model, batch=1024, steps=50, constraints=True, gradient=True, rules=MODELS.get(model))
    functions = targets.targets(targets.loaded_model(settings), settings)[-1].functions
    out = []
    for evaluation, program in zip(functions[1:], ("step", "reverse of step"), strict=True):
        function, batched = evaluation.function, evaluation.batched
        lanes = function.lanes(batched, settings.batch)
        texts = function.modules(batched, (False,) * len(function.results), lanes)
        lines = [line.split("#")[0].strip() for text in texts for line in assembly(text).splitlines() if re.match(r"\t[a-z]", line)]
        out.append({
            "model": name, "program": program, "operations": function.summary(batched).operations, "lanes": lanes,
            "instructions": len(lines), "loads_and_stores": sum(bool(re.match(r"v?k?mov.*\(%", x)) for x in lines),
            "code_bytes": sum(len(machine_code(text)) for text in texts),
            "stack_bytes": max((int(n) for x in lines for n in re.findall(r"^subq\t\$(\d+), %rsp", x)), default=0),
            "scratch_bytes": int(re.findall(r"%scratch.raw = call ptr @malloc\(i64 (\d+)\)", texts[-1])[0]),
        })  # fmt: skip
        print(out[-1], flush=True)
    return out


def main() -> None:
    """Print each program, and write all as JSON."""
    rows = []
    for model in sys.argv[2:] or MODELS:
        rows += report(model.split("/")[-1].removesuffix(".xml"), model)
        with open(sys.argv[1], "w") as file:
            file.write(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
