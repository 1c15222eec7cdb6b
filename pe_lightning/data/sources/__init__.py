"""From files to signals: images, videos, volumes, arrays, tables and sound, described first and decoded when asked for.

``arrays``, ``tables``, ``audio``, ``rows``, ``images`` and ``cubes`` are the entries; each returns a
:class:`~pe_lightning.data.signals.RawSignals`, ``images`` the decoded values. The other modules are what they share.
"""
