"""Environments written in C.

gsolve_env.h      what an environment's file includes: the contract, random numbers, drawing
gsolve_vector.h   compiled after it: N copies in one call
engine.py         the engine: finds, compiles and steps them
shipped/          environments that come with the package: `c:snake`
"""
