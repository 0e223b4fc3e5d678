#include "held.h"

#include <map>

namespace shoal::device::opencl {
namespace {

struct State {
  std::mutex lock;
  std::atomic<bool> any{false};
  std::map<cl_event, Users> events;  // a user event waits for itself
  std::map<cl_command_queue, Users> blocked;  // what all later commands of a queue wait for
  std::map<cl_command_queue, Users> queues;   // what any command on it waits for
  std::map<std::shared_ptr<Flight>, Users> flights;

  // Those of `users` that are still unset: another thread may have set one since they were looked up.
  Users unset(const Users& users) const {
    Users found;
    for (const cl_event user : users)
      if (events.count(user) != 0) found.insert(user);
    return found;
  }

  void look() { any.store(!events.empty() || !queues.empty() || !flights.empty()); }
};

State& state() {
  static auto* all = new State;
  return *all;
}

template <typename Handle>
std::vector<Handle> without(std::map<Handle, Users>* all, cl_event user) {
  std::vector<Handle> free;
  for (auto at = all->begin(); at != all->end();) {
    at->second.erase(user);
    if (!at->second.empty()) {
      ++at;
      continue;
    }
    free.push_back(at->first);
    at = all->erase(at);
  }
  return free;
}

cl_event CL_API_CALL create_user(cl_context context, cl_int* error) {
  const cl_event made = next->clCreateUserEvent(context, error);
  if (made == nullptr) return made;
  const std::lock_guard<std::mutex> guard(state().lock);
  state().events[made] = {made};
  state().look();
  return made;
}

cl_int CL_API_CALL set_user(cl_event user, cl_int status) {
  std::vector<std::shared_ptr<Flight>> ready;
  {
    const std::lock_guard<std::mutex> guard(state().lock);
    without(&state().events, user);
    without(&state().blocked, user);
    without(&state().queues, user);
    ready = without(&state().flights, user);
    state().look();
  }
  if (status >= 0) admit(ready);  // after an error none of them runs, and not all drivers tell their end
  return next->clSetUserEventStatus(user, status);
}

}  // namespace

Users users_of(cl_command_queue queue, cl_uint count, const cl_event* list, bool all) {
  Users found;
  State& known = state();
  if (!known.any.load(std::memory_order_acquire)) return found;
  const std::lock_guard<std::mutex> guard(known.lock);
  const auto add = [&found](const auto& map, auto handle) {
    if (const auto at = map.find(handle); at != map.end()) found.insert(at->second.begin(), at->second.end());
  };
  add(all ? known.queues : known.blocked, queue);
  for (cl_uint i = 0; list != nullptr && i < count; ++i) add(known.events, list[i]);
  return found;
}

void spread(cl_command_queue queue, bool blocks_queue, cl_event event, const Users& users) {
  State& all = state();
  if (!all.any.load(std::memory_order_acquire)) return;
  const std::lock_guard<std::mutex> guard(all.lock);
  if (event != nullptr) all.events.erase(event);  // a handle may have been another event's
  const Users unset = all.unset(users);
  if (unset.empty()) return;
  if (event != nullptr) all.events[event] = unset;
  all.queues[queue].insert(unset.begin(), unset.end());
  if (blocks_queue) all.blocked[queue].insert(unset.begin(), unset.end());
}

bool hold(const std::shared_ptr<Flight>& flight, const Users& users) {
  const std::lock_guard<std::mutex> guard(state().lock);
  const Users unset = state().unset(users);
  if (unset.empty()) return false;
  state().flights[flight] = unset;
  return true;
}

void let_go(const std::shared_ptr<Flight>& flight) {
  const std::lock_guard<std::mutex> guard(state().lock);
  state().flights.erase(flight);
  state().look();
}

void hook_held(cl_icd_dispatch* table) {
  table->clCreateUserEvent = create_user;
  table->clSetUserEventStatus = set_user;
}

}  // namespace shoal::device::opencl
