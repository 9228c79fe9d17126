"""`python -m gymnasium_solver` is `gsolve`."""

from gymnasium_solver.cli.main import entry

if __name__ == "__main__":
    entry()
