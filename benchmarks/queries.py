"""Time to compile and to evaluate the queries of a state, by LLVM and by XLA: python benchmarks/queries.py [--json FILE]."""

import argparse
import json

import jax.numpy as jnp
import numpy as np
from compilers import COMPILERS, medians, program, versions

import xsim

QUERIES = {
    "kinematics": lambda model, s: xsim.kinematics(model, s.q),
    "jacobian": lambda model, s: xsim.jacobian(model, s.q, model.body_names[-1]),
    "mass_matrix": lambda model, s: xsim.mass_matrix(model, s.q),
    "bias": lambda model, s: xsim.bias(model, s.q, s.v),
    "energy": lambda model, s: xsim.energy(model, s.q, s.v),
    "smooth_acceleration": lambda model, s: xsim.smooth_acceleration(model, s.q, s.v),
    "distances of contacts": lambda model, s: xsim.contacts(model, s).distance,
    "contacts": xsim.contacts,
}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model", nargs="?", default="go1")
    p.add_argument("--num", type=int, default=1024)
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--json")
    args = p.parse_args()
    used, model, rows = versions(), xsim.load(args.model), []
    start = xsim.init(model)
    moved = jnp.asarray(np.random.default_rng(0).normal(0, 0.1, (args.num, model.nv)), start.v.dtype)
    state = xsim.init(model, xsim.integrate(model, start.q, moved), moved)
    for name, query in QUERIES.items():
        runs = {c: program(c, query, model, state) for c in COMPILERS}
        seconds = medians({c: run for c, (run, _) in runs.items()}, args.repeat)
        row = {"query": name, **{f"{c}_compile_s": round(runs[c][1], 2) for c in COMPILERS}}
        rows.append({**row, **{f"{c}_ms": round(1e3 * seconds[c], 3) for c in COMPILERS}})
        print(*(f"{key} {x};" for key, x in rows[-1].items()), flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"versions": used, "model": args.model, "environments": args.num, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
