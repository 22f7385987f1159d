"""Bytes to values and back: no socket, no clock and no randomness in here.

- ``command`` and ``frames``: requests and answers, and cutting a stream into them
- ``headers``: typed headers; ``bodies``: JSON bodies; ``fastjson``: what Java takes for JSON
- ``send_request`` and ``send_body``: what a producer sends; ``stored_message``: what a consumer gets
- ``message_id``, ``subscription``, ``compression``: what the name says
"""
