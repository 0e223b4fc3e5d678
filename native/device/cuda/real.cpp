// Finds and opens the driver behind the shim, as the loader would have without it, and exports the driver's names: those that
// are not hooked jump on at once, with all their arguments where they are.
#include "real.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace shoal::cuda {

Real real{};

namespace {

constexpr const char* kName = "libcuda.so.1";

bool same_file(const char* path, const struct stat& other) {
  struct stat found;
  return stat(path, &found) == 0 && found.st_dev == other.st_dev && found.st_ino == other.st_ino;
}

// The path that ldconfig's cache has for the driver. The cache: a header, entries of fixed size, then the text they point into.
std::string cached() {
  struct Header {
    char magic[20];
    uint32_t count, text_size, unused[5];
  } header;
  struct Entry {
    int32_t flags;
    uint32_t key, value, os;
    uint64_t hardware;
  } entry;
  std::ifstream file("/etc/ld.so.cache", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const size_t start = all.find("glibc-ld.so.cache1.1");
  if (start == std::string::npos || all.size() < start + sizeof header) return {};
  memcpy(&header, all.data() + start, sizeof header);
  for (uint32_t i = 0; i < header.count; i++) {
    const size_t at = start + sizeof header + i * sizeof entry;
    if (at + sizeof entry > all.size()) break;
    memcpy(&entry, all.data() + at, sizeof entry);
    const size_t key = start + entry.key, value = start + entry.value;
    if (key >= all.size() || value >= all.size() || strcmp(all.c_str() + key, kName) != 0) continue;
#if defined(__x86_64__)
    if ((entry.flags & 0xff00) != 0x0300) continue;  // another word size lies beside it
#endif
    return all.c_str() + value;
  }
  return {};
}

void* open_at(const std::string& path, const struct stat& self) {
  if (path.empty() || same_file(path.c_str(), self)) return nullptr;
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

void* open_driver() {
  Dl_info info;
  struct stat self{};
  if (dladdr(reinterpret_cast<void*>(&real), &info) != 0) stat(info.dli_fname, &self);
  if (const char* given = getenv("SHOAL_REAL_LIBCUDA")) {
    if (void* library = open_at(given, self)) return library;
  }
  std::string folders = getenv("LD_LIBRARY_PATH") != nullptr ? getenv("LD_LIBRARY_PATH") : "";
  for (size_t at = 0; at < folders.size();) {
    const size_t end = std::min(folders.find_first_of(":;", at), folders.size());
    if (end > at) {
      if (void* library = open_at(folders.substr(at, end - at) + "/" + kName, self)) return library;
    }
    at = end + 1;
  }
  if (void* library = open_at(cached(), self)) return library;
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
                             "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"}) {
    if (void* library = open_at(std::string(folder) + "/" + kName, self)) return library;
  }
  return nullptr;
}

void* driver() {
  static void* library = open_driver();
  return library;
}

}  // namespace

CUresult absent() { return driver() != nullptr ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_DEVICE; }

void* real_symbol(const char* name) { return driver() != nullptr ? dlsym(driver(), name) : nullptr; }

}  // namespace shoal::cuda

// For each name that is not hooked: a pointer, and the exported function that jumps to it.
#if defined(__x86_64__)
#define JUMP(symbol) "jmp *shoal_real_" #symbol "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(symbol) "adrp x16, shoal_real_" #symbol "\n ldr x16, [x16, :lo12:shoal_real_" #symbol "]\n br x16\n"
#endif
#define PASS(symbol)                                                                             \
  extern "C" __attribute__((visibility("hidden"))) void* shoal_real_##symbol;                    \
  void* shoal_real_##symbol = nullptr;                                                           \
  __asm__(".pushsection .text\n.globl " #symbol "\n.type " #symbol ",%function\n" #symbol ":\n"  \
          JUMP(symbol) ".size " #symbol ", .-" #symbol "\n.popsection\n");
#include "passed.inc"
#undef PASS

namespace shoal::cuda {
namespace {

// Before any other constructor of what depends on this library.
__attribute__((constructor)) void load() {
  void* const missing = reinterpret_cast<void*>(&absent);
  void* found;
#define PASS(symbol)            \
  found = real_symbol(#symbol); \
  shoal_real_##symbol = found != nullptr ? found : missing;
#include "passed.inc"
#undef PASS
#define CALL(symbol) real.symbol = reinterpret_cast<decltype(&::symbol)>(real_symbol(#symbol));
#define HOOK(symbol, base, version, flavour) CALL(symbol)
#define ALSO(symbol, base, version, flavour)
#include "calls.def"
#include "hooks.def"
#undef HOOK
#undef ALSO
#undef CALL
}

}  // namespace
}  // namespace shoal::cuda
