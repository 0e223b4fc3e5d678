// Preloaded into a program that shares a device: one that opens the driver by a path gets the shim, as one that opens it by its
// name gets it from the library path. Once the driver itself is in a process, the loader answers every later "libcuda.so.1" with
// it, and all of the process is outside of the gate.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {

constexpr const char* kDriver = "libcuda.so";
char shim[4096];  // beside this library, in the folder "cuda"

bool names_driver(const char* path) {
  const char* slash = strrchr(path, '/');
  if (slash == nullptr || strncmp(slash + 1, kDriver, strlen(kDriver)) != 0) return false;
  const char after = slash[1 + strlen(kDriver)];
  return after == '\0' || after == '.';
}

}  // namespace

extern "C" {

__attribute__((visibility("hidden"))) void* shoal_real_dlopen = nullptr;

__attribute__((visibility("hidden"), constructor)) void shoal_preloaded() {
  Dl_info info;
  if (shoal_real_dlopen != nullptr) return;
  shoal_real_dlopen = dlsym(RTLD_NEXT, "dlopen");
  if (dladdr(reinterpret_cast<void*>(&shoal_preloaded), &info) == 0) return;
  const char* slash = strrchr(info.dli_fname, '/');
  const int folder = slash != nullptr ? static_cast<int>(slash - info.dli_fname) : 0;
  snprintf(shim, sizeof shim, "%.*s/cuda/libcuda.so.1", folder, info.dli_fname);
}

// What is opened in place of `path` by the code at `caller`. The shim opens the driver, and the driver may open itself.
__attribute__((visibility("hidden"), used)) const char* shoal_opened(const char* path, void* caller) {
  Dl_info info;
  shoal_preloaded();  // another library's constructor may open something before this one's has run
  if (path == nullptr || getenv("SHOAL_DEVICE_PAGE") == nullptr || !names_driver(path)) return path;
  return dladdr(caller, &info) != 0 && names_driver(info.dli_fname) ? path : shim;
}

}  // extern "C"

// `dlopen` looks along the library path of its caller, which it knows by the return address: so this one jumps.
#if defined(__x86_64__)
__asm__(
    ".pushsection .text\n.globl dlopen\n.type dlopen,%function\ndlopen:\n"
    "mov (%rsp), %rax\n push %rsi\n mov %rax, %rsi\n call shoal_opened\n pop %rsi\n mov %rax, %rdi\n jmp *shoal_real_dlopen(%rip)\n"
    ".size dlopen, .-dlopen\n.popsection\n");
#elif defined(__aarch64__)
__asm__(
    ".pushsection .text\n.globl dlopen\n.type dlopen,%function\ndlopen:\n"
    "stp x29, x30, [sp, #-32]!\n str x1, [sp, #16]\n mov x1, x30\n bl shoal_opened\n ldr x1, [sp, #16]\n ldp x29, x30, [sp], #32\n"
    "adrp x16, shoal_real_dlopen\n ldr x16, [x16, :lo12:shoal_real_dlopen]\n br x16\n"
    ".size dlopen, .-dlopen\n.popsection\n");
#endif
