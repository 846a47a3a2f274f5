#!/usr/bin/env bash
# Private steps in PyTorch: antiphon.torch against Opacus (hooks, ghost clipping, expanded weights) and SGD without privacy, on the CIFAR-10
# network of Kairouz et al. 2021. `bench/pytorch.sh speed|memory|noise`, without an argument all three.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=target/bench-pytorch
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check "./python[torch]" opacus
exec "$environment/bin/python" -W ignore bench/pytorch.py "$@"
