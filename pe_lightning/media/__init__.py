"""Files that a run writes: signals in the format of their medium, comparisons with the truth, figures."""
