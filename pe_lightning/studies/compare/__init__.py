"""``pe-lightning compare``: runs side by side, by the files of their directories, without torch and Lightning."""
