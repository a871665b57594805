"""Worker processes that run JAX for a server that never imports it."""

from inspector.service.engine.environment import Environment
from inspector.service.engine.job import Job, Status
from inspector.service.engine.lane import Lane
from inspector.service.engine.pool import Pool
from inspector.service.engine.requester import LOCAL, Requester, Subject
