#!/usr/bin/env bash
# Are the bits of noise and of training those of a processor without AVX2, FMA and AES instructions? tools/emulated.sh [CPU]
#
# Runs the literal values of the noise and short training runs on this machine and under qemu-x86_64 (Debian package qemu-user), which
# emulates another processor: Nehalem by default, of 2008, with SSE4.2 and nothing after it. A few minutes once all is compiled.
#
# Required: the literal tests pass; mechanisms from formulas whose figures come from our own arithmetic give the same file of
# parameters, byte for byte, and a run that was stopped on one processor is resumed on the other with the same result. Of the others
# (optimal, fft, dp-sgd) the mechanism or its figures come from libraries that choose instructions by the processor; there a run of one
# processor must be refused on the other, or have the same result.
set -euo pipefail
cd "$(dirname "$0")/.."
cpu=${1:-Nehalem}
command -v qemu-x86_64 > /dev/null || { echo "qemu-x86_64 is missing: apt-get install qemu-user" >&2; exit 2; }
[ "$(uname -m)" = x86_64 ] || { echo "this script compares x86-64 processors; this machine is $(uname -m)" >&2; exit 2; }

cargo build --locked --quiet -p antiphon-cli
tests=$(cargo test --locked -p antiphon --lib --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))/\1/p')
antiphon=$PWD/target/debug/antiphon
tests=$PWD/$tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# on native|emulated PROGRAM ARGUMENTS…; the shell becomes the program, so that signals reach it.
on() {
    local where=$1
    shift
    case $where in
        native) exec "$@" ;;
        emulated) exec qemu-x86_64 -cpu "$cpu" "$@" ;;
    esac
}
other() { [ "$1" = native ] && echo emulated || echo native; }
fail() { echo "FAILED: $*" >&2; exit 1; }

# Is the emulated processor another one? Without AES instructions new keys are for ChaCha20.
(on native "$antiphon" make identity --epochs 1 --steps-per-epoch 4 --output m) > /dev/null
for where in native emulated; do
    (on $where "$antiphon" noise m --params 4 --output "noise-$where") > /dev/null
    cipher=$(grep -o '"cipher":"[^"]*"' "noise-$where.key")
    echo "$where: new keys have $cipher"
done
grep -q chacha20 noise-emulated.key || fail "$cpu has AES instructions: choose another processor"

echo "literal values of the noise:"
for where in native emulated; do
    (on $where "$tests" noise::tests::known_values noise::tests::rows::values_are_stable noise::tests::ciphers) > out \
        || { cat out; fail "the noise has other bits, $where"; }
    echo "  $where: $(grep '^test result' out)"
done

run="train --epochs 2 --batch-size 100 --seed 1"
echo "training, parameters after two epochs:"
for mechanism in tree-online tree-optimal identity optimal fft fft-optimal single-epoch dp-sgd; do
    for where in native emulated; do
        (on $where "$antiphon" $run --mechanism $mechanism --output "$mechanism-$where") > /dev/null 2>&1
    done
    if cmp -s "$mechanism-native" "$mechanism-emulated"; then
        echo "  $mechanism: the same file, SHA-256 $(sha256sum < "$mechanism-native" | cut -c1-16)…"
    else
        echo "  $mechanism: other bits"
        case $mechanism in tree-online | tree-optimal | identity) fail "$mechanism must have the same bits" ;; esac
    fi
done

# Everything in a checkpoint but the times: parameters and velocity, 650 numbers each.
state() { tail -c 5200 "$1/checkpoint.safetensors" | sha256sum | cut -c1-16; }

long="train --epochs 12 --batch-size 100 --noise-multiplier 3 --seed 1"
echo "runs of 180 steps that are stopped on one processor and resumed on the other:"
for mechanism in tree-online identity optimal fft dp-sgd; do
    (on native "$antiphon" $long --mechanism $mechanism --checkpoints "$mechanism-whole") > /dev/null 2>&1
    for where in native emulated; do
        folder=$mechanism-$where-first
        command="$long --mechanism $mechanism --checkpoints $folder"
        (on $where "$antiphon" $command --checkpoint-every 1) > out 2>&1 &
        until [ -e "$folder/checkpoint.safetensors" ]; do sleep 0.01; done
        kill -INT $!
        wait $! && fail "$mechanism was through before it could be stopped"
        stopped=$(grep -o 'stopped after [0-9]*' out)
        if (on "$(other $where)" "$antiphon" $command --resume) > out 2>&1; then
            [ "$(state "$folder")" = "$(state "$mechanism-whole")" ] || fail "$mechanism, $where first: another result"
            echo "  $mechanism, $where first, $stopped: the same result"
        else
            grep -q 'describes another run' out || { cat out; fail "$mechanism, $where first: no reason"; }
            echo "  $mechanism, $where first, $stopped: refused ($(grep -o '[a-z_]* was ' out | tr '\n' ' ')…)"
            case $mechanism in tree-online | identity) fail "$mechanism must be resumed" ;; esac
        fi
    done
done
echo "done: $cpu"
