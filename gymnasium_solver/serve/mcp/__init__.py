"""The MCP server, `gsolve mcp`: agents list, start, watch, diagnose and compare runs.

server.py builds it from the questions in the files *_tools.py and from resources.py.
"""
