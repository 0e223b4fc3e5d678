// What the parts of the layer share: the table of the real calls, and what is remembered of each handle.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_layer.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "../gate.h"

namespace shoal::device::opencl {

extern const cl_icd_dispatch* next;  // the calls below the layer

// Null after a fork that found no place in the page: launches then go straight through.
inline Gate* gate() { return Gate::get(); }
bool best_effort();  // this process; a fork does not change it

// Records of the handles that a program holds, with its references. Those that the driver holds do not come through here.
template <typename Handle, typename Record>
class Registry {
 public:
  void add(Handle handle, std::shared_ptr<Record> record) {
    const std::lock_guard<std::mutex> guard(lock_);
    all_[handle] = Entry{std::move(record), 1};
  }
  std::shared_ptr<Record> find(Handle handle) {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto at = all_.find(handle);
    return at == all_.end() ? nullptr : at->second.record;
  }
  void retain(Handle handle) {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto at = all_.find(handle);
    if (at != all_.end()) ++at->second.references;
  }
  // The record, once the program has let go of it.
  std::shared_ptr<Record> release(Handle handle) {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto at = all_.find(handle);
    if (at == all_.end() || --at->second.references > 0) return nullptr;
    std::shared_ptr<Record> record = std::move(at->second.record);
    all_.erase(at);
    return record;
  }

 private:
  struct Entry {
    std::shared_ptr<Record> record;
    uint32_t references;
  };
  std::mutex lock_;
  std::unordered_map<Handle, Entry> all_;
};

// A lane of the page. Closed when neither its queue nor a command on it is left. Commands of a queue that keeps no order end
// in any order: such queues share the last lane, where pieces are told apart.
struct Lane {
  explicit Lane(bool in_order) : number(in_order ? gate()->open_lane() : kLanes - 1) {}
  ~Lane() {
    if (Gate* of = gate()) of->close_lane(number);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const uint32_t number;
};

struct Queue {
  cl_device_id device = nullptr;
  cl_uint units = 0;  // of the device: it runs at least so many work-groups at once
  bool in_order = true;
  bool profiled = false;  // by the program; the layer turns it on for best-effort queues, to know what pieces take
  std::vector<cl_queue_properties> asked;  // as the program gave them, for it to read back
  std::shared_ptr<Lane> lane;
};

Registry<cl_command_queue, Queue>& queues();

// In a callback the driver's thread must not be held up: what is launched from there is not gated.
bool in_callback();

// The parts, each putting its calls into the layer's table.
void hook_queues(cl_icd_dispatch* table);
void hook_commands(cl_icd_dispatch* table);
void hook_held(cl_icd_dispatch* table);
void hook_events(cl_icd_dispatch* table);  // best effort
void hook_programs(cl_icd_dispatch* table);  // best effort
void hook_launches(cl_icd_dispatch* table);
void hook_extensions(cl_icd_dispatch* table);
void hook_memory(cl_icd_dispatch* table);

}  // namespace shoal::device::opencl
