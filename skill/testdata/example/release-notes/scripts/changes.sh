#!/bin/sh
# Prints the commits since the tag $1, one a line.
exec git log --no-merges --format='%h %s' "$1"..HEAD
