import gc
import os
from collections import Counter, defaultdict

import jax
import jaxlib
import pytest
from memory import PROC, drop_programs, resident, trim
from queries import Queries, install
from slow_cases import NIGHTLY_CASES, SLOW_CASES

import xsim.compile.fingerprint


@pytest.fixture
def x64():
    """Double precision for one test, wherever accuracy is the point."""
    with jax.enable_x64(True):
        yield


def pytest_report_header():
    return f"jax {jax.__version__}, jaxlib {jaxlib.__version__}"


# ---- time ----------------------------------------------------------------------------------------------------------------------

gc.set_threshold(50_000, 20, 100)
"""A trace of a step holds a million objects, and collecting them again and again is a quarter of the time of the tests."""

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
"""A test runs what it compiles once or twice: of the time of XLA, two fifths go to the optimization of machine code. Also for the processes
that tests start."""

jax.config.update("jax_traceback_in_locations_limit", 0)
"""What each operation's place in the source is to a compiler: a tenth of the time to lower a program."""

install()

source_fingerprint = xsim.compile.fingerprint.source_fingerprint
xsim.compile.fingerprint.source_fingerprint = lambda: None
"""Compiled functions are not kept on disk: tests change the package while they run (but for `test_function_cache.py`)."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """The marks ``slow`` and ``nightly`` of cases of parametrized tests."""
    for item in items:
        name = getattr(item, "originalname", item.name)
        test, case = f"{item.path.name}::{name}", item.name[len(name) + 1 : -1]
        for mark, cases in (("slow", SLOW_CASES), ("nightly", NIGHTLY_CASES)):
            if case in cases.get(test, ()):
                item.add_marker(mark)


@pytest.fixture(autouse=True)
def _queries(request):
    """By numpy, but in modules with the mark ``xla``."""
    Queries.enabled = request.node.get_closest_marker("xla") is None
    yield
    Queries.enabled = False


# ---- memory ------------------------------------------------------------------------------------------------------------------

MOST_BYTES = 1.2e9
MOST_MAPS = 15_000
"""Each compiled program maps a few dozen pieces of memory, and Linux kills a process that holds 65,530 of them (vm.max_map_count)."""


class Limit:
    """bytes: of memory after a test; more than at first where what lives takes more, so that programs are not dropped after every test."""

    bytes = MOST_BYTES


@pytest.fixture(autouse=True, scope="module")
def _programs_of_a_file():
    """Files share few programs."""
    yield
    Queries.programs.clear()
    drop_programs()


@pytest.fixture(autouse=True)
def _memory():
    """After a test: no more memory than the limit, of compiled programs none where there are many."""
    yield
    if not PROC.exists():
        return
    if resident() > Limit.bytes:
        trim()
    if resident() > Limit.bytes or len((PROC / "maps").read_bytes().splitlines()) > MOST_MAPS:
        drop_programs()
        Limit.bytes = max(MOST_BYTES, 1.25 * resident())


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput") and PROC.exists():
        status = dict(line.split(":", 1) for line in (PROC / "status").read_text().splitlines())
        session.config.workeroutput["peak"] = int(status["VmHWM"].split()[0]) if "VmHWM" in status else None


PEAKS: list[int] = []
"""Largest memory of the workers that have ended, kB."""


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    PEAKS.extend(x for x in [getattr(node, "workeroutput", {}).get("peak")] if x)


def pytest_terminal_summary(terminalreporter):
    reports = [r for of in terminalreporter.stats.values() for r in of if getattr(r, "when", "") == "call"]
    _print_counts(terminalreporter, [x for r in reports for name, x in r.user_properties if name == "counts"])
    if PEAKS:
        terminalreporter.write_line("memory of the workers at most: " + ", ".join(f"{peak / 1e6:.1f} GB" for peak in PEAKS))


def _print_counts(terminalreporter, counted) -> None:
    """A table of [row, {column: count}], which tests record as the property "counts"; those of a row are added."""
    rows: dict[str, Counter] = defaultdict(Counter)
    for row, counts in counted:
        rows[row].update(counts)
    columns = list(dict.fromkeys(name for counts in rows.values() for name in counts))
    if rows:
        first = max(map(len, rows))
        terminalreporter.write_line("  ".join(["".ljust(first), *columns]))
    for row, counts in rows.items():
        terminalreporter.write_line("  ".join([row.ljust(first), *(str(counts[name]).rjust(len(name)) for name in columns)]))
