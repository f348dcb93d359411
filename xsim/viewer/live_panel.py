"""The controls of the live viewer: buttons, sliders of controls, and any number of the model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xsim.model.model import Frozen, Model
from xsim.model.selectors import element_name
from xsim.viewer.live_scene import LAYERS, LiveScene
from xsim.viewer.simulation import Simulation

__all__ = ["Panel", "leaf_entries", "slider_range"]

START = "start"
MAX_ENTRIES = 1000
"""Longest list of the entries of a leaf. Programs reach the others by `LiveViewer.replace`."""
STEPS = 200
"""Number of places of a slider."""


def leaves(model: Model) -> list[str]:
    """Paths of the leaves that have numbers and may change."""
    return [path for path in model.paths() if not isinstance(leaf := model.get(path), Frozen) and leaf.size]


def leaf_entries(model: Model, path: str) -> list[str]:
    """Selectors of the first `MAX_ENTRIES` entries of a leaf, in order: ``dof.damping[knee]``."""
    return [element_name(model, path, i) for i in range(min(model.get(path).size, MAX_ENTRIES))]


def slider_range(value: float, sign: str) -> tuple[float, float]:
    """The range of a slider about a number. sign: lower bound of the leaf, see `xsim.model.model.Leaf`."""
    size = 2.0 * abs(value) or 1.0
    low = {"> 0": size / STEPS, ">= 0": 0.0}.get(sign, -size)
    return low, size


class Panel:
    """The panel of a server. changed: function that is called after a number of the model has changed, with the path of its leaf."""

    def __init__(self, server, simulation: Simulation, scene: LiveScene, changed: Callable[[str], None]):
        self.gui, self.simulation, self.scene, self.changed = server.gui, simulation, scene, changed
        self.status = self.gui.add_markdown("")
        self._add_clock()
        self._add_layers()
        self._add_controls()
        self._add_leaves()
        self.update("")

    def update(self, text: str) -> None:
        """Show a text, and whether time stands still."""
        if self.status.content != text:
            self.status.content = text
        label = "Run" if self.simulation.paused else "Pause"
        if self.pause.label != label:
            self.pause.label = label

    def show_ctrl(self) -> None:
        """Show the present controls, as after a program has set them."""
        for slider, value in zip(self.sliders, self.simulation.ctrl, strict=False):
            slider.value = float(value)

    def _add_clock(self) -> None:
        simulation, keys = self.simulation, self.simulation.model.key_names
        self.pause, step, reset = (self.gui.add_button(name) for name in ("Pause", "Step", "Reset"))
        self.pause.on_click(lambda _: simulation.pause(not simulation.paused))
        step.on_click(lambda _: simulation.step())
        speed = self.gui.add_slider("speed", 0.05, 4.0, 0.05, 1.0, hint="simulated seconds per second")
        speed.on_update(lambda _: setattr(simulation, "speed", speed.value))
        if not keys:
            reset.on_click(lambda _: simulation.reset())
            return
        names = (START, *(f"{i}: {name}" for i, name in enumerate(keys)))
        key = self.gui.add_dropdown("keyframe", names, initial_value=START, hint="where Reset goes")

        def go(_) -> None:
            simulation.reset(None if key.value == START else names.index(key.value) - 1)

        reset.on_click(go)
        key.on_update(go)

    def _add_layers(self) -> None:
        self.gui.add_markdown("Drag a body with **Ctrl** and the left button; turn it with **Ctrl** and the right one.")
        for name in LAYERS:
            self._add_layer(name)
        if self.scene.missing:
            self.gui.add_markdown("not drawn: " + "; ".join(self.scene.missing))

    def _add_layer(self, name: str) -> None:
        box = self.gui.add_checkbox(name, name in self.scene.shown)
        box.on_update(lambda _: self.scene.shown.add(name) if box.value else self.scene.shown.discard(name))

    def _add_controls(self) -> None:
        self.sliders = []
        if not self.simulation.controls:
            return
        with self.gui.add_folder("controls"):
            for i, control in enumerate(self.simulation.controls):
                self._add_control(i, control)

    def _add_control(self, i: int, control) -> None:
        step = (control.high - control.low) / STEPS
        label = f"{control.name} [{control.low:.3g}, {control.high:.3g}]"
        slider = self.gui.add_slider(label, control.low, control.high, step, control.start)

        def change(event) -> None:
            if event.client is not None:
                self.simulation.set_control(i, slider.value)

        slider.on_update(change)
        self.sliders.append(slider)

    def _add_leaves(self) -> None:
        model = self.simulation.model
        self.inputs: tuple = ()
        with self.gui.add_folder("model", expand_by_default=False) as self.folder:
            paths = leaves(model)
            self.leaf = self.gui.add_dropdown("leaf", paths, initial_value=paths[0])
            self.entry = self.gui.add_dropdown("entry", leaf_entries(model, paths[0]))
            self.about = self.gui.add_markdown("")
        self.leaf.on_update(lambda _: self._choose_leaf())
        self.entry.on_update(lambda _: self._choose_entry())
        self._choose_entry()

    def _choose_leaf(self) -> None:
        entries = leaf_entries(self.simulation.model, self.leaf.value)
        self.entry.options = entries
        self.entry.value = entries[0]
        self._choose_entry()

    def _choose_entry(self) -> None:
        """A slider and a field for the chosen entry, which follow each other."""
        path, model = self.leaf.value, self.simulation.model
        if self.entry.value not in self.entry.options:
            return
        index, declared = self.entry.options.index(self.entry.value), model.declaration(path)
        value = self.simulation.entry(path, index)
        low, high = slider_range(value, declared.sign) if np.isfinite(value) else (-1.0, 1.0)
        for node in self.inputs:
            node.remove()
        self.about.content = f"{declared.doc}, {declared.unit}"
        with self.folder:
            slider = self.gui.add_slider("value", low, high, (high - low) / STEPS, min(max(value, low), high))
            number = self.gui.add_number("number", value, min=0.0 if declared.sign else None)
        self.inputs = slider, number

        def change(event) -> None:
            if event.client is not None:
                other = number if event.target is slider else slider
                self.simulation.replace_entry(path, index, event.target.value)
                other.value = event.target.value
                self.changed(path)

        slider.on_update(change)
        number.on_update(change)
