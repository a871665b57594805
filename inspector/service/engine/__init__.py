"""Worker processes that run JAX for a server that never imports it."""

from inspector.service.engine.environment import Environment
from inspector.service.engine.job import LOCAL, Job, JobSubject, Lane, Requester, Status
from inspector.service.engine.pool import Pool
