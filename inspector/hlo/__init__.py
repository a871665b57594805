"""Compiled program text to records: no JAX, text in, modules and their collectives out."""

from inspector.hlo.collectives import collectives
from inspector.hlo.module import Module
from inspector.hlo.parser import parse
from inspector.hlo.traffic import Traffic, traffic

__all__ = ["Module", "Traffic", "collectives", "parse", "traffic"]
