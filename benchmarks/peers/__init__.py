"""The other libraries' side: scripts that run in their environments and print one JSON line."""
