"""Worker processes that run JAX for a server that never imports it."""

from inspector.jobs.engine.environment import Environment
from inspector.jobs.engine.job import LOCAL, Job, JobSubject, Lane, Requester, Status
from inspector.jobs.engine.pool import Pool
