"""Fit the constants of predictions to published measurements, and judge the order of sweeps and trials."""
