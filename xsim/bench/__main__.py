"""``python -m xsim.bench``: steps per second of a model, its gradients, and other engines at the same work.

Each engine runs in a process of its own. The work: environments start near the neutral configuration and are pushed by constant forces,
or controls where the model has actuators, for a number of steps; the gradient is that of the sum of squares of the final q with respect
to the forces or controls of all steps, and comes with its value. MuJoCo's engines read an MJCF file themselves.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from xsim.bench import scaling
from xsim.bench.compare import Column, Settings, compare
from xsim.bench.peers import ENGINES
from xsim.bench.report import as_json, curve, table
from xsim.compile.processes import available_cores
from xsim.io.mjcf.releases import RELEASES
from xsim.suggestions import did_you_mean

PEERS = tuple(name for name in ENGINES if name != "xsim")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser("python -m xsim.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="chain", help="bundled model or file (default: %(default)s)")
    p.add_argument("--batch", type=_positive, default=1024, help="environments (default: %(default)s)")
    p.add_argument("--steps", type=_positive, default=100, help="steps of a rollout (default: %(default)s)")
    p.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    p.add_argument("--gradient", action=argparse.BooleanOptionalAction, default=True, help="measure the gradient too")
    p.add_argument("--freeze", type=_names, default=(), metavar="PATTERNS", help="second column with these leaves frozen: geom.*,body.*")
    p.add_argument("--randomize", nargs="?", const="", metavar="RANGES",
                   help="xsim's environments differ (axes and positions, or the ranges named); peers keep one model")  # fmt: skip
    p.add_argument("--constraints", action="store_true",
                   help="xsim's friction, limits, couplings and contacts act too, and those of peers that read an MJCF file")  # fmt: skip
    p.add_argument("--integrator", metavar="NAME", help="another integrator than the file's, in all engines")
    p.add_argument("--rules", choices=tuple(RELEASES), help="the MuJoCo release whose rules xsim reads an MJCF file by")
    p.add_argument("--agree", type=float, metavar="TOLERANCE", help="fail if an engine's final q differs from xsim's by more than this")
    p.add_argument("--cores", type=_positive, default=available_cores(),
                   help="cores of a CPU that engines of JAX use (default: all, %(default)s)")  # fmt: skip
    p.add_argument("--peer-threads", type=_positive, metavar="THREADS",
                   help="of XLA in the other engines; with two, MJX deadlocks on larger models")  # fmt: skip
    p.add_argument("--repeat", type=_positive, default=5, help="timed runs of every program (default: %(default)s)")
    p.add_argument("--vs", type=_peers, default=(), metavar="PEERS", help=f"other engines: {','.join(PEERS)}")
    p.add_argument("--peer-python", default=sys.executable, metavar="PATH", help="interpreter that has the other engines")
    p.add_argument("--scaling", choices=("batch", "devices"),
                   help="batch: all engines with batches up to --batch; devices: xsim on 1, 2, 4, ... cores of a CPU, GPUs or TPUs, "
                   "with --batch environments in all (strong) and --batch on each (weak)")  # fmt: skip
    p.add_argument("--picture", default="scaling.png", metavar="PNG", help="of --scaling (default: %(default)s)")
    p.add_argument("--target", metavar="CHIP",
                   help="measure nothing: compile the programs for an accelerator that is not there (h200, h100, a100, rtx4090, tpu-v5e)")
    p.add_argument("--json", metavar="FILE", help="write everything measured")
    p.add_argument("--timeout", type=float, default=600.0, metavar="S", help="limit of one command to an engine (default: %(default)s s)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--quiet", action="store_true", help="no progress on stderr")
    return p


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _names(text: str) -> tuple[str, ...]:
    return tuple(x.strip() for x in text.split(",") if x.strip())


def _peers(text: str) -> tuple[str, ...]:
    names = _names(text)
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"unknown engine {name!r}{did_you_mean(name, PEERS)}; known: {', '.join(PEERS)}")
    return names


def sweep(largest: int) -> list[int]:
    """Batch sizes of a scaling curve: powers of 4 below the largest, then the largest."""
    sizes = [1]
    while sizes[-1] * 4 < largest:
        sizes.append(sizes[-1] * 4)
    return sizes if largest == 1 else [*sizes, largest]


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; the exit status is 1 where xsim itself failed or an engine disagrees, 130 after Ctrl-C."""
    args = parser().parse_args(argv)
    settings = Settings(
        model=args.model, batch=args.batch, steps=args.steps, dtype=args.dtype, gradient=args.gradient, freeze=args.freeze,
        randomize=args.randomize, constraints=args.constraints, integrator=args.integrator, rules=args.rules,
        repeat=args.repeat, peers=args.vs, peer_python=args.peer_python, timeout=args.timeout,
        seed=args.seed, cores=args.cores, peer_threads=args.peer_threads,
    )  # fmt: skip

    def say(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr, flush=True)

    if args.target:
        return of_target(args.target, settings, args.json, say)
    if args.scaling == "devices":
        return by_devices(settings, args.json, args.picture, say)
    runs: list[tuple[Settings, list[Column]]] = []
    complete = False
    try:
        for batch in sweep(args.batch) if args.scaling == "batch" else (args.batch,):
            of_batch = dataclasses.replace(settings, batch=batch)
            columns: list[Column] = []
            runs.append((of_batch, columns))
            compare(of_batch, columns, say)
            print(table(of_batch, columns), end="\n\n", flush=True)
        complete = True
    except KeyboardInterrupt:
        say("interrupted")
        print(table(*runs[-1]), end="\n\ninterrupted: what is above was measured before\n", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(as_json(runs, complete), indent=1) + "\n")
    if args.scaling == "batch":
        curve(runs, args.picture)
    if not complete:
        return 130
    columns = [c for _, of_batch in runs for c in of_batch]
    deviating = [c for c in columns if args.agree is not None and c.deviation is not None and not c.deviation <= args.agree]
    for c in deviating:
        say(f"{c.name}: final q differs from xsim's by {c.deviation:.1e}, more than {args.agree:g}")
    return 1 if deviating or any(c.failed for c in columns if c.engine == "xsim") else 0


def by_devices(settings: Settings, file: str | None, picture: str, say: Callable[[str], None]) -> int:
    """Measure how speed grows with the number of devices; the exit status is 1 where a measurement failed, 130 after Ctrl-C."""
    runs: list[scaling.Run] = []
    try:
        scaling.measure(settings, runs, say)
        complete = True
    except KeyboardInterrupt:
        complete = False
    print(scaling.table(runs) + ("" if complete else "\ninterrupted: what is above was measured before"), flush=True)
    if file:
        Path(file).write_text(json.dumps(scaling.as_json(runs, complete), indent=1) + "\n")
    scaling.picture(runs, picture)
    return 130 if not complete else int(any(run.column.failed for run in runs))


def of_target(name: str, settings: Settings, file: str | None, say: Callable[[str], None]) -> int:
    """Compile the programs for a target; the exit status is 2 if that cannot be done here."""
    from xsim.bench import targets

    try:
        report = targets.programs(name, settings, say)
    except targets.TargetError as error:
        print(error, file=sys.stderr)
        return 2
    print(targets.table(report))
    if file:
        Path(file).write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _interrupt(*_) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # Also where the shell that started it ignores Ctrl-C for background jobs, and for a polite kill.
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())
