"""Machines to compile for or to model on: chips, slices, links, and where a mesh lies on them."""
