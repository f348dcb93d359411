"""The commands ``python -m xsim.train TASK`` and ``python -m xsim.train play RUN``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from pathlib import Path

import yaml

from xsim.compile.persistent_cache import use_compilation_cache
from xsim.dynamics.sharding import use_accelerators, use_cores_with_xla
from xsim.envs import TASKS
from xsim.train import loggers, play
from xsim.train.config import FOLDERS, Config, add_import_option, check, configure, import_modules
from xsim.train.distributed import connect, is_writer
from xsim.train.run import train

__all__ = ["main"]


def main(argv=None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["play"]:
        return play.main(argv[1:])
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        import_modules(options.modules)
        config, out = _config_and_folder(options)
        if options.distributed or options.coordinator or options.processes or options.process is not None:
            connect(options.coordinator, options.processes, options.process)
        else:
            use_accelerators()
        callbacks = _callbacks(options, config, out) if is_writer() else []
        result = train(config, out, resume=options.resume, progress=not options.quiet and is_writer(), callbacks=callbacks)
    except (ValueError, ImportError) as e:
        parser.error(str(e))
    except KeyboardInterrupt:
        print("stopped; --resume continues", file=sys.stderr)
        return 130
    if not is_writer():
        return 0
    print(f"{config.task}: return {result['return']:.5g} +- {result['deviation']:.3g} over {result['episodes']} episodes of the")
    print(f"deterministic policy, {result['length']:.4g} actions long on average, after {result['steps']:,} actions")
    print(f"({result['seconds']:.0f} s); checkpoints, returns.csv, result.json, returns.png in {out}")
    return 0


def _parser() -> argparse.ArgumentParser:
    text = "Train a policy on a task with PPO or SHAC. `play RUN` shows the policy of a run."
    parser = argparse.ArgumentParser(prog="python -m xsim.train", description=text)
    parser.add_argument("task", nargs="?", help=f"one of {', '.join(TASKS)}, or a name that --config's file gives")
    parser.add_argument("--algorithm", choices=list(FOLDERS), help="how to train (default: ppo)")
    add_import_option(parser)
    parser.add_argument("--config", metavar="FILE.yaml", help="settings, over those that come with the task")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="one setting; env.NAME: an argument of make_env")
    parser.add_argument("--steps", type=_count, metavar="N", help="actions of all environments together")
    parser.add_argument("--num-envs", type=_count, metavar="N", help="environments")
    parser.add_argument("--seed", type=int, metavar="N", help="of everything random")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go (default: runs/TASK)")
    parser.add_argument("--resume", action="store_true", help="continue the run in DIR with its settings; --steps may lengthen it")
    parser.add_argument("--tensorboard", action="store_true", help="also write the curve for TensorBoard into DIR (needs tensorboardX)")
    parser.add_argument("--wandb", metavar="PROJECT", help="also report the curve to a project of Weights & Biases (needs wandb)")
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="train with several processes: the address of process 0")
    parser.add_argument("--processes", type=_count, metavar="N", help="number of processes")
    parser.add_argument("--process", type=int, metavar="I", help="which of them this is, from 0")
    parser.add_argument("--distributed", action="store_true", help="train with the processes that the cluster has started")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def _callbacks(options, config: Config, out: Path) -> list:
    """What gets the rows of the curve besides the file."""
    found = [loggers.tensorboard(out)] if options.tensorboard else []
    return [*found, loggers.wandb(options.wandb, out.name, dataclasses.asdict(config))] if options.wandb else found


def _count(text: str) -> int:
    """A whole number, also written as 1e6."""
    number = float(text)
    if not math.isfinite(number) or number != int(number) or number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of 1 or more, found {text}")
    return int(number)


def _config_and_folder(options) -> tuple[Config, Path]:
    changes = _changes(options.set)
    numbers = {"algorithm": options.algorithm, "steps": options.steps, "num_envs": options.num_envs, "seed": options.seed}
    numbers = {name: x for name, x in numbers.items() if x is not None}
    if not options.resume:
        config = configure(options.task, options.config, changes | numbers)
        return config, options.out or Path("runs") / config.task
    if options.out is None and options.task is None:
        raise ValueError("--resume needs the task or --out")
    out = options.out or Path("runs") / options.task
    if options.config or changes or set(numbers) - {"steps"}:
        raise ValueError("--resume continues with the run's settings; only --steps may change")
    saved = out / "config.json"
    if not saved.is_file():
        raise ValueError(f"nothing to resume in {out}")
    return check({**_saved_settings(saved), **numbers}), out


def _saved_settings(file: Path) -> dict:
    """Settings that a run wrote. Raises ValueError for a file that is no such table."""
    try:
        settings = json.loads(file.read_text())
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{file} is damaged: {e}") from e
    if not isinstance(settings, dict) or "task" not in settings:
        raise ValueError(f"{file} is damaged: it holds no table of settings with a task")
    return settings


def _changes(texts: list[str]) -> dict:
    """Settings of ``--set NAME=VALUE``."""
    changes = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set {text}: must be NAME=VALUE")
        changes[name] = yaml.safe_load(value)
    return changes


if __name__ == "__main__":
    use_cores_with_xla()
    use_compilation_cache()
    sys.exit(main())
