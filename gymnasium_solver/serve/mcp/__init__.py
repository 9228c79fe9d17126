"""The MCP server, `gsolve mcp`: agents list, start, watch, diagnose and compare runs.

server.py builds it from the tools (read.py, sql.py, pictures.py, control.py), resources.py and
prompts.py. http.py serves it to other machines. Each tool is a few lines over `runs/query.py`,
`experiments` and `backends`.
"""
