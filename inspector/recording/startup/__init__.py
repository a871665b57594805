"""The folder that is on PYTHONPATH while a recorded program starts."""
