"""Validated settings and the presets that ship with the project."""
