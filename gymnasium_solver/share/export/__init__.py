"""Export of trained policies: raw observation in, the environment's action out.

    export_run("@last/@best", root, "onnx", out=None)       # files.py

deployed.py is the policy as one torch module, observed.py plays the run's environment to compare,
onnx_file.py and c_header.py write the two formats.
"""
