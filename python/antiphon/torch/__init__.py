"""antiphon for PyTorch."""
