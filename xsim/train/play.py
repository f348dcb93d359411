"""``python -m xsim.train play RUN``: a trained policy in its environment, as a page that plays the motion."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

import jax
import jax.numpy as jnp

from xsim.envs import Env
from xsim.train.config import add_import_option, import_modules
from xsim.train.policy import TrainedPolicy, load, saved_config
from xsim.train.run import environment
from xsim.viewer.frames import save_motion

__all__ = ["episodes", "main"]


def episodes(env: Env, policy: TrainedPolicy, key, steps: int):
    """Play from the start: (model, q (steps + 1, num_envs, nq), returns (num_envs,)). An environment whose episode has ended stands still.

    env: with ``auto_reset=False``. model: with the leaves that differ between the environments. key: of the starts."""

    def one(carry, _):
        state, total = carry
        after = env.step(state, policy(state.obs))
        running = ~state.done
        after = jax.tree.map(lambda new, old: jnp.where(running.reshape(-1, *[1] * (new.ndim - 1)), new, old), after, state)
        return (after, total + jnp.where(running, after.reward, 0.0)), after.state.q

    @jax.jit
    def play(key):
        start = env.reset(key)
        (_, total), q = jax.lax.scan(one, (start, jnp.zeros(env.num_envs, env.dtype)), length=steps)
        return jnp.concatenate([start.state.q[None], q]), total, start.leaves

    q, total, leaves = play(key)
    return env.model.replace(leaves), q, total


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns the exit status: 0, or 1 where there is no policy or the page cannot be written."""
    options = _parser().parse_args(arguments)
    try:
        import_modules(options.modules)
        config, policy = saved_config(options.run), load(options.run)
        env = environment(config, options.envs, auto_reset=False)
        steps = options.steps or env.task.max_steps or config.evaluate_steps
        print(f"{config.task}: {policy}; {steps} actions in {options.envs} environments", flush=True)
        model, q, total = episodes(env, policy, jax.random.key(options.seed), steps)
        dt = float(env.model.option.dt) * env.task.action_repeat
        path = save_motion(model, q, options.output or options.run / "play.html", dt=dt, envs=options.envs, title=config.task)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"return {float(total.mean()):.5g} +- {float(total.std()):.3g}; wrote {path}")
    if options.open and not webbrowser.open(path.resolve().as_uri()):
        print("no browser could be opened: open the file yourself", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m xsim.train play", description="Play the policy of a run and write a page.")
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of the run")
    add_import_option(parser)
    parser.add_argument("--envs", type=int, default=4, metavar="K", help="environments side by side (default: %(default)s)")
    parser.add_argument("--steps", type=int, metavar="N", help="actions (default: the length of an episode)")
    parser.add_argument("--seed", type=int, default=0, help="of the starts (default: %(default)s)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="a page, or a film .gif, .mp4 (default: RUN/play.html)")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    return parser
