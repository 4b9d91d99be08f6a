"""Runs scripts in forks of a process that has torch loaded: many launches for the price of one import.

One JSON object per line: {"argv": […], "cwd": …, "env": {…}, "log": file}; answered by the exit code.
"""

import json
import os
import runpy
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo  # loaded by the first optimizer otherwise

LONGEST_S = 120


def become(job):
    """In the child: be the script."""
    signal.alarm(LONGEST_S)
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(job["cwd"])
    os.environ.update(job["env"])
    sys.argv = job["argv"]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


def main():
    answers = os.fdopen(os.dup(1), "w")
    print(torch.__version__, file=answers, flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            become(json.loads(line))
            return
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, file=answers, flush=True)


if __name__ == "__main__":
    main()
