"""Methods that predict missing samples, a file each: the members of a mixture."""
