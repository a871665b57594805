"""Worker processes, jobs, the compile cache and the library."""
