"""Read profiles of JAX: the files `*.xplane.pb`, whose form is TensorFlow's `xplane.proto`.

`wire` decodes protobuf, `planes` the planes and lines of a file, `events` the events of instructions,
`times` their sums. None of them needs JAX. Only the HLO of a program is turned into text by JAX.
"""
