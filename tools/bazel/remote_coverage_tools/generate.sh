#!/bin/sh
echo "coverage reports are not generated here" >&2
exit 1
