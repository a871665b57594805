"""Machines on which a layout is modelled: chips, slices, links, and the times and memory of a program."""
