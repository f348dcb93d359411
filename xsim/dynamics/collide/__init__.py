"""Where two geoms are nearest, or deepest in each other: one file per family of shapes, see `shapes`."""
