"""The verb ``pe-lightning reproduce``: the papers' tables and figures, each from one file of settings."""
