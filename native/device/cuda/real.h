// The driver behind the shim: its functions, found once when the shim is loaded. A function that it does not have is null.
#pragma once

#include "driver.h"

namespace shoal::cuda {

struct Real {
#define HOOK(symbol, base, version, flavour) decltype(&::symbol) symbol;
#define ALSO(symbol, base, version, flavour)
#define CALL(symbol) decltype(&::symbol) symbol;
#include "calls.def"
#include "hooks.def"
#undef HOOK
#undef ALSO
#undef CALL
};
extern Real real;

// What is answered for a function that the driver lacks, or when there is no driver: the program linked it, or asked for it by
// dlsym, and got the shim's.
CUresult absent();

template <class Function, class... Arguments>
CUresult forward(Function function, Arguments... arguments) {
  return function != nullptr ? function(arguments...) : absent();
}

// The driver's own function of this name; null when it has none.
void* real_symbol(const char* name);

}  // namespace shoal::cuda
