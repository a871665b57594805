"""Profile a program from a thread of the recorder, and give way when the program profiles itself.

XLA has one profiler in a process. JAX opens a session of it through a class and serves it through a function,
which are replaced: before the program opens one, that of the recorder is closed for good. This file needs
the standard library only.

Public replacement: `jax.profiler.start_trace` has one session too, and raises an error if the program starts
a second one. Tried on JAX 0.10.2 and 0.12.0.
"""

import functools
import sys
import threading

_LIBRARY = "jax._src.lib"


class Profiler:
    """The profiler of a process.

    Attributes:
      taken: whether the program has profiled itself, or serves its profiler to others.
    """

    def __init__(self):
        self.taken = False
        self._session = None
        self._lock = threading.RLock()

    def install(self):
        """Replace JAX's ways to the profiler.

        Raises:
          LookupError, AttributeError: this version of JAX lacks one of them. Nothing is replaced then.
        """
        self._library = sys.modules[_LIBRARY]._profiler
        self._open, serve = self._library.ProfilerSession, self._library.start_server
        self._options = self._library.ProfileOptions
        self._library.ProfilerSession = self._after_ours(self._open)
        self._library.start_server = self._after_ours(serve)

    def begin(self):
        """Open a session, unless there is one. Return whether there is one of the recorder now."""
        with self._lock:
            if self._session is None and not self.taken:
                options = self._options()
                options.host_tracer_level = 1  # has the operations
                options.python_tracer_level = 0  # Python calls would be most of the file
                self._session = self._open(options)
            return self._session is not None

    def end(self):
        """Close the session of the recorder, and return the profile; None without one."""
        with self._lock:
            session, self._session = self._session, None
            return None if session is None else session.stop()

    def _after_ours(self, original):
        @functools.wraps(original, updated=())
        def opened(*args, **kwargs):
            with self._lock:
                self.taken = True
                self.end()
            return original(*args, **kwargs)

        return opened
