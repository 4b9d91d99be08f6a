#!/bin/sh
# Makes the virtual environment, installs perfci with what its tests need, and nsys where that is possible.
# Idempotent; needs no root. Called by the Makefile.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
TORCH=${TORCH:-torch==2.13.0}

if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "perfci needs Python 3.11 or newer; seen: $("$PYTHON" --version 2>&1 || echo "no $PYTHON")." >&2
    echo "Do: make PYTHON=/path/to/python3.11 …" >&2
    exit 2
fi
if ! [ -x "$VENV/bin/python" ]; then
    "$PYTHON" -m venv "$VENV" || {
        echo "Python could not make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv" >&2
        exit 2
    }
fi
# torch first: with one already installed (any build), the package's own range installs nothing more.
"$VENV/bin/python" -c 'import torch' 2>/dev/null || "$VENV/bin/pip" install --quiet "$TORCH"
"$VENV/bin/pip" install --quiet --editable '.[dev]'
if ! sh scripts/install-nsys.sh; then
    echo "Going on without nsys: tests of the nsys path are skipped, and measuring uses the torch collector." >&2
fi
