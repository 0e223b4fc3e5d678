"""What a program may allocate, and what it is told of the device: one JSON object of facts."""

import gc
import json
import sys

import pyopencl as cl

MIB = 1 << 20
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
device = context.devices[0]
facts: dict[str, object] = {"memory": device.global_mem_size >> 20, "largest": device.max_mem_alloc_size >> 20}


def size(mib: float) -> str:
    try:
        kept.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, int(mib * MIB)))
    except cl.MemoryError as problem:
        return str(problem.code)
    return "made"


kept: list[object] = []
facts["first"], facts["second"], facts["small"] = size(40), size(30), size(20)
part = kept[0].get_sub_region(0, 39 * MIB)
facts["again"] = size(5)
del part
kept.clear()
gc.collect()
queue.finish()
facts["after release"] = size(60)
kept.clear()
gc.collect()
pixels = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
images = []
for side in (1024, 2048):  # 16 and 64 MiB
    try:
        images.append(cl.create_image(context, cl.mem_flags.READ_WRITE, pixels, (side, side)))
    except cl.MemoryError as problem:
        facts[f"image {side}"] = str(problem.code)
facts["images"] = len(images)
images.clear()
gc.collect()
print(json.dumps(facts), flush=True)
sys.stdin.readline()
