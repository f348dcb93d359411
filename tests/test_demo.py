"""``python -m xsim``: a small run ends well and leaves its files."""

import pytest

from xsim import demo


@pytest.mark.slow
def test_demo_writes_a_picture_and_a_page(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert demo.main(["--model", "pendulum", "--num", "32", "--steps", "45", "--output", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "0 of 32 copies diverged" in out
    assert "steps/s" in out and ": ok" in out
    assert (tmp_path / "out" / "motion.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (tmp_path / "out" / "motion.html").read_text(encoding="utf-8").lower()


def test_demo_refuses_numbers_that_are_not_positive():
    with pytest.raises(SystemExit):
        demo.main(["--num", "0"])
