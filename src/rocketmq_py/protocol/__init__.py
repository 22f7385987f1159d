"""RocketMQ's wire protocol: bytes to values and back, without I/O, clock or randomness.

A connection carries frames. ``frames`` splits them, ``command`` defines what is in one (:class:`Command`),
and ``json_header`` and ``binary_header`` are its two encodings. ``headers`` and ``bodies`` have a class for
each header and JSON body. ``sends``, ``batch`` and ``stored_message`` encode messages on their way out
and in. Begin with ``command``, then ``frames`` and ``headers.base``.
"""
