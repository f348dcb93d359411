"""The model: its arrays (`model`), its structure (`topology`), and how both are built from a ModelSpec (`build`)."""
