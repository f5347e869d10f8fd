"""HTTP/1.1 as the agent needs it: few paths, one back end, bounds on everything, and a tenth of a framework's memory.

The protocol itself is h11's; what is here are its connections.
"""
