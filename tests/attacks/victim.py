"""What is attacked: a job of another tenant, careless with the modes of its files, that left doors open and closed."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time

marks, key = sys.argv[1], int(sys.argv[2])
os.umask(0)
for path in ("secret.txt", os.environ["SHOAL_CHECKPOINT_DIR"] + "/model", os.environ["SHOAL_RUN"] + "/metrics.jsonl"):
    with open(path, "w") as file:
        file.write("the victim's\n")
libc, rt = ctypes.CDLL(None), ctypes.CDLL("librt.so.1")
for number, mode, name in ((key, 0o666, "open"), (key + 1, 0o600, "closed")):
    libc.shmget(number, 4096, 0o1000 | mode)
    for place in ("/dev/shm", "/tmp"):
        os.close(os.open(f"{place}/{name}-{marks}", os.O_CREAT | os.O_WRONLY, mode))
    rt.mq_open(f"/{name}-{marks}".encode(), 0o102, mode, None)
libc.semget(key + 1, 1, 0o1600)
libc.msgget(key + 1, 0o1600)
doors = [socket.socket(socket.AF_UNIX) for _ in range(2)]
for door, address in zip(doors, ("door", f"\0open-{marks}"), strict=True):
    door.bind(address)
    door.listen()
port = socket.create_server(("127.0.0.1", 0))
print(json.dumps({"pid": os.getpid(), "uid": os.getuid(), "port": port.getsockname()[1]}), flush=True)
while True:
    time.sleep(60)
