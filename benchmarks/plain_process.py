"""A process that keeps a plain script warm, with the emulated devices of a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(__file__).with_name("plain_script.py")


class PlainProcess:
    """A plain script that answers requests; `variables` are set in its environment."""

    def __init__(
        self, devices: int, script: Path = SCRIPT, variables: Mapping[str, str] | None = None
    ) -> None:
        environment = {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(devices),
            "PYTHONPATH": str(ROOT),  # for the models
            **(variables or {}),
        }
        self._popen = subprocess.Popen(
            [sys.executable, script],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str, **request: Any) -> dict[str, Any]:
        """Return the answer of the script.

        Raises:
          RuntimeError: the script ended; standard error has the reason.
        """
        assert self._popen.stdin is not None and self._popen.stdout is not None
        try:
            print(json.dumps({"ask": what, **request}), file=self._popen.stdin, flush=True)
            answer = self._popen.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"the plain script ended with status {self._popen.wait()}")
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._popen.kill()
        self._popen.communicate()
