"""Pages, images and films of models in motion, and a live viewer."""

from xsim.viewer.frames import render
from xsim.viewer.live import LiveViewer, live
from xsim.viewer.pages import View, page, save, show
from xsim.viewer.pictures import picture

__all__ = ["LiveViewer", "View", "live", "page", "picture", "render", "save", "show"]
