"""Parse HLO text, without JAX, and derive collectives, FLOPs and bytes from it."""

from inspector.hlo.collectives import collectives
from inspector.hlo.module import Module
from inspector.hlo.parser import parse
from inspector.hlo.replica_groups import Room
from inspector.hlo.work import repeated_work, work, work_of_all_devices
