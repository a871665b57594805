"""Compare the results of a lowered program, sharded and on one device.

Both modules run on emulated devices with the same arguments. If results differ, the modules are changed to
also return intermediate values, and the first operation whose result differs is named.
"""
