"""A client that is somebody else's: libnfs over UDP. Writes the content of FILE, which it mounts for.

    libnfs.py ADDRESS PORT FILE
"""

import select
import sys
import time

try:
    import ctypes as c

    lib = c.CDLL("libnfs.so.13")
except (ImportError, OSError):
    sys.exit(77)

PATIENCE = 60
# After so long a request is sent again: a datagram may be lost.
AGAIN = 2


class Bytes(c.Structure):
    _fields_ = [("length", c.c_uint), ("value", c.POINTER(c.c_char))]

    @staticmethod
    def of(data):
        return Bytes(len(data), c.cast(c.create_string_buffer(data, len(data)), c.POINTER(c.c_char)))

    def get(self):
        return c.string_at(self.value, self.length)


class Attributes(c.Structure):
    _fields_ = (
        [(name, c.c_uint32) for name in ("type", "mode", "nlink", "uid", "gid")]
        + [("size", c.c_uint64), ("used", c.c_uint64), ("rdev", c.c_uint32 * 2), ("fsid", c.c_uint64)]
        + [("fileid", c.c_uint64), ("times", c.c_uint32 * 6)]
    )


class Optional(c.Structure):
    _fields_ = [("there", c.c_uint32), ("attributes", Attributes)]


class GetattrResult(c.Structure):
    _fields_ = [("status", c.c_uint32), ("attributes", Attributes)]


class LookupFound(c.Structure):
    _fields_ = [("handle", Bytes), ("attributes", Optional), ("directory", Optional)]


class LookupResult(c.Structure):
    _fields_ = [("status", c.c_uint32), ("found", LookupFound)]


class ReadFound(c.Structure):
    _fields_ = [("attributes", Optional), ("count", c.c_uint32), ("eof", c.c_uint32), ("data", Bytes)]


class ReadResult(c.Structure):
    _fields_ = [("status", c.c_uint32), ("found", ReadFound)]


class MountResult(c.Structure):
    _fields_ = [("status", c.c_uint32), ("handle", Bytes)]


class Lookup(c.Structure):
    _fields_ = [("directory", Bytes), ("name", c.c_char_p)]


class Read(c.Structure):
    _fields_ = [("file", Bytes), ("offset", c.c_uint64), ("count", c.c_uint32)]


CALLBACK = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_void_p, c.c_void_p)
lib.rpc_init_udp_context.restype = c.c_void_p


class Client:
    def __init__(self, address, port):
        # Kept: a reply may come twice.
        self.callbacks = []
        self.rpc = c.c_void_p(lib.rpc_init_udp_context())
        assert lib.rpc_bind_udp(self.rpc, b"0.0.0.0", 0) == 0
        assert lib.rpc_set_udp_destination(self.rpc, address, port, 0) == 0

    def ask(self, procedure, argument, read):
        """What `read` makes of the reply, while its memory is there."""
        replies = []

        def reply(_rpc, status, data, _private):
            assert status == 0, f"{procedure}: RPC status {status}"
            replies.append(read(data))

        callback = CALLBACK(reply)
        self.callbacks.append(callback)
        arguments = () if argument is None else (argument,)
        poll, end, due = select.poll(), time.monotonic() + PATIENCE, 0
        poll.register(lib.rpc_get_fd(self.rpc), select.POLLIN)
        while not replies:
            assert time.monotonic() < end, f"{procedure}: no reply"
            if time.monotonic() > due:
                sent = getattr(lib, procedure)(self.rpc, callback, *arguments, None)
                assert sent == 0, procedure
                due = time.monotonic() + AGAIN
            for _, events in poll.poll(100):
                assert lib.rpc_service(self.rpc, events) == 0
        return replies[0]

    def result(self, procedure, argument, kind, read):
        def status_and(data):
            result = c.cast(data, c.POINTER(kind)).contents
            return (result.status, read(result) if result.status == 0 else None)

        return self.ask(procedure, argument, status_and)

    def mount(self, path):
        return self.result("rpc_mount3_mnt_async", path, MountResult, lambda result: result.handle.get())

    def getattr(self, handle):
        def read(result):
            return (result.attributes.type, result.attributes.size)

        return self.result("rpc_nfs3_getattr_async", c.byref(Bytes.of(handle)), GetattrResult, read)

    def lookup(self, directory, name):
        argument = c.byref(Lookup(Bytes.of(directory), name))
        return self.result("rpc_nfs3_lookup_async", argument, LookupResult, lambda r: r.found.handle.get())

    def read(self, handle, offset, count):
        def read(result):
            found = result.found
            assert found.count == found.data.length and found.attributes.there
            return (found.data.get(), found.eof)

        argument = c.byref(Read(Bytes.of(handle), offset, count))
        return self.result("rpc_nfs3_read_async", argument, ReadResult, read)


client = Client(sys.argv[1].encode(), int(sys.argv[2]))
assert client.ask("rpc_nfs3_null_async", None, lambda _: True)
assert client.mount(b"/etc") == (2, None)
status, root = client.mount(b"/")
assert status == 0
assert client.getattr(root)[1][0] == 2, "a directory"
assert client.getattr(b"somebody's") == (10001, None)
assert client.lookup(root, b"../secret") == (13, None)
assert client.lookup(root, b"nothing") == (2, None)
status, handle = client.lookup(root, sys.argv[3].encode())
assert status == 0
kind, size = client.getattr(handle)[1]
content, end = b"", False
while not end:
    status, (data, end) = client.read(handle, len(content), 1 << 20)
    assert status == 0 and (data or end)
    content += data
assert kind == 1 and size == len(content)
sys.stdout.buffer.write(content)
