"""Many fits: the search of an encoder, sweeps, comparisons of runs, and the page of examples."""
