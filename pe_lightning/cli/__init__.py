"""From the words of the command line to Python: arguments, registered names, recipes, help, and verbs as typed functions."""
