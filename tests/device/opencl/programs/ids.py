"""Launches ranges as it is told, a JSON object a line: dimensions' sizes and local sizes. Answers each with a digest of
all that work-items can ask about the range."""

import hashlib
import json
import os
import sys

import numpy as np
import pyopencl as cl

ASKED = 22
SOURCE = """
void tell(global ulong *out, size_t place) {
  for (uint d = 0; d < 4; ++d) {
    *out++ = get_group_id(d); *out++ = get_num_groups(d); *out++ = get_global_id(d); *out++ = get_global_size(d);
    *out++ = get_local_id(d) + (get_local_size(d) << 32) + get_global_offset(d);
  }
  *out++ = get_work_dim() + 8 * place;
  *out++ = get_global_linear_id() + (get_local_linear_id() << 32) + (get_enqueued_local_size(0) << 48);
}
kernel void ids(global ulong *out, int asked) {
  size_t place = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
  tell(out + place * asked, place);
}
"""
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, SOURCE).build(options=["-cl-std=CL2.0"]), "ids")
for line in sys.stdin:
    told = json.loads(line)
    os.environ["SHOAL_DEVICE_SLICE_BLOCKS"] = str(told["slice"])
    out = np.full((int(np.prod(told["size"])), ASKED), 2**64 - 1, np.uint64)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
    kernel(queue, tuple(told["size"]), tuple(told["local"]), buffer, np.int32(ASKED))
    cl.enqueue_copy(queue, out, buffer)
    assert (out != 2**64 - 1).all(), "a work-item did not run"
    print(hashlib.sha256(out.tobytes()).hexdigest(), flush=True)
