"""The parts of `gsolve bench` that need no other library and work from an installed wheel. Those
that compare with peers are in benchmarks/ of a source checkout."""
