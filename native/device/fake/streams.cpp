// Streams of the fake driver: a queue and a thread each; the legacy default stream is ordered with all that are blocking.
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "fake.h"

namespace fake {
namespace {

thread_local std::vector<Context*> stack;
thread_local std::map<Context*, Stream*> own;

// An operation of the legacy stream comes after all that blocking streams were given before it, and the other way round.
bool ordered(const Stream* stream, uint64_t number) {
  const Context* context = stream->context;
  if (stream != context->legacy) {
    if (!stream->blocking) return true;
    const Stream* legacy = context->legacy;
    return legacy->queue.empty() || legacy->queue.front().number > number;
  }
  for (const Stream* other : context->streams) {
    if (other != stream && other->blocking && !other->queue.empty() && other->queue.front().number < number) return false;
  }
  return true;
}

void serve(Stream* stream) {
  State& all = state();
  std::unique_lock<std::mutex> held(all.lock);
  for (;;) {
    stream->wake.wait(held, [&] { return !stream->queue.empty() || stream->closed; });
    if (stream->queue.empty()) break;
    all.changed.wait(held, [&] { return ordered(stream, stream->queue.front().number); });
    const auto work = stream->queue.front().run;
    held.unlock();
    work();
    held.lock();
    stream->queue.pop_front();
    all.changed.notify_all();
  }
  stream->context->streams.erase(stream);  // never freed: another thread may wait for it
}

}  // namespace

State& state() {
  static State* one = new State;
  return *one;
}

bool instant() {
  static const bool yes = getenv("SHOAL_FAKE_INSTANT") != nullptr;
  return yes;
}

double now_ms() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

int device_count() {
  const char* count = getenv("SHOAL_FAKE_DEVICES");
  return count != nullptr ? atoi(count) : 1;
}
uint64_t memory_total() {
  const char* given = getenv("SHOAL_FAKE_MEMORY");
  return given ? strtoull(given, nullptr, 10) : uint64_t{1} << 30;
}

Context* current() { return stack.empty() ? nullptr : stack.back(); }

Stream* stream_of(CUstream handle, bool per_thread) {
  Context* context = current();
  if (context == nullptr) return nullptr;
  if (handle == nullptr) handle = per_thread ? kPerThreadStream : kLegacyStream;
  if (handle == kLegacyStream) return context->legacy;
  if (handle != kPerThreadStream) return reinterpret_cast<Stream*>(handle);
  Stream*& stream = own[context];
  if (stream == nullptr) {
    stream = new Stream;
    stream->context = context;
    context->streams.insert(stream);
  }
  return stream;
}

bool idle(const Stream* stream) { return stream->queue.empty(); }

void submit(Stream* stream, std::function<void()> work, std::unique_lock<std::mutex>& held) {
  if (instant()) {
    held.unlock();
    work();
    held.lock();
    return;
  }
  stream->queue.push_back({state().next_number++, std::move(work)});
  if (!stream->threaded) {
    stream->threaded = true;
    std::thread(serve, stream).detach();
  }
  if (stream->queue.size() == 1) stream->wake.notify_one();
}

void wait_for(Stream* stream, std::unique_lock<std::mutex>& held) {
  const uint64_t last = state().next_number;
  state().changed.wait(held, [&] { return stream->queue.empty() || stream->queue.front().number >= last; });
}

}  // namespace fake

using namespace fake;

extern "C" {

CUresult cuCtxSetCurrent(CUcontext context) {
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  stack.push_back(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(current());
  return CUDA_SUCCESS;
}

}  // extern "C"
