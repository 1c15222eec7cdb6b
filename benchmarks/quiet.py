"""The line that names the machine, by its old name."""

from harness import machine as machine
