"""Pages and pictures of models in motion."""

from xsim.viewer.pages import View, page, save, show
from xsim.viewer.pictures import picture

__all__ = ["View", "page", "picture", "save", "show"]
