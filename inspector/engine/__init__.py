"""Worker processes that run JAX for a server that never imports it."""

from inspector.engine.environment import Environment
from inspector.engine.job import Job, Status
from inspector.engine.pool import Pool

__all__ = ["Environment", "Job", "Pool", "Status"]
