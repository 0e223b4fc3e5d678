// Modules and libraries: what is loaded is remembered in short, for the profile's key, and where a module is the text of PTX and
// the process is best effort, the variants of its kernels are added first. A helper program does that, once for each text.
//
//   SHOAL_DEVICE_TRANSFORM  the helper: it reads PTX from its first argument and writes it, with variants, to its second
//   SHOAL_DEVICE_CACHE      a folder for what it wrote
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gate.h"
#include "kernels.h"
#include "real.h"
#include "trace.h"

extern char** environ;

namespace shoal::cuda {
namespace {

constexpr size_t kMostText = 64 << 20;
constexpr int kHelperWaitMs = 20'000;
constexpr size_t kFingerprint = 4096;  // bytes of a binary that are read
constexpr uint32_t kWrapperMagic = 0x466243b1, kFatBinaryMagic = 0xba55ed50;

// The text of PTX begins with comments and its version; a binary has a zero or another magic long before.
bool is_ptx(const char* image) {
  for (;;) {
    while (*image == ' ' || *image == '\t' || *image == '\n' || *image == '\r') image++;
    if (strncmp(image, "//", 2) != 0) return strncmp(image, ".version", 8) == 0;
    while (*image != '\0' && *image != '\n') image++;
  }
}

// A fat binary, or the wrapper by which the CUDA runtime loads one: a pointer to it, which differs from process to process.
uint64_t of_fat_binary(const char* bytes) {
  struct Wrapper {
    uint32_t magic, version;
    const char* binary;
    const void* more;
  } wrapper;
  struct Header {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;  // of what follows it
  } header;
  memcpy(&wrapper, bytes, sizeof wrapper);
  if (wrapper.magic == kWrapperMagic && wrapper.binary != nullptr) bytes = wrapper.binary;
  memcpy(&header, bytes, sizeof header);
  if (header.magic != kFatBinaryMagic) return 0;  // it cannot be told how much may be read
  const uint64_t size = header.header_size + header.size;
  return device::hash_bytes(bytes, std::min<uint64_t>(size, kFingerprint), size);
}

// Short, because a large library is mapped and mostly never read: the size and the beginning.
uint64_t fingerprint(const void* image) {
  const char* bytes = static_cast<const char*>(image);
  if (is_ptx(bytes)) return device::hash_bytes(bytes, strnlen(bytes, kMostText), 1);
  if (memcmp(bytes, "\177ELF", 4) == 0) {
    uint64_t sections;  // e_shoff: the section headers stand last
    memcpy(&sections, bytes + 40, sizeof sections);
    return device::hash_bytes(bytes, sections < kFingerprint ? 64 : kFingerprint, sections);
  }
  return of_fat_binary(bytes);
}

bool exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

// Runs the helper, and leaves it behind if it takes too long.
bool run_helper(const char* program, const std::string& from, const std::string& to) {
  std::string name = program, source = from, target = to;
  char* const arguments[] = {name.data(), source.data(), target.data(), nullptr};
  // Not through this shim, and not as a tenant.
  std::string kept;
  std::vector<char*> environment;
  for (char** one = environ; *one != nullptr; one++) {
    if (strncmp(*one, "LD_LIBRARY_PATH=", 16) != 0 && strncmp(*one, "SHOAL_DEVICE_PAGE=", 18) != 0) environment.push_back(*one);
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, program, &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return false;
  for (int waited = 0; waited < kHelperWaitMs; waited++) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ended < 0) return exists(to);  // the program ignores its children: the file tells
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

// The text with variants; empty when there is none to be had.
std::string transformed(const char* ptx, uint64_t hash) {
  const char* program = getenv("SHOAL_DEVICE_TRANSFORM");
  const char* folder = getenv("SHOAL_DEVICE_CACHE");
  const char* most = getenv("SHOAL_DEVICE_WAYS");
  const device::Gate* gate = device::Gate::get();
  if (program == nullptr || folder == nullptr || gate == nullptr || gate->cls() != SHOAL_BEST_EFFORT) return {};
  if (most != nullptr && strcmp(most, "whole") == 0) return {};
  char name[32];
  snprintf(name, sizeof name, "/%016llx", static_cast<unsigned long long>(hash));
  const std::string stored = folder + std::string(name) + ".ptx";
  if (!exists(stored)) {
    const std::string own = folder + std::string(name) + "." + std::to_string(getpid());
    const std::string from = own + ".in", to = own + ".out";
    std::ofstream(from) << ptx;
    const bool done = run_helper(program, from, to) && rename(to.c_str(), stored.c_str()) == 0;
    unlink(from.c_str());
    unlink(to.c_str());
    // Nor is a text that cannot be transformed tried again: the empty file says so.
    if (!done) std::ofstream{stored};
  }
  std::ifstream file(stored);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Its first bytes, in hexadecimal digits.
void trace_image(const void* image, uint64_t hash) {
  char text[33];
  for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", static_cast<const unsigned char*>(image)[i]);
  device::trace("image", text, hash);
}

// Options of the JIT are answers too: those of a load that failed are not the program's business.
template <class Load>
CUresult with_options(void** values, unsigned count, Load load) {
  std::vector<void*> own(values, values + (values != nullptr ? count : 0));
  const CUresult result = load(own.empty() ? values : own.data());
  if (result == CUDA_SUCCESS) std::copy(own.begin(), own.end(), values);
  return result;
}

// Loads `image` by `load`: with variants where there are some and the driver takes them, else as it is.
template <class Handle, class Load>
CUresult load_image(Handle* out, const void* image, Load load) {
  if (image == nullptr || device::Gate::get() == nullptr) return load(image);
  const uint64_t hash = fingerprint(image);
  CUresult result = CUDA_ERROR_INVALID_PTX;
  if (is_ptx(static_cast<const char*>(image))) {
    const std::string with_variants = transformed(static_cast<const char*>(image), hash);
    if (!with_variants.empty()) result = load(with_variants.c_str());
  }
  if (result != CUDA_SUCCESS) result = load(image);
  if (result == CUDA_SUCCESS && out != nullptr) note_image(*out, hash);
  if (device::tracing()) trace_image(image, hash);
  return result;
}

}  // namespace
}  // namespace shoal::cuda

using namespace shoal::cuda;

CUresult cuModuleLoad(CUmodule* out, const char* path) {
  const auto from_file = [=] { return forward(real.cuModuleLoad, out, path); };
  std::ifstream file;
  if (path != nullptr && shoal::device::Gate::get() != nullptr) file.open(path, std::ios::binary);
  if (!file.is_open()) return from_file();
  std::string image{std::istreambuf_iterator<char>(file), {}};
  image.append(kFingerprint, '\0');
  return load_image(out, image.data(), [&](const void* what) {
    return what == image.data() ? from_file() : forward(real.cuModuleLoadData, out, what);
  });
}
CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  return load_image(out, image, [=](const void* what) { return forward(real.cuModuleLoadData, out, what); });
}
CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned count, int* options, void** values) {
  return load_image(out, image, [=](const void* what) {
    if (what == image) return forward(real.cuModuleLoadDataEx, out, what, count, options, values);
    return with_options(values, count,
                        [=](void** own) { return forward(real.cuModuleLoadDataEx, out, what, count, options, own); });
  });
}
CUresult cuLibraryLoadData(CUlibrary* out, const void* code, int* jit, void** jit_values, unsigned jit_count, int* options,
                           void** values, unsigned count) {
  return load_image(out, code, [=](const void* what) {
    const auto load = [=](void** own) {
      return forward(real.cuLibraryLoadData, out, what, jit, own, jit_count, options, values, count);
    };
    return what == code ? load(jit_values) : with_options(jit_values, jit_count, load);
  });
}
CUresult cuModuleUnload(CUmodule module) {
  forget_image(module);
  return forward(real.cuModuleUnload, module);
}
CUresult cuLibraryUnload(CUlibrary library) {
  forget_image(library);
  return forward(real.cuLibraryUnload, library);
}
CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  const CUresult result = forward(real.cuModuleGetFunction, out, module, name);
  if (result == CUDA_SUCCESS) note_function(*out, module);
  return result;
}
CUresult cuModuleEnumerateFunctions(CUfunction* out, unsigned count, CUmodule module) {
  const CUresult result = forward(real.cuModuleEnumerateFunctions, out, count, module);
  for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++) note_function(out[i], module);
  return result;
}
CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  const CUresult result = forward(real.cuKernelGetFunction, out, kernel);
  if (result == CUDA_SUCCESS) note_function_of(*out, kernel);
  return result;
}
CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  const CUresult result = forward(real.cuLibraryGetKernel, out, library, name);
  if (result == CUDA_SUCCESS) note_kernel(*out, library);
  return result;
}
CUresult cuLibraryEnumerateKernels(CUkernel* out, unsigned count, CUlibrary library) {
  const CUresult result = forward(real.cuLibraryEnumerateKernels, out, count, library);
  for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++) note_kernel(out[i], library);
  return result;
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  const CUresult result = forward(real.cuFuncSetAttribute, function, attribute, value);
  forget_kernel(function);
  return result;
}
CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
  const CUresult result = forward(real.cuKernelSetAttribute, attribute, value, kernel, device);
  forget_kernel(reinterpret_cast<CUfunction>(kernel));
  return result;
}
