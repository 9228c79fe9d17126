"""The command line: `gsolve <verb>`, one small module a verb.

A verb module offers `main(argv) -> int`. Nothing heavy is imported until the verb runs.
"""
