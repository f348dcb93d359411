"""What is said about a compilation on a terminal."""

from __future__ import annotations

import io
import sys
import time

import jax
import pytest

import xsim
from xsim.compile import announcement
from xsim.compile.announcement import Announcement, announce, announced

pytestmark = pytest.mark.xla


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch) -> Terminal:
    """A terminal in the place of stderr, from inside of the test: pytest sets stderr before it."""
    monkeypatch.setattr(announcement, "PATIENCE", 0.05)
    monkeypatch.setattr(announcement, "PERIOD", 0.05)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_the_line_counts_and_ends(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with announced("step of arm"):
        time.sleep(0.3)
    text = terminal.getvalue()
    assert "xsim: compiling step of arm ... 0 s" in text and text.endswith("compiled step of arm in 0.3 s\n")
    assert Announcement.current is None


def test_what_is_fast_says_nothing(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with announced("step of arm"):
        pass
    assert terminal.getvalue() == ""


def test_the_outermost_speaks(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with announced("rollout of arm"):
        with announced("step"), announced():
            announce("forward of arm")
        assert Announcement.current is not None
        time.sleep(0.2)
    assert "rollout" in terminal.getvalue() and "step" not in terminal.getvalue() and "forward" not in terminal.getvalue()


def test_an_error_ends_it(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with pytest.raises(ValueError), announced():
        announce("step of arm")
        time.sleep(0.2)
        raise ValueError
    assert terminal.getvalue().endswith("\n") and Announcement.current is None


def test_no_line_where_no_terminal_is(capsys, monkeypatch):
    monkeypatch.setattr(announcement, "PATIENCE", 0.0)
    with announced("step of arm"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_a_query_is_announced_once(monkeypatch):
    """While it is traced and compiled; not where its program is known."""
    terminal = terminal_of(monkeypatch)
    jax.clear_caches()
    model = xsim.load("chain")
    q = xsim.init(model).q
    xsim.kinematics(model, q)
    assert "compiled kinematics of chain in" in terminal.getvalue()
    said = terminal.getvalue()
    xsim.kinematics(model, q)
    assert terminal.getvalue() == said and Announcement.current is None
