"""The version, in the one place where it stands; the package is built with it."""

VERSION = "0.1.0"
