"""A small server for the tests: it starts workers, prints their ids, and exits on request."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from inspector.jobs.engine import Environment, Pool


def main() -> None:
    kind, ending = sys.argv[1:]
    # `nohup` lets all processes below it ignore SIGHUP.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    pool = Pool(workers=2, jobs="tests.jobs.engine.jobs")
    idle = pool.submit("echo", {}, Environment(1)).wait()
    pids = {idle.result["pid"]}
    if kind != "idle":
        job = pool.submit(kind, {}, Environment(2))
        while not job.status().progress:
            time.sleep(0.01)
        progress = job.status().progress
        pids |= {progress["pid"], progress.get("child", progress["pid"])}
    if ending == "fork":
        # A fork that ends must not take the workers of its parent along.
        child = os.fork()
        if child == 0:
            sys.exit()
        os.waitpid(child, 0)
        again = pool.submit("echo", {}, Environment(1)).wait()
        assert again.result["pid"] in pids
    print(json.dumps(sorted(pids)), flush=True)
    sys.stdin.readline()
    if ending == "raise":
        raise RuntimeError("the end")
    if ending == "os._exit":
        os._exit(0)
    if ending == "close":
        pool.close()


if __name__ == "__main__":
    main()
