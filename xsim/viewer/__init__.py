"""Pages and pictures of models in motion."""

from xsim.viewer.viewer import View, page, picture, save, show

__all__ = ["View", "page", "picture", "save", "show"]
