"""The pure core: what is due, what a tick decides, and the words for it.

It reads no clock, socket, file or environment.
"""
