"""Sections as HTML, and the report as one self-contained file."""
