"""What a model costs as Chrono YAML and as x_xy: the same double pendulum from both, engines in turns, medians.

``python benchmarks/double_pendulum.py``
"""

import statistics
import time

import jax

import xsim

CHRONO = """
chrono-version: 10.0
model:
  name: double_pendulum
  bodies:
    - {name: ground, fixed: true, location: [0, 0, 0]}
    - {name: upper, location: [0, 0, -0.5], mass: 1.0, inertia: {moments: [0.085, 0.085, 0.0033333333]}}
    - {name: lower, location: [0, 0, -1.5], mass: 1.0, inertia: {moments: [0.085, 0.085, 0.0033333333]}}
  joints:
    - {name: shoulder, type: revolute, body1: ground, body2: upper, location: [0, 0, 0], axis: [0, 1, 0]}
    - {name: elbow, type: revolute, body1: upper, body2: lower, location: [0, 0, -1.0], axis: [0, 1, 0]}
"""
XXY = """
<x_xy><options gravity="0 0 9.8" dt="0.001"/><worldbody>
  <body name="upper" joint="ry"><geom type="box" mass="1" dim="0.1414214 0.1414214 1.0" pos="0 0 -0.5"/>
    <body name="lower" joint="ry" pos="0 0 -1"><geom type="box" mass="1" dim="0.1414214 0.1414214 1.0" pos="0 0 -0.5"/></body>
  </body>
</worldbody></x_xy>
"""
BATCH, STEPS, RUNS = 1024, 500, 15


def main():
    runs = {}
    for format, text in (("chrono", CHRONO), ("x_xy", XXY)):
        model = xsim.loads(text, format)
        state = xsim.init(model, 0.2 * jax.random.normal(jax.random.key(0), (BATCH, 2)))
        run = jax.jit(lambda model, state: xsim.rollout(model, state, steps=STEPS)[0].q)
        print(f"{format}: first environment ends at {run(model, state)[0]}")
        runs[format] = (run, model, state)
    seconds = {format: [] for format in runs}
    for _ in range(RUNS):
        for format, (run, *args) in runs.items():
            begin = time.perf_counter()
            run(*args).block_until_ready()
            seconds[format].append(time.perf_counter() - begin)
    chrono, xxy = (statistics.median(x) for x in seconds.values())
    print(f"steps/s: chrono {BATCH * STEPS / chrono:.3g}, x_xy {BATCH * STEPS / xxy:.3g}; chrono takes {chrono / xxy:.2f} times as long")


if __name__ == "__main__":
    main()
