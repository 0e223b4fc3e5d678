// Graphs. A guaranteed process's graph is one launch. A best-effort process's graph goes whole when it is short enough, else node
// by node in an order that respects its edges, each kernel by way of the gate. What its nodes are is read when the graph is
// instantiated; a graph with nodes of other kinds, or whose nodes were changed one by one later, always goes whole.
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "copies.h"

namespace shoal::cuda {
namespace {

struct Step {
  int type = kNodeEmpty;
  Launch launch{};
  std::vector<std::vector<char>> arguments;
  std::vector<void*> pointers;
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS memset{};
  CUevent event = nullptr;
};

struct Exec {
  std::mutex lock;  // launches of one graph follow each other
  std::vector<Step> steps;
  bool replayable = false, collective = false;
  uint64_t hash = 0;
  mutable std::atomic<bool> ran{false};  // the first launch may load code, and is not timed
  CUevent event = nullptr;  // the end of the last launch,
  CUstream last = nullptr;  // which was there
};

struct State {
  std::mutex lock;
  std::unordered_map<CUgraphExec, std::shared_ptr<Exec>> execs;
};

State* state = new State;
[[maybe_unused]] const bool watched = pthread_atfork(nullptr, nullptr, [] { state = new State; }) == 0;

bool has_attribute(CUgraphNode node, int which) {
  CUlaunchAttribute attribute{};
  if (forward(real.cuGraphKernelNodeGetAttribute, node, which, static_cast<void*>(&attribute.value)) != CUDA_SUCCESS) {
    return false;
  }
  const unsigned* dims = attribute.value.dims;
  const bool cluster = which == kLaunchClusterDimension || which == kLaunchPreferredCluster;
  return cluster ? uint64_t{dims[0]} * dims[1] * dims[2] > 1 : attribute.value.number != 0;
}

bool read_kernel(CUgraphNode node, Step* step) {
  CUDA_KERNEL_NODE_PARAMS params{};
  if (forward(real.cuGraphKernelNodeGetParams_v2, node, &params) != CUDA_SUCCESS) return false;
  for (const int which : {kLaunchCooperative, kLaunchClusterDimension, kLaunchPreferredCluster, kLaunchDeviceUpdatable}) {
    if (has_attribute(node, which)) return false;
  }
  const CUfunction function = params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
  if (function == nullptr || params.extra != nullptr) return false;
  const auto kernel = kernel_of(function);
  if (!kernel->has_sizes || (params.kernelParams == nullptr && !kernel->sizes.empty())) return false;
  step->launch.function = function;
  step->launch.grid[0] = params.gridDimX, step->launch.grid[1] = params.gridDimY, step->launch.grid[2] = params.gridDimZ;
  step->launch.block[0] = params.blockDimX, step->launch.block[1] = params.blockDimY;
  step->launch.block[2] = params.blockDimZ;
  step->launch.shared = params.sharedMemBytes;
  for (size_t i = 0; i < kernel->sizes.size(); i++) {
    const char* at = static_cast<const char*>(params.kernelParams[i]);
    step->arguments.emplace_back(at, at + kernel->sizes[i]);
  }
  for (auto& argument : step->arguments) step->pointers.push_back(argument.data());
  return true;
}

bool read_node(CUgraphNode node, Step* step) {
  if (forward(real.cuGraphNodeGetType, node, &step->type) != CUDA_SUCCESS) return false;
  switch (step->type) {
    case kNodeKernel:
      return read_kernel(node, step);
    case kNodeMemcpy:
      return forward(real.cuGraphMemcpyNodeGetParams, node, &step->copy) == CUDA_SUCCESS;
    case kNodeMemset:
      return forward(real.cuGraphMemsetNodeGetParams, node, &step->memset) == CUDA_SUCCESS;
    case kNodeEventRecord:
      return forward(real.cuGraphEventRecordNodeGetEvent, node, &step->event) == CUDA_SUCCESS;
    case kNodeWaitEvent:
      return forward(real.cuGraphEventWaitNodeGetEvent, node, &step->event) == CUDA_SUCCESS;
    default:
      return step->type == kNodeEmpty;
  }
}

CUresult edges_of(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  return real.cuGraphGetEdges_v2 != nullptr ? real.cuGraphGetEdges_v2(graph, from, to, data, count)
                                            : forward(real.cuGraphGetEdges, graph, from, to, count);
}

// The graph's nodes, each behind those that it depends on; none when the driver does not tell.
std::vector<CUgraphNode> in_order(CUgraph graph) {
  size_t count = 0, edges = 0;
  if (forward(real.cuGraphGetNodes, graph, static_cast<CUgraphNode*>(nullptr), &count) != CUDA_SUCCESS) return {};
  std::vector<CUgraphNode> nodes(count);
  if (count == 0 || forward(real.cuGraphGetNodes, graph, nodes.data(), &count) != CUDA_SUCCESS) return {};
  if (edges_of(graph, nullptr, nullptr, nullptr, &edges) != CUDA_SUCCESS) return {};
  std::vector<CUgraphNode> from(edges), to(edges);
  std::vector<CUgraphEdgeData> data(edges);
  if (edges != 0 && edges_of(graph, from.data(), to.data(), data.data(), &edges) != CUDA_SUCCESS) return {};
  std::unordered_map<CUgraphNode, size_t> waits;
  std::unordered_map<CUgraphNode, std::vector<CUgraphNode>> next;
  for (size_t i = 0; i < edges; i++) {
    waits[to[i]]++;
    next[from[i]].push_back(to[i]);
  }
  std::vector<CUgraphNode> order;
  for (const CUgraphNode node : nodes) {
    if (waits[node] == 0) order.push_back(node);
  }
  for (size_t i = 0; i < order.size(); i++) {
    for (const CUgraphNode node : next[order[i]]) {
      if (--waits[node] == 0) order.push_back(node);
    }
  }
  return order.size() == count ? order : std::vector<CUgraphNode>{};
}

std::shared_ptr<Exec> read_graph(CUgraph graph) {
  auto exec = std::make_shared<Exec>();
  const std::vector<CUgraphNode> order = in_order(graph);
  exec->replayable = !order.empty();
  exec->hash = order.size();
  for (const CUgraphNode node : order) {
    Step step;
    exec->replayable = read_node(node, &step) && exec->replayable;
    const auto kernel = step.launch.function != nullptr ? kernel_of(step.launch.function) : nullptr;
    const uint64_t part = kernel != nullptr ? kernel->hash : 0;
    exec->collective |= kernel != nullptr && kernel->collective;
    exec->hash = device::hash_bytes(&part, sizeof part, exec->hash * 31 + static_cast<uint64_t>(step.type));
    exec->steps.push_back(std::move(step));
  }
  return exec;
}

bool is_best_effort() {
  const Gate* gate = Gate::get();
  return gate != nullptr && gate->cls() == SHOAL_BEST_EFFORT;
}

CUresult instantiated(CUresult result, const CUgraphExec* exec, CUgraph graph) {
  if (result != CUDA_SUCCESS || exec == nullptr || !is_best_effort()) return result;
  auto known = read_graph(graph);
  const std::lock_guard<std::mutex> held(state->lock);
  state->execs[*exec] = std::move(known);
  return result;
}

std::shared_ptr<Exec> exec_of(CUgraphExec handle) {
  const std::lock_guard<std::mutex> held(state->lock);
  const auto found = state->execs.find(handle);
  return found != state->execs.end() ? found->second : nullptr;
}

CUresult updated(CUresult result, CUgraphExec handle, CUgraph graph) {
  const auto before = result == CUDA_SUCCESS ? exec_of(handle) : nullptr;
  if (before == nullptr) return result;
  const auto now = read_graph(graph);
  const std::lock_guard<std::mutex> held(before->lock);
  before->steps = std::move(now->steps);
  before->replayable = now->replayable;
  before->collective = now->collective;
  before->hash = now->hash;
  return result;
}

// One node is not what it was when the graph was read.
template <class Function, class... Arguments>
CUresult changed(Function function, CUgraphExec handle, Arguments... arguments) {
  const CUresult result = forward(function, handle, arguments...);
  if (const auto exec = exec_of(handle)) {
    const std::lock_guard<std::mutex> held(exec->lock);
    exec->replayable = false;
  }
  return result;
}

CUresult fill(const CUDA_MEMSET_NODE_PARAMS& what, CUstream stream) {
  const size_t pitch = what.height > 1 ? what.pitch : what.width * what.elementSize;
  if (what.elementSize == 1) {
    return forward(real.cuMemsetD2D8Async, what.dst, pitch, static_cast<unsigned char>(what.value), what.width, what.height,
                   stream);
  }
  if (what.elementSize == 2) {
    return forward(real.cuMemsetD2D16Async, what.dst, pitch, static_cast<unsigned short>(what.value), what.width, what.height,
                   stream);
  }
  return forward(real.cuMemsetD2D32Async, what.dst, pitch, what.value, what.width, what.height, stream);
}

CUresult replay(Gate* gate, Step& step, CUstream stream) {
  switch (step.type) {
    case kNodeKernel: {
      step.launch.params = step.pointers.data();
      step.launch.stream = stream;
      return launch_best_effort(gate, step.launch, [&] { return launch_whole(step.launch); });
    }
    case kNodeMemcpy: {
      const bool host = step.copy.srcMemoryType == 1 || step.copy.dstMemoryType == 1;
      const uint64_t bytes = step.copy.WidthInBytes * step.copy.Height * step.copy.Depth;
      return copy_on_device(stream, host ? 0 : bytes, [&] { return forward(real.cuMemcpy3DAsync_v2, &step.copy, stream); });
    }
    case kNodeMemset:
      return copy_on_device(stream, step.memset.width * step.memset.elementSize * step.memset.height,
                            [&] { return fill(step.memset, stream); });
    case kNodeEventRecord:
      return forward(real.cuEventRecord, step.event, stream);
    case kNodeWaitEvent:
      return forward(real.cuStreamWaitEvent, stream, step.event, 0u);
    default:
      return CUDA_SUCCESS;
  }
}

uint64_t predict(const Exec& exec) {
  uint64_t sum = 0;
  for (const Step& step : exec.steps) {
    if (step.type == kNodeKernel) sum += predict(step.launch);
  }
  return sum;
}

CUresult whole(Gate* gate, const Exec& exec, CUstream stream, Start start) {
  const device::Key key{exec.hash, {0, 0, 0}, {0, 0, 0}};
  Lane lane(gate, stream);
  Timing::read(gate, lane);
  auto* known = profiles();
  const ShoalProfile profile = known != nullptr ? known->look(key) : ShoalProfile{};
  const ShoalPlan plan = shoal_choose(&profile, 1u << SHOAL_WHOLE, 1, gate->bound_ns());
  Timing timing(lane, known != nullptr && exec.ran.exchange(true) && !exec.collective);
  const auto timed = [&](uint32_t sequence) {
    timing.begin();
    const CUresult result = start();
    if (result == CUDA_SUCCESS) timing.end(sequence, key, SHOAL_WHOLE, 1);
    return result;
  };
  return piece(gate, lane, plan.cost_ns, timed, exec.collective);
}

CUresult launch_best_effort(Gate* gate, CUgraphExec handle, CUstream stream, Start start) {
  const auto exec = exec_of(handle);
  if (exec == nullptr) return whole(gate, Exec{}, stream, start);
  const std::lock_guard<std::mutex> held(exec->lock);
  if (exec->event != nullptr && exec->last != stream) forward(real.cuStreamWaitEvent, stream, exec->event, 0u);
  CUresult result = CUDA_SUCCESS;
  if (exec->replayable && !exec->collective && predict(*exec) > gate->bound_ns()) {
    for (Step& step : exec->steps) {
      result = replay(gate, step, stream);
      if (result != CUDA_SUCCESS) break;
    }
  } else {
    result = whole(gate, *exec, stream, start);
  }
  if (exec->event == nullptr) {
    const Relaxed relaxed;
    if (forward(real.cuEventCreate, &exec->event, kEventDisableTiming) != CUDA_SUCCESS) exec->event = nullptr;
  }
  if (exec->event != nullptr) forward(real.cuEventRecord, exec->event, stream);
  exec->last = stream;
  return result;
}

CUresult launched(CUgraphExec exec, CUstream stream, Start start) {
  Gate* gate = gate_for(stream);
  if (gate == nullptr) return start();
  return gate->cls() == SHOAL_GUARANTEED ? submit(gate, stream, start) : launch_best_effort(gate, exec, stream, start);
}

}  // namespace
}  // namespace shoal::cuda

using namespace shoal::cuda;

CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error, char* log, size_t size) {
  return instantiated(forward(real.cuGraphInstantiate, out, graph, error, log, size), out, graph);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error, char* log, size_t size) {
  return instantiated(forward(real.cuGraphInstantiate_v2, out, graph, error, log, size), out, graph);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return instantiated(forward(real.cuGraphInstantiateWithFlags, out, graph, flags), out, graph);
}

#define FLAVOUR(suffix, per_thread)                                                                                 \
  CUresult cuGraphInstantiateWithParams##suffix(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* p) { \
    return instantiated(forward(real.cuGraphInstantiateWithParams##suffix, out, graph, p), out, graph);             \
  }                                                                                                                 \
  CUresult cuGraphLaunch##suffix(CUgraphExec exec, CUstream stream) {                                               \
    return launched(exec, explicit_stream(stream, per_thread),                                                      \
                    [=] { return forward(real.cuGraphLaunch##suffix, exec, stream); });                             \
  }
FLAVOUR(, false)
FLAVOUR(_ptsz, true)

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  {
    const std::lock_guard<std::mutex> held(state->lock);
    state->execs.erase(exec);
  }
  return forward(real.cuGraphExecDestroy, exec);
}
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error, int* result) {
  return updated(forward(real.cuGraphExecUpdate, exec, graph, error, result), exec, graph);
}
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* result) {
  return updated(forward(real.cuGraphExecUpdate_v2, exec, graph, result), exec, graph);
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params) {
  return changed(real.cuGraphExecKernelNodeSetParams, exec, node, params);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  return changed(real.cuGraphExecKernelNodeSetParams_v2, exec, node, params);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* params, CUcontext context) {
  return changed(real.cuGraphExecMemcpyNodeSetParams, exec, node, params, context);
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params,
                                        CUcontext context) {
  return changed(real.cuGraphExecMemsetNodeSetParams, exec, node, params, context);
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const void* params) {
  return changed(real.cuGraphExecHostNodeSetParams, exec, node, params);
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return changed(real.cuGraphExecChildGraphNodeSetParams, exec, node, child);
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return changed(real.cuGraphExecEventRecordNodeSetEvent, exec, node, event);
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return changed(real.cuGraphExecEventWaitNodeSetEvent, exec, node, event);
}
CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, void* params) {
  return changed(real.cuGraphExecNodeSetParams, exec, node, params);
}
CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  return changed(real.cuGraphNodeSetEnabled, exec, node, enabled);
}
