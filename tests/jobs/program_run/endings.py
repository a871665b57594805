"""Short programs that end in every way, for `run`. They are written to files and never imported.

Each begins with `START`. `busy()` starts a computation on all devices that takes longer than the rest of the
program.
"""

START = """
import atexit, os, signal, sys, threading, time
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
rows = NamedSharding(mesh, P("d", None))
x = jax.device_put(jnp.ones((1024, 1024)), rows)


@jax.jit
def steps(x):
    for _ in range(8):
        x = jax.lax.with_sharding_constraint(x @ x.T, rows) / 1024
    return x


def busy():
    return steps(x)


double = jax.jit(lambda x: x * 2)
"""

ENDINGS = {
    "busy": "busy()",
    "busy_with_results": "y = busy()\natexit.register(lambda: print(len(jax.live_arrays()) > 1))",
    "error_in_traced_code": "jax.jit(lambda x: x.no_such_attribute)(x)",
    "error_with_all_frames": (
        "jax.config.update('jax_traceback_filtering', 'off')\njax.jit(jax.grad(lambda x: 1 / 0))(x)"
    ),
    "interrupt_in_traced_code": (
        "def interrupted(x):\n    raise KeyboardInterrupt('while traced')\nbusy()\njax.jit(interrupted)(x)"
    ),
    "exit_with_a_reason": "busy()\nsys.exit('a reason')",
    "exit_in_a_thread": (
        "thread = threading.Thread(target=lambda: (double(x), sys.exit(4)))\n"
        "thread.start(); thread.join(); busy()"
    ),
    "exit_at_once": "y = busy()\nprint('lost, as it is not flushed')\nos._exit(7)",
    "thread_outlives_the_main_thread": (
        "def later():\n    time.sleep(0.7)\n    print(float(double(x)[0, 0]))\n"
        "threading.Thread(target=later).start()"
    ),
    "daemon_thread_and_error": (
        "threading.excepthook = lambda of: print('hook', of.exc_type)\n"
        "def fails():\n    raise OSError\n"
        "thread = threading.Thread(target=fails); thread.start(); thread.join()\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "sys.excepthook = lambda kind, error, trace: print('mine', kind)\n"
        "busy()\nraise ValueError"
    ),
    "forked_child_exits_too": (
        "double(x)\nsys.stdout.flush()\nchild = os.fork()\n"
        "if child == 0:\n    atexit._clear()\n    print('child')\n    sys.exit(3)\n"
        "print(os.waitpid(child, 0)[1]); busy()"
    ),
    # JAX destroys its client when the child ends, and the child crashes.
    "forked_child_ends_as_any_program": (
        "double(x)\nsys.stdout.flush()\nchild = os.fork()\n"
        "if child == 0:\n    sys.exit(3)\n"
        "print(os.waitpid(child, 0)[1])"
    ),
    "forked_child_fails": (
        "busy()\nchild = os.fork()\n"
        "if child == 0:\n    raise ValueError('in the child')\n"
        "print(os.waitpid(child, 0)[1])"
    ),
    "forked_child_aborts": (
        "double(x)\nchild = os.fork()\nif child == 0:\n    os.abort()\nprint(os.waitpid(child, 0)[1])"
    ),
    "forked_child_has_a_fault": (
        "import ctypes\ndouble(x)\nchild = os.fork()\n"
        "if child == 0:\n    ctypes.string_at(0)\n"
        "print(os.waitpid(child, 0)[1])"
    ),
    "children_of_multiprocessing_crash": (
        "import multiprocessing\n"
        "double(x)\n"
        "if __name__ == '__main__':\n"
        "    for way in 'fork', 'spawn':\n"
        "        child = multiprocessing.get_context(way).Process(target=os.abort)\n"
        "        child.start(); child.join(); print(child.exitcode)"
    ),
    "children_of_multiprocessing": (
        "import multiprocessing\n"
        "double(x)\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('fork').Process(target=print, args=('child',))\n"
        "    child.start(); child.join(); print(child.exitcode)"
    ),
    "error_at_exit": (
        "def at_exit():\n    double(jnp.ones(3))\n    raise RuntimeError('at exit')\n"
        "atexit.register(at_exit)\nbusy()"
    ),
    "terminated": "busy()\nprint('seen', flush=True)\nos.kill(os.getpid(), signal.SIGTERM)",
    "hung_up_with_handler": (
        "signal.signal(signal.SIGHUP, lambda *_: sys.exit(5))\nbusy()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\ntime.sleep(60)"
    ),
    "interrupted": "busy()\nsignal.raise_signal(signal.SIGINT)",
    "aborted": "busy()\nprint('seen', flush=True)\nos.abort()",
    "becomes_another_program": (
        "busy()\nos.execv(sys.executable, [sys.executable, '-c', "
        "'import os, sys; print(sorted(os.environ)); sys.exit(6)'])"
    ),
    "recursion_without_end": "def again(n):\n    return again(n + 1)\ndouble(x)\nagain(0)",
    "output_is_closed": "print('lost')\nos.close(1)\nbusy()",
}
