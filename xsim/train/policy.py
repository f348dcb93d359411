"""The policy of a run: loaded, called, exported, played."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp

from xsim.train.checkpoints import restore_policy
from xsim.train.config import Config, check
from xsim.train.ppo import ActorCritic, Inputs, Statistics, network_of

__all__ = ["TrainedPolicy", "load", "saved_config"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainedPolicy:
    """The deterministic policy of a run: ``policy(obs)`` is the action (..., actions) at the observations (..., n).

    Of observations with names it reads the entry ``observation``. A pytree: it may be an argument of jit, vmap and scan. params: weights of
    the network. statistics: of the observations, None where they are not normalized. network, observation: static.
    """

    params: Any
    statistics: Statistics | None
    network: ActorCritic = field(metadata={"static": True})
    observation: str = field(default="state", metadata={"static": True})

    def __call__(self, obs):
        obs = obs[self.observation] if isinstance(obs, Mapping) else obs
        obs = obs if self.statistics is None else self.statistics.normalized(obs)
        return self.network.apply(self.params, obs, method="actor").mean

    @property
    def observations(self) -> int:
        """Width of an observation."""
        return self.params["params"]["policy_0"]["kernel"].shape[0]

    def __repr__(self) -> str:
        net = self.network
        return f"TrainedPolicy(observations {self.observations}, actions {net.actions}, hidden {net.hidden}, {net.activation})"

    def export(self, platforms: tuple[str, ...] = ("cpu", "cuda", "tpu")) -> jax.export.Exported:
        """The policy with its weights as a StableHLO program, for any number of observations (b, n).

        ``.call(obs)`` runs it. ``.mlir_module_serialized`` are its bytes for other runtimes, ``.serialize()`` those for
        `jax.export.deserialize` (needs the package flatbuffers)."""
        (batch,) = jax.export.symbolic_shape("b")
        shape = jax.ShapeDtypeStruct((batch, self.observations), self.network.dtype)
        return jax.export.export(jax.jit(self.__call__), platforms=platforms)(shape)


class _Learned(NamedTuple):
    """What a policy needs of a checkpoint, under the names of `xsim.train.ppo.Learner`."""

    params: Any
    statistics: Statistics


def saved_config(run) -> Config:
    """The settings of a run. run: its folder. Raises ValueError where the folder holds none."""
    file = Path(run) / "config.json"
    if not file.is_file():
        raise ValueError(f"no run in {run}: {file.name} is missing")
    return check(json.loads(file.read_text()))


def load(run) -> TrainedPolicy:
    """The policy of the newest checkpoint of a run. run: the folder that `train` wrote. Raises ValueError where there is none."""
    config = saved_config(run)

    def like(observations: int, of_value: int, actions: int, dtype) -> _Learned:
        def empty() -> _Learned:
            inputs = Inputs(*(jnp.zeros((1, n), dtype) for n in (observations, of_value)))
            return _Learned(network_of(config, actions, dtype).init(jax.random.key(0), inputs), Statistics.empty(observations, dtype))

        return jax.eval_shape(empty)

    learned = restore_policy(Path(run), like)
    statistics = learned.statistics
    network = network_of(config, len(learned.params["params"]["log_deviation"]), statistics.mean.dtype)
    return TrainedPolicy(learned.params, statistics if config.normalize else None, network, config.policy_observation)
