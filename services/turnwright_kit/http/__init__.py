"""The calls of the contract by HTTP: the Connect protocol, gRPC-Web and server-sent events, on a port of their own.

Endpoints are made from descriptors at the start, and each calls the guarded handler that gRPC calls, so no rpc has a
line here. Only a server that has this port imports the package, since its libraries take a quarter of a second to load.
Source: ADR 73.
"""
