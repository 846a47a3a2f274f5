#!/usr/bin/env bash
# Clients per second of a federated round with the window model, ours against PyTorch, in one run: bench/federated.py says how.
# bench/federated.sh; PYTHON=… uses an environment that has torch and numpy.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo bench --locked --quiet -p antiphon-train --bench client --no-run
binary=$(cargo bench --locked -p antiphon-train --bench client --no-run 2>&1 | sed -n 's/.*(\(.*client-[0-9a-f]*\))$/\1/p')
if [ -z "${PYTHON:-}" ]; then
    environment=target/bench-federated
    PYTHON=$environment/bin/python
    [ -x "$PYTHON" ] || python3 -m venv "$environment"
    "$PYTHON" -c 'import numpy, torch' 2>/dev/null || "$environment/bin/pip" install --quiet torch numpy
fi
"$PYTHON" -W ignore bench/federated.py "$binary"
