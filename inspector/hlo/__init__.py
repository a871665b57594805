"""Compiled program text to records: no JAX, text in, modules with their collectives and their work out."""

from inspector.hlo.collectives import collectives
from inspector.hlo.module import Module
from inspector.hlo.parser import parse
from inspector.hlo.traffic import Traffic, traffic
from inspector.hlo.work import work

__all__ = ["Module", "Traffic", "collectives", "parse", "traffic", "work"]
