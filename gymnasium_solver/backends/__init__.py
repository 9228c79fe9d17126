"""Where trainings run: on this machine, on Ray, Slurm, dstack or Modal.

A backend runs an argv in a folder that is known before the start, and nothing else. It relies on
the contract of `gsolve train --run-dir D --if-exists resume`: SIGTERM saves and exits with 75, and
a start that finds a checkpoint continues it.
"""
