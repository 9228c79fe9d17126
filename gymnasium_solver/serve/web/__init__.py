"""`gsolve ui`: a Starlette app over `runs/query.py`; its pages are ES modules in `static/`."""
