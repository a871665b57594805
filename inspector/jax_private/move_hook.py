"""See arrays that move between devices outside of compiled programs, and count how often.

`jax.device_put`, and `with_sharding_constraint` and `reshard` outside of jit, call functions inside JAX. A
jitted function moves arguments that are on other devices through another one. The replacements look at the
arguments and the results after JAX is done. They keep shardings and no arrays. A call with arrays that stay
costs a comparison for each array. This file needs the standard library only.

Public replacement: none. Tried on JAX 0.10.2 and 0.12.0.
"""

import functools
import itertools
import os
import sys

_DISPATCH, _ARRAY = "jax._src.dispatch", "jax._src.array"
_PJIT, _PXLA = "jax._src.pjit", "jax._src.interpreters.pxla"
# Different moves that are counted, so that a program with ever new shapes does not fill its memory.
_MOST = 1000
_OF_JAX, _OF_LIBRARY, _OF_PROGRAM = range(3)


class LockFreeCount:
    """A number that several threads add 1 to. A lock could block a signal handler or a forked child."""

    def __init__(self):
        self.add = itertools.count().__next__
        self.reads = 0

    def value(self):
        """Return the number. Only one thread at a time may call this."""
        value = self.add() - self.reads
        self.reads += 1
        return value


class Moves:
    """The moves of a program.

    Attributes:
      counts: (operation, (file, line) or None, ((source sharding, target sharding, shape, dtype), number of
        arrays)…) -> how often.
      total: the number of all moves, also of those that are not in `counts`.
      after: called after each call of these functions, None for nothing.
    """

    def __init__(self, active, problems):
        """Args: whether the recorder is active, and a context manager that writes errors down."""
        self.counts, self.total, self.after = {}, LockFreeCount(), None
        self._active, self._problems = active, problems
        self._kinds = {}  # file name -> whose file it is
        self._wrappers = set()

    def install(self):
        """Replace JAX's functions.

        Raises:
          LookupError, AttributeError: this version of JAX lacks one of them. Nothing is replaced then.
        """
        self._array = sys.modules[_ARRAY].ArrayImpl
        pjit, handlers = sys.modules[_PJIT], sys.modules[_PXLA].shard_arg_handlers
        dispatch = sys.modules[_DISPATCH]
        put, arguments = dispatch._batched_device_put_impl, handlers[self._array]
        constraint, reshard = pjit.sharding_constraint_p, pjit.reshard_p
        both = constraint.impl, reshard.impl
        of_jax = os.path.join(os.path.dirname(sys.modules["jax"].__file__ or ""), "")
        own = os.path.dirname(__file__)
        self._folders = (
            (of_jax, _OF_JAX),
            (own, _OF_JAX),
            (os.path.join(os.path.dirname(own), "recording"), _OF_JAX),
            (os.path.join(os.path.dirname(os.__file__), ""), _OF_LIBRARY),
        )
        vars(dispatch)["_batched_device_put_impl"] = self._counted(put, "device_put", several=True)
        constraint.impl = self._counted(both[0], "with_sharding_constraint")
        reshard.impl = self._counted(both[1], "reshard")
        handlers[self._array] = self._arguments(arguments)

    def forget(self):
        """Drop all references to shardings, which keep devices alive."""
        self.counts, self.after = {}, None

    def _counted(self, original, operation, several=False):
        """Return a function of JAX that also counts; `several` returns an array for each of its arrays."""

        @functools.wraps(original)
        def counted(*arrays, **parameters):
            try:
                result = original(*arrays, **parameters)
            except BaseException as error:
                _without_this_frame(error)
                raise
            if self._active():
                with self._problems("the moves of arrays cannot be counted"):
                    self._note(operation, arrays, result if several else (result,))
                    if self.after is not None:
                        self.after()
            return result

        self._wrappers.add(_code_of(counted))
        return counted

    def _arguments(self, original):
        """Return JAX's function that moves arguments, extended by a look at those on other devices."""

        @functools.wraps(original)
        def arguments(arrays, shardings, *others, **parameters):
            try:
                results = original(arrays, shardings, *others, **parameters)
            except BaseException as error:
                _without_this_frame(error)
                raise
            if self._active():
                with self._problems("the moves of arguments cannot be counted"):
                    moved: dict[tuple, int] = {}
                    for array, after in zip(arrays, shardings, strict=True):
                        before = array.sharding
                        # Their specs are equal: JAX refuses other arguments.
                        if before is not after and array._committed and before.device_set != after.device_set:
                            key = (before, after, tuple(array.shape), array.dtype)
                            moved[key] = moved.get(key, 0) + 1
                    if moved:
                        self._add("jit", moved, sys._getframe(1))
            return results

        self._wrappers.add(_code_of(arguments))
        return arguments

    def _note(self, operation, arrays, results):
        kind = self._array
        moved: dict[tuple, int] = {}
        for array, result in zip(arrays, results, strict=True):
            if (
                array is result
                or type(array) is not kind
                or type(result) is not kind
                or not array._committed  # JAX places it for the first time
            ):
                continue
            before, after = array.sharding, result.sharding
            if before is not after and before != after:
                key = (before, after, tuple(array.shape), array.dtype)
                moved[key] = moved.get(key, 0) + 1
        if moved:
            self._add(operation, moved, sys._getframe(2))

    def _add(self, operation, moved, frame):
        inside, place = self.place(frame)
        if inside:  # of another of these functions, which counts it
            return
        key = (operation, place, tuple(moved.items()))
        count = self.counts.get(key)
        if count is None and len(self.counts) < _MOST:
            count = self.counts.setdefault(key, LockFreeCount())
        if count is not None:
            count.add()
        self.total.add()

    def place(self, frame):
        """Return whether another wrapper is on the stack inside of JAX, and the file and line in the program.

        If a library moves the arrays and no file of the program is on the stack, the place is in the library.
        """
        library = None
        while frame is not None:
            code = frame.f_code
            if code in self._wrappers:
                return True, None
            kind = self._kind(code.co_filename)
            if kind == _OF_PROGRAM:
                return False, (code.co_filename, frame.f_lineno)
            if kind == _OF_LIBRARY and library is None:
                library = (code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return False, library

    def _kind(self, name):
        kind = self._kinds.get(name)
        if kind is None:
            kind = next((kind for folder, kind in self._folders if name.startswith(folder)), None)
            if kind is None:
                packages = f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}"
                inside = any(folder in name for folder in packages) or name.startswith("<frozen")
                kind = _OF_LIBRARY if inside else _OF_PROGRAM
            self._kinds[name] = kind
        return kind


def _code_of(function):
    """Return the code of a function. The types of `functools.wraps` do not say that it has any."""
    return function.__code__


def _without_this_frame(error):
    """Leave the function that calls this out of the traceback of an error that it raises again."""
    trace = error.__traceback__
    error.__traceback__ = None if trace is None else trace.tb_next
