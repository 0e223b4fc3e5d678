// cuGetProcAddress: the driver answers first, so versions, flavours and names that the shim has never heard of are its
// business. An answer that is a function hooked here is replaced; any other stays.
#include <cstring>
#include <mutex>

#include "real.h"
#include "streams.h"

namespace shoal::cuda {
namespace {

struct Hook {
  const char* base;
  int version;
  bool per_thread;
  void* ours;
  void *by_name, *by_version;  // the driver's: by dlsym, and by cuGetProcAddress
};

Hook hooks[] = {
#define HOOK(symbol, base, version, flavour) \
  {#base, version, #flavour[0] == 'p', reinterpret_cast<void*>(&::symbol), nullptr, nullptr},
#define ALSO HOOK
#include "hooks.def"
#undef HOOK
#undef ALSO
};

const char* const symbols[] = {
#define HOOK(symbol, base, version, flavour) #symbol,
#define ALSO HOOK
#include "hooks.def"
#undef HOOK
#undef ALSO
};

void find_hooks() {
  for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
    Hook& hook = hooks[i];
    hook.by_name = real_symbol(symbols[i]);
    const uint64_t flags = hook.per_thread ? kProcPerThreadStream : kProcLegacyStream;
    const CUresult result = real.cuGetProcAddress_v2 != nullptr
                                ? real.cuGetProcAddress_v2(hook.base, &hook.by_version, hook.version, flags, nullptr)
                                : forward(real.cuGetProcAddress, hook.base, &hook.by_version, hook.version, flags);
    if (result != CUDA_SUCCESS) hook.by_version = nullptr;
  }
}

void replace(const char* name, void** function) {
  static std::once_flag found;
  std::call_once(found, find_hooks);
  for (const Hook& hook : hooks) {
    if ((*function == hook.by_version || *function == hook.by_name) && strcmp(name, hook.base) == 0) {
      *function = hook.ours;
      return;
    }
  }
  // A newer way to begin a capture: from now on each launch asks whether its stream captures.
  if (strncmp(name, "cuStreamBeginCapture", strlen("cuStreamBeginCapture")) == 0) expect_capture();
}

}  // namespace
}  // namespace shoal::cuda

using namespace shoal::cuda;

CUresult cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  const CUresult result = forward(real.cuGetProcAddress, name, function, version, flags);
  if (result == CUDA_SUCCESS && name != nullptr && function != nullptr && *function != nullptr) replace(name, function);
  return result;
}

CUresult cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  const CUresult result = forward(real.cuGetProcAddress_v2, name, function, version, flags, status);
  if (result == CUDA_SUCCESS && name != nullptr && function != nullptr && *function != nullptr) replace(name, function);
  return result;
}
