"""Export of trained policies: raw observation in, the environment's action out.

    export_run("@last/@best", root, "onnx", out=None)

deployed.py is the policy as one torch module, and plays the run's environment to compare files with
it; export_run.py (ONNX) and c_header.py write the two formats.
"""
