"""Figures saved as PNG or SVG files."""
