"""Environments written in C.

gsolve_env.h      what an environment's file includes: the contract, random numbers, drawing
gsolve_vector.h   compiled after it: N copies in one call
engine.py         the engine: finds, compiles and steps them
classics.py       Gymnasium's classic control, stepped by the shipped files
shipped/          environments that come with the package: `c:snake`
"""
