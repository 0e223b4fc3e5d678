// A driver of CUDA that needs no GPU, for tests only: it is libcuda.so.1 and runs what a program asks for on the host.
//
// One device, shared by all processes that name the same file in SHOAL_FAKE_DEVICE: it runs one kernel at a time, block after
// block, and never stops a kernel between its blocks. Streams are in order, each with a thread of its own. A module is the
// text of PTX; of it only the entries' names and parameters count. A name is FUNCTION[_usN][__shoal_slice|__shoal_ticket]: FUNCTION is one
// of those in kernels.cpp, N is how long a block takes in microseconds.
//
//   SHOAL_FAKE_DEVICE   a file: the device, common to processes; the second one has the name with .1 behind, and so on
//   SHOAL_FAKE_DEVICES  how many there are (1)
//   SHOAL_FAKE_WRITES   a file that gets one byte for each write of a stream
//   SHOAL_FAKE_LOG      a file: one line for each kernel in the order in which they ran: PID NAME BLOCKS BASE
//   SHOAL_FAKE_INSTANT  1: work runs in the calling thread at once, for measuring what a call costs
//   SHOAL_FAKE_MEMORY   bytes of the device (1 GiB)
//   SHOAL_FAKE_WITHOUT  functions that answer "not supported": cuStreamWriteValue32, cuMemHostRegister, cuFuncGetParamInfo
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../cuda/driver.h"

namespace fake {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

struct Param {
  size_t offset, size;
};

struct Kernel {
  std::string name, function;
  unsigned block_us = 0;
  bool slice = false, ticket = false;
  std::vector<Param> params;
  size_t params_size = 0;
  std::map<int, int> attributes;
  struct Module* module = nullptr;
  bool of_library = false;
  // The memory of one that was unloaded is given out again at once: its handle means another kernel then.
  static void* operator new(size_t size);
  static void operator delete(void* at);
};

struct Module {
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

// Null when the text has no entry.
std::unique_ptr<Module> parse(const std::string& ptx);

struct Launch {
  Kernel* kernel;
  Dim grid, block;
  std::vector<char> params;  // as the kernel's layout says
  int device = 0;
};

// Runs it on the device of this machine: waits until the device is free, holds it until the last block has ended.
void execute(const Launch& launch);
void execute(int device, const std::vector<std::function<void()>>& parts);  // a graph: nothing else runs in between
void run_blocks(const Launch& launch);                          // the device is held

struct Event {
  uint64_t recorded = 0;     // the newest generation
  std::set<uint64_t> ended;  // each by itself: one recorded later, in another stream, may end first
  bool has_ended(uint64_t generation) const { return generation == 0 || ended.count(generation) != 0; }
  double completed_ms = 0;
  bool timing = true;
  std::set<struct Node*> captured;  // recorded by a stream that is being captured: the nodes it stands for
  struct Graph* capture = nullptr;
};

struct Op {
  uint64_t number;
  std::function<void()> run;
};

struct Context {
  int device = 0;
  bool primary = false;
  struct Stream* legacy = nullptr;
  std::set<struct Stream*> streams;
};

struct Stream {
  Context* context;
  bool blocking = true;  // orders itself with the legacy stream
  std::deque<Op> queue;  // the first is running or about to
  bool threaded = false, closed = false;
  std::condition_variable wake;
  struct Graph* capture = nullptr;
  int capture_mode = kCaptureGlobal;
  bool capture_broken = false, capture_origin = false;
  std::set<struct Node*> frontier;
};

constexpr int kNodeWrite = 12;

struct Node {
  int type = kNodeEmpty;
  std::set<Node*> after;
  Launch launch;
  std::vector<void*> param_pointers;
  CUDA_MEMSET_NODE_PARAMS memset{};
  CUDA_MEMCPY3D copy{};
  std::function<void()> host;
  Event* event = nullptr;
  bool cooperative = false;
};

struct Graph {
  std::vector<std::shared_ptr<Node>> nodes;  // an order that respects `after`
};

struct GraphExec {
  std::vector<std::shared_ptr<Node>> nodes;
  std::map<const Node*, size_t> place;  // of a node of the graph
};

// Puts work on a stream, or into the graph that the stream is captured into.
CUresult put(CUstream handle, bool per_thread, std::shared_ptr<Node> node);
void run(const Node& node, bool device_held);
// What a call that could wait answers during a capture: such a call breaks the capture.
CUresult unsafe_while_capturing();

void fill(const CUDA_MEMSET_NODE_PARAMS& what);
void copy(const CUDA_MEMCPY3D& what);

// All state is guarded by one lock and never destroyed: threads of streams live until the process ends.
struct State {
  std::mutex lock;
  std::condition_variable changed;
  pid_t initialised_by = 0;
  uint64_t next_number = 1;
  std::set<struct Graph*> captures;
  std::map<CUdevice, Context*> primary;
  std::map<CUdevice, int> primary_references;
  std::map<CUdeviceptr, size_t> memory;
  std::map<CUmemHandle, size_t> handles;
  size_t used = 0;
};
State& state();
uint64_t memory_total();
int device_count();
bool instant();
bool without(const char* function);

Stream* stream_of(CUstream handle, bool per_thread);  // null: no such stream or no context
Context* current();
// Puts work on a stream. With the state's lock held.
void submit(Stream* stream, std::function<void()> work, std::unique_lock<std::mutex>& held);
void wait_for(Stream* stream, std::unique_lock<std::mutex>& held);
bool idle(const Stream* stream);
double now_ms();

}  // namespace fake
