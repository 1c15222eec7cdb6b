"""Files of a run: reconstructions in the format of their medium, comparisons with the truth, figures."""
