"""Compiled programs: a recorded tape (fast/tape.py) as C, compiled by the system's C compiler.

    schedule.py   composite operations as simpler ones, and when each of them runs
    arrays.py     places in memory, shapes and strides that depend on the number of samples
    kernels.py    what a program is made of: loops, products, sums over samples
    builder.py    values of the tape, and the loops that compute them
    pointwise.py  elementwise operations as C expressions
    views.py      constants, views and joined arrays
    lower.py      the tape as kernels, with all of these; reductions, indices, matrix products
    memory.py     ReLU inside a product, parts of a stack in their places, offsets in memory
    nest.py       the C loops of a kernel, and kernels as C functions
    emit.py       the C text
    runtime.h     functions, before the generated text
    pool.c        a pool of threads
    lanes.c       sums of lanes
    optimizer.c   optimiser steps, and gradients with steps for each minibatch
    matmul.c      matrix products
    build.py      compiles it, and keeps the libraries in a cache
    program.py    calls it from Python: gradients, optimiser steps, forward passes
    rollout.py    rows of a rollout with compiled environments, and GAE, with rollout.c
    portable.py   a forward pass as plain C99 text, for `gsolve export --format c`

A program runs the tape on blocks of a few dozen samples, so that values stay in the CPU's cache; of
128 samples if there are so many weights that reading them for each block takes longer.
Sums over samples (gradients of weights, means) are accumulated block by block. The blocks belong
to a fixed number of lanes, whose sums are added in a fixed order: results are the same bits for any
number of threads.
"""
