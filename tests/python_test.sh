#!/bin/sh
# Runs the Python test beside it with the distribution's Python.
exec /usr/bin/python3 "$@"
