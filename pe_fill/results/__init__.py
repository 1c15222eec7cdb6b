"""Files and pictures of the tools: maps, tables of points, pictures before and after."""
