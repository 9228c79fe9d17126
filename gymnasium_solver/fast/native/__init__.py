"""Compiled programs: a recorded tape (fast/tape.py) as C, compiled by the system's C compiler.

    split.py      composite operations as simpler ones
    arrays.py     places in memory, shapes and strides that depend on the number of samples
    pointwise.py  elementwise operations as C expressions
    lower.py      a tape as loops and matrix products
    emit.py       these as C text
    runtime.c     functions, threads and optimisers, before the generated text
    matmul.c      matrix products
    build.py      compiles it, and keeps the libraries in a cache
    program.py    calls it from Python

A program runs the tape on blocks of a few dozen samples, so that values stay in the CPU's cache.
Sums over samples (gradients of weights, means) are accumulated block by block. The blocks belong
to a fixed number of lanes, whose sums are added in a fixed order: results are the same bits for any
number of threads.
"""
