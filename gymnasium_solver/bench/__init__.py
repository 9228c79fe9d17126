"""Speed, measured: what `gsolve bench` runs. Parts that need no other library live here and work
from an installed wheel; those that compare with peers live in benchmarks/ of a source checkout."""
