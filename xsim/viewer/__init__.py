"""Pages, images and films of models in motion."""

from xsim.viewer.frames import render
from xsim.viewer.pages import View, page, save, show
from xsim.viewer.pictures import picture

__all__ = ["View", "page", "picture", "render", "save", "show"]
