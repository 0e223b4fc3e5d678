// Streams as the API has them, events, capture and graphs of the fake driver.
#include <cstring>

#include "fake.h"

namespace fake {
namespace {

thread_local int capture_mode = kCaptureGlobal;

Graph* graph_of(CUgraph graph) { return reinterpret_cast<Graph*>(graph); }
Node* node_of(CUgraphNode node) { return reinterpret_cast<Node*>(node); }
Event* event_of(CUevent event) { return reinterpret_cast<Event*>(event); }
GraphExec* exec_of(CUgraphExec exec) { return reinterpret_cast<GraphExec*>(exec); }

void break_captures(const Graph* only = nullptr) {
  if (current() == nullptr) return;
  for (Stream* stream : current()->streams) {
    if (stream->capture != nullptr && (only == nullptr || stream->capture == only)) stream->capture_broken = true;
  }
}

CUresult synchronize(CUstream handle, bool per_thread) {
  State& all = state();
  std::unique_lock<std::mutex> held(all.lock);
  Stream* stream = stream_of(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stream->capture != nullptr) {
    break_captures(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  wait_for(stream, held);
  if (stream == stream->context->legacy) {
    for (;;) {  // what blocking streams were given earlier
      Stream* busy = nullptr;
      for (Stream* other : stream->context->streams) {
        if (other->blocking && !idle(other)) busy = other;
      }
      if (busy == nullptr) break;
      wait_for(busy, held);
    }
  }
  return CUDA_SUCCESS;
}

CUresult query(CUstream handle, bool per_thread) {
  const std::lock_guard<std::mutex> held(state().lock);
  const Stream* stream = stream_of(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult record(CUevent handle, CUstream on, bool per_thread) {
  State& all = state();
  std::unique_lock<std::mutex> held(all.lock);
  Stream* stream = stream_of(on, per_thread);
  Event* event = event_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stream->capture != nullptr) {
    event->captured = stream->frontier;
    event->capture = stream->capture;
    return CUDA_SUCCESS;
  }
  event->capture = nullptr;
  const uint64_t generation = ++event->recorded;
  submit(stream, [event, generation] {
    const std::lock_guard<std::mutex> inner(state().lock);
    event->ended.insert(generation);
    event->completed_ms = now_ms();
  }, held);
  return CUDA_SUCCESS;
}

CUresult wait(CUstream on, bool per_thread, CUevent handle) {
  State& all = state();
  std::unique_lock<std::mutex> held(all.lock);
  Stream* stream = stream_of(on, per_thread);
  Event* event = event_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (event->capture != nullptr && all.captures.count(event->capture) != 0) {
    if (stream->capture == nullptr) {
      stream->capture = event->capture;
      stream->capture_origin = false;
      stream->capture_broken = false;
      stream->frontier.clear();
    }
    stream->frontier.insert(event->captured.begin(), event->captured.end());
    return CUDA_SUCCESS;
  }
  const uint64_t generation = event->recorded;
  submit(stream, [event, generation] {
    std::unique_lock<std::mutex> inner(state().lock);
    state().changed.wait(inner, [&] { return event->has_ended(generation); });
  }, held);
  return CUDA_SUCCESS;
}

CUresult begin(CUstream on, bool per_thread, int mode, Graph* into) {
  State& all = state();
  const std::lock_guard<std::mutex> held(all.lock);
  Stream* stream = stream_of(on, per_thread);
  if (stream == nullptr || stream == stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = into != nullptr ? into : new Graph;
  stream->capture_mode = mode;
  stream->capture_origin = true;
  stream->capture_broken = false;
  stream->frontier.clear();
  all.captures.insert(stream->capture);
  return CUDA_SUCCESS;
}

CUresult end(CUstream on, bool per_thread, CUgraph* out) {
  State& all = state();
  const std::lock_guard<std::mutex> held(all.lock);
  Stream* stream = stream_of(on, per_thread);
  if (stream == nullptr || stream->capture == nullptr || !stream->capture_origin) return CUDA_ERROR_ILLEGAL_STATE;
  Graph* graph = stream->capture;
  bool broken = false;
  for (Stream* other : stream->context->streams) {
    if (other->capture != graph) continue;
    broken |= other->capture_broken;
    other->capture = nullptr;
    other->frontier.clear();
  }
  all.captures.erase(graph);
  *out = broken ? nullptr : reinterpret_cast<CUgraph>(graph);
  return broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult is_capturing(CUstream on, bool per_thread, int* status) {
  const std::lock_guard<std::mutex> held(state().lock);
  const Stream* stream = stream_of(on, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *status = stream->capture == nullptr ? kCaptureNone : stream->capture_broken ? kCaptureInvalidated : kCaptureActive;
  return CUDA_SUCCESS;
}

CUresult add(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count, std::shared_ptr<Node> node) {
  for (size_t i = 0; i < count; i++) node->after.insert(node_of(after[i]));
  *out = reinterpret_cast<CUgraphNode>(node.get());
  graph_of(graph)->nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* out, CUgraph graph) {
  auto* exec = new GraphExec;
  for (const auto& node : graph_of(graph)->nodes) {
    exec->place[node.get()] = exec->nodes.size();
    exec->nodes.push_back(std::make_shared<Node>(*node));
  }
  *out = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

CUresult launch(CUgraphExec handle, CUstream stream, bool per_thread) {
  std::vector<std::function<void()>> parts;
  for (const auto& node : exec_of(handle)->nodes) parts.push_back([node] { run(*node, true); });
  auto whole = std::make_shared<Node>();
  whole->type = kNodeGraph;
  const int device = current() != nullptr ? current()->device : 0;
  whole->host = [device, parts] { execute(device, parts); };
  return put(stream, per_thread, whole);
}

CUresult update(CUgraphExec handle, CUgraph graph) {
  const auto& nodes = graph_of(graph)->nodes;
  if (nodes.size() != exec_of(handle)->nodes.size()) return 910;  // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
  for (size_t i = 0; i < nodes.size(); i++) exec_of(handle)->nodes[i] = std::make_shared<Node>(*nodes[i]);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult unsafe_while_capturing() {
  const std::lock_guard<std::mutex> held(state().lock);
  if (capture_mode != kCaptureGlobal || current() == nullptr) return CUDA_SUCCESS;
  for (const Stream* stream : current()->streams) {
    if (stream->capture == nullptr || stream->capture_mode != kCaptureGlobal) continue;
    break_captures(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return CUDA_SUCCESS;
}

void run(const Node& node, bool device_held) {
  if (node.type == kNodeKernel) return device_held ? run_blocks(node.launch) : execute(node.launch);
  if (node.type == kNodeMemset) return fill(node.memset);
  if (node.type == kNodeMemcpy) return copy(node.copy);
  if (node.host) node.host();
}

CUresult put(CUstream handle, bool per_thread, std::shared_ptr<Node> node) {
  State& all = state();
  std::unique_lock<std::mutex> held(all.lock);
  Stream* stream = stream_of(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stream == stream->context->legacy) {
    for (const Stream* other : stream->context->streams) {
      if (other->capture != nullptr && other->blocking) {
        break_captures(other->capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
  }
  if (stream->capture == nullptr) {
    submit(stream, [node] { run(*node, false); }, held);
    return CUDA_SUCCESS;
  }
  if (node->type == kNodeWrite || node->type == kNodeGraph) {  // the one leaves a node behind, the other is not made here
    break_captures(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  node->after = stream->frontier;
  stream->frontier = {node.get()};
  stream->capture->nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

}  // namespace fake

using namespace fake;

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int) {
  const std::lock_guard<std::mutex> held(state().lock);
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto* stream = new Stream;
  stream->context = current();
  stream->blocking = (flags & kStreamNonBlocking) == 0;
  current()->streams.insert(stream);
  *out = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
CUresult cuStreamDestroy_v2(CUstream handle) {
  const std::lock_guard<std::mutex> held(state().lock);
  auto* stream = reinterpret_cast<Stream*>(handle);
  stream->closed = true;  // its thread ends once all is done
  stream->wake.notify_one();
  if (!stream->threaded) stream->context->streams.erase(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }
CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}

#define FLAVOUR(suffix, pt)                                                                                           \
  CUresult cuStreamSynchronize##suffix(CUstream s) { return synchronize(s, pt); }                                     \
  CUresult cuStreamQuery##suffix(CUstream s) { return query(s, pt); }                                                 \
  CUresult cuStreamWaitEvent##suffix(CUstream s, CUevent event, unsigned) { return wait(s, pt, event); }              \
  CUresult cuStreamBeginCapture##suffix(CUstream s) { return begin(s, pt, kCaptureGlobal, nullptr); }                 \
  CUresult cuStreamBeginCapture_v2##suffix(CUstream s, int mode) { return begin(s, pt, mode, nullptr); }              \
  CUresult cuStreamBeginCaptureToGraph##suffix(CUstream s, CUgraph graph, const CUgraphNode*, const CUgraphEdgeData*, \
                                               size_t count, int mode) {                                              \
    return count != 0 ? CUDA_ERROR_NOT_SUPPORTED : begin(s, pt, mode, graph_of(graph));                               \
  }                                                                                                                   \
  CUresult cuStreamEndCapture##suffix(CUstream s, CUgraph* out) { return end(s, pt, out); }                           \
  CUresult cuStreamIsCapturing##suffix(CUstream s, int* status) { return is_capturing(s, pt, status); }               \
  CUresult cuEventRecord##suffix(CUevent event, CUstream s) { return record(event, s, pt); }                          \
  CUresult cuGraphLaunch##suffix(CUgraphExec exec, CUstream s) { return launch(exec, s, pt); }                        \
  CUresult cuGraphInstantiateWithParams##suffix(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* p) {  \
    p->result_out = 0;                                                                                                \
    return instantiate(out, graph);                                                                                   \
  }
FLAVOUR(, false)
FLAVOUR(_ptsz, true)

CUresult cuEventCreate(CUevent* out, unsigned flags) {
  auto* event = new Event;
  event->timing = (flags & kEventDisableTiming) == 0;
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }  // an operation may still hold it: a test leaks a few
CUresult cuEventQuery(CUevent event) {
  const CUresult broken = unsafe_while_capturing();
  if (broken != CUDA_SUCCESS) return broken;
  const std::lock_guard<std::mutex> held(state().lock);
  return event_of(event)->has_ended(event_of(event)->recorded) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent handle) {
  std::unique_lock<std::mutex> held(state().lock);
  const Event* event = event_of(handle);
  const uint64_t generation = event->recorded;
  state().changed.wait(held, [&] { return event->has_ended(generation); });
  return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float* out, CUevent from, CUevent to) {
  const std::lock_guard<std::mutex> held(state().lock);
  if (!event_of(from)->timing || !event_of(to)->timing) return CUDA_ERROR_INVALID_HANDLE;
  if (!event_of(to)->has_ended(event_of(to)->recorded)) return CUDA_ERROR_NOT_READY;
  *out = static_cast<float>(event_of(to)->completed_ms - event_of(from)->completed_ms);
  return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph* out, unsigned) {
  *out = reinterpret_cast<CUgraph>(new Graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  delete graph_of(graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* with) {
  auto node = std::make_shared<Node>();
  node->type = kNodeKernel;
  auto* kernel = with->func ? reinterpret_cast<Kernel*>(with->func) : reinterpret_cast<Kernel*>(with->kern);
  node->launch = {kernel,
                  {with->gridDimX, with->gridDimY, with->gridDimZ},
                  {with->blockDimX, with->blockDimY, with->blockDimZ},
                  std::vector<char>(kernel->params_size)};
  for (size_t i = 0; i < kernel->params.size(); i++) {
    memcpy(node->launch.params.data() + kernel->params[i].offset, with->kernelParams[i], kernel->params[i].size);
  }
  return add(out, graph, after, count, node);
}
CUresult cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                              const CUDA_MEMCPY3D* with, CUcontext) {
  auto node = std::make_shared<Node>();
  node->type = kNodeMemcpy;
  node->copy = *with;
  return add(out, graph, after, count, node);
}
CUresult cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* with, CUcontext) {
  auto node = std::make_shared<Node>();
  node->type = kNodeMemset;
  node->memset = *with;
  return add(out, graph, after, count, node);
}
CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count) {
  return add(out, graph, after, count, std::make_shared<Node>());
}
CUresult cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count, const void* with) {
  struct Host {
    CUhostFn function;
    void* data;
  } host;
  memcpy(&host, with, sizeof host);
  auto node = std::make_shared<Node>();
  node->type = kNodeHost;
  node->host = [host] { host.function(host.data); };
  return add(out, graph, after, count, node);
}
// As the driver does, in no order that could be relied on: backwards.
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  const auto& all = graph_of(graph)->nodes;
  if (nodes != nullptr) {
    for (size_t i = 0; i < *count && i < all.size(); i++) nodes[i] = reinterpret_cast<CUgraphNode>(all[all.size() - 1 - i].get());
  }
  *count = all.size();
  return CUDA_SUCCESS;
}
CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  size_t found = 0;
  for (const auto& node : graph_of(graph)->nodes) {
    for (Node* before : node->after) {
      if (from != nullptr && found < *count) {
        from[found] = reinterpret_cast<CUgraphNode>(before);
        to[found] = reinterpret_cast<CUgraphNode>(node.get());
        if (data != nullptr) data[found] = {};
      }
      found++;
    }
  }
  *count = found;
  return CUDA_SUCCESS;
}
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return cuGraphGetEdges_v2(graph, from, to, nullptr, count);
}
CUresult cuGraphNodeGetType(CUgraphNode node, int* type) {
  *type = node_of(node)->type;
  return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* out) {
  Node* node = node_of(handle);
  Launch& launch = node->launch;
  node->param_pointers.clear();
  for (const Param& param : launch.kernel->params) node->param_pointers.push_back(launch.params.data() + param.offset);
  *out = {reinterpret_cast<CUfunction>(launch.kernel), launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x,
          launch.block.y, launch.block.z, 0, node->param_pointers.data(), nullptr, nullptr, nullptr};
  return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, int attribute, void* out) {
  memset(out, 0, 64);
  if (attribute == kLaunchCooperative) *static_cast<int*>(out) = node_of(node)->cooperative;
  return CUDA_SUCCESS;
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) {
  *out = node_of(node)->copy;
  return CUDA_SUCCESS;
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  *out = node_of(node)->memset;
  return CUDA_SUCCESS;
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode, CUevent*) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode, CUevent*) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, size_t) { return instantiate(out, graph); }
CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, size_t) { return instantiate(out, graph); }
CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) { return instantiate(out, graph); }
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  delete exec_of(exec);
  return CUDA_SUCCESS;
}
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode*, int*) { return update(exec, graph); }
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo*) { return update(exec, graph); }
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec handle, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* with, CUcontext) {
  GraphExec* exec = exec_of(handle);
  const auto found = exec->place.find(node_of(node));
  if (found == exec->place.end()) return CUDA_ERROR_INVALID_VALUE;
  exec->nodes[found->second]->memset = *with;
  return CUDA_SUCCESS;
}

}  // extern "C"
