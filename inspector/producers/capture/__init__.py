"""The live arrays and compiled programs of the caller as records of a Snapshot."""
