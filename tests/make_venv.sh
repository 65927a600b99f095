#!/bin/sh
# Make .venv with a Python of 3.11 or newer; keep one that works.
set -eu

new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

if .venv/bin/python -c "$new_enough" 2>/dev/null; then
    .venv/bin/python -m pip --version >/dev/null 2>&1 && exit 0
fi

python=
for name in python3 python3.13 python3.12 python3.11 python3.14; do
    if command -v "$name" >/dev/null && "$name" -c "$new_enough" 2>/dev/null; then
        python=$name
        break
    fi
done
if [ -z "$python" ]; then
    have=$(python3 --version 2>/dev/null || echo "no python3")
    echo "Python 3.11 or newer is needed; here is $have, and no python3.11 to python3.14." >&2
    echo "next: install one (Debian 12, Ubuntu 24.04: apt-get install python3 python3-venv)" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "$python has no venv. next: apt-get install $python-venv" >&2
    exit 1
fi
echo "making .venv with $("$python" --version)"
rm -rf .venv
"$python" -m venv .venv
