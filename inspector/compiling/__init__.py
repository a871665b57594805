"""Compile the programs of a layout for a target, or run them on devices of this machine."""
