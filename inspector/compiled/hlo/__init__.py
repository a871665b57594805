"""Parse HLO text, without JAX, and derive collectives, FLOPs and bytes from it."""

from inspector.compiled.hlo.collectives import collectives
from inspector.compiled.hlo.module import Module
from inspector.compiled.hlo.parser import parse
from inspector.compiled.hlo.replica_groups import Room
from inspector.compiled.hlo.work import repeated_work, work, work_of_all_devices
