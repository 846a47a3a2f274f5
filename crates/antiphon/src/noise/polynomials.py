#!/usr/bin/env python3
"""The coefficients in polynomials.rs, derived.

Usage: pip install mpmath==1.4.1 numpy==2.4.6, then polynomials.py > polynomials.rs

Each polynomial has the smallest largest relative error (Remez). Coefficients are rounded one after the other, from the
lowest, and the ones above are fitted again after each rounding; so what is lost by rounding one is mended by the others.
The errors that are printed are those of the rounded coefficients in exact arithmetic.
"""

import mpmath as mp
import numpy as np

mp.mp.prec = 200
QUARTER = mp.pi / 4


def rounded(x, kind):
    return mp.mpf(float(np.float32(float(x)))) if kind == "f32" else mp.mpf(float(x))


def remez(target, weight, low, high, powers):
    """Coefficients c such that sum c[i]·x^powers[i] is closest to target on [low, high], errors times weight."""
    n = len(powers)
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle - half * mp.cos(mp.pi * (i + mp.mpf(1) / 2) / (n + 1)) for i in range(n + 1)]
    for _ in range(30):
        a = mp.matrix(n + 1, n + 1)
        b = mp.matrix(n + 1, 1)
        for i, x in enumerate(points):
            for j, p in enumerate(powers):
                a[i, j] = x**p * weight(x)
            a[i, n] = (-1) ** i
            b[i] = target(x) * weight(x)
        solved = mp.lu_solve(a, b)
        c, level = [solved[i] for i in range(n)], abs(solved[n])

        def error(x):
            return (sum(ci * x**p for ci, p in zip(c, powers)) - target(x)) * weight(x)

        # The extreme point between each two changes of sign, on a grid that is dense near the ends.
        grid = [middle - half * mp.cos(mp.pi * i / (40 * n)) for i in range(40 * n + 1)]
        values = [error(x) for x in grid]
        found, best = [], 0
        for i in range(1, len(grid)):
            if (values[i] > 0) != (values[best] > 0):
                found.append(best)
                best = i
            elif abs(values[i]) > abs(values[best]):
                best = i
        found.append(best)
        if len(found) < n + 1:
            break
        while len(found) > n + 1:
            found.pop(0 if abs(values[found[0]]) < abs(values[found[-1]]) else -1)
        points = [grid[i] for i in found]
        if max(abs(values[i]) for i in found) < level * mp.mpf("1.001"):
            break
    return c


def fit(target, weight, low, high, count, kind, fixed=()):
    """`count` coefficients of 1, x, x², …, rounded; the first ones may be given."""
    c = [mp.mpf(x) for x in fixed]
    while len(c) < count:
        powers = range(len(c), count)
        rest = lambda x: target(x) - sum(ci * x**i for i, ci in enumerate(c))
        c.append(rounded(remez(rest, weight, low, high, powers)[0], kind))
    grid = [low + (high - low) * i / 5000 for i in range(5001)]
    worst = max(abs((mp.polyval(c[::-1], x) - target(x)) * weight(x)) for x in grid)
    return c, worst


def log_over_y(y):
    """−2 ln(1 − y)/y."""
    return mp.mpf(2) + y + 2 * y * y / 3 if y < mp.mpf(10) ** -40 else -2 * mp.log1p(-y) / y


def sine(s):
    """sin(πx/4)/x at s = x²."""
    return QUARTER * mp.sinc(QUARTER * mp.sqrt(s))


def cosine(s):
    return mp.cos(QUARTER * mp.sqrt(s))


def literal(x, kind):
    text = repr(float(x)) if kind == "f64" else str(np.float32(float(x)))
    return text if "." in text or "e" in text else text + ".0"


def show(name, what, kind, coefficients, worst):
    ulp = mp.mpf(2) ** (-24 if kind == "f32" else -53)
    print(f"/// {what}; relative error {mp.nstr(worst, 2)}, {mp.nstr(worst / ulp, 2)} times half a unit in the last place.")
    print("#[rustfmt::skip]")
    print(f"pub const {name}_{kind.upper()}: [{kind}; {len(coefficients)}] = [")
    for c in coefficients:
        print(f"    {literal(c, kind)},")
    print("];\n")


def main():
    print("//! Coefficients of the transform, lowest first. Made by polynomials.py, which has the method; not by hand.\n")
    print("// One of them is π/4, rounded as its method says.")
    print("#![allow(clippy::approx_constant)]\n")
    zero, half, one = mp.mpf(0), mp.mpf(1) / 2, mp.mpf(1)
    for kind, log, sin, cos in [("f32", 9, 4, 5), ("f64", 21, 7, 8)]:
        c, worst = fit(log_over_y, lambda y: 1 / log_over_y(y), zero, half, log, kind, fixed=[2])
        show("LOG", "−2 ln(1 − y)/y in y, for y in [0, 1/2]", kind, c, worst)
        c, worst = fit(sine, lambda s: 1 / sine(s), zero, one, sin, kind)
        show("SIN", "sin(πx/4)/x in x², for x in [0, 1]", kind, c, worst)
        c, worst = fit(cosine, lambda s: 1 / cosine(s), zero, one, cos, kind, fixed=[1])
        show("COS", "cos(πx/4) in x², for x in [0, 1]", kind, c, worst)


main()
