"""What all tests share."""

import os
import tempfile

# The key that signs runs with plugins (runs/origin.py) stays out of the home folder. Processes that
# tests start inherit it.
_settings = tempfile.TemporaryDirectory(prefix="gsolve-settings-")
os.environ["XDG_CONFIG_HOME"] = _settings.name
