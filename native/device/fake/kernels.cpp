// What the kernels of the fake driver compute, and the reading of their names and parameters from PTX.
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <regex>

#include "fake.h"

namespace fake {
namespace {

struct Block {
  Dim grid, size, id;
  uint64_t linear() const { return id.x + uint64_t{grid.x} * (id.y + uint64_t{grid.y} * id.z); }
  uint64_t first_thread() const { return linear() * size.count(); }
};

struct Arguments {
  const Launch& launch;
  template <class T>
  T get(size_t index) const {
    T value{};
    if (index < launch.kernel->params.size()) {
      const Param& at = launch.kernel->params[index];
      memcpy(&value, launch.params.data() + at.offset, sizeof(T) < at.size ? sizeof(T) : at.size);
    }
    return value;
  }
  template <class T>
  T* pointer(size_t index) const {
    return reinterpret_cast<T*>(get<uint64_t>(index));
  }
};

// axpy(y, x, a, n): y += a * x. Running a block twice, or leaving one out, changes the result.
void axpy(const Arguments& args, const Block& block) {
  float* y = args.pointer<float>(0);
  const float* x = args.pointer<const float>(1);
  const float a = args.get<float>(2);
  const uint64_t n = args.get<uint32_t>(3), first = block.first_thread();
  for (uint64_t i = first; i < n && i < first + block.size.count(); i++) y[i] += a * x[i];
}

// blocks(out): adds 1 + the block's coordinates at the block's place; a block that sees another grid is told by it.
void blocks(const Arguments& args, const Block& block) {
  uint64_t* out = args.pointer<uint64_t>(0);
  out[block.linear()] += 1 + block.id.x + 1000ull * block.id.y + 1000000ull * block.id.z + 1000000000ull * block.grid.count();
}

// wait(flag): spins until the host sets the flag.
void wait(const Arguments& args, const Block&) {
  const auto* flag = args.pointer<std::atomic<uint32_t>>(0);
  while (flag->load() == 0) usleep(50);
}

// set(flag): what a kernel that waits on another device waits for.
void set(const Arguments& args, const Block&) { args.pointer<std::atomic<uint32_t>>(0)->store(1); }

void nothing(const Arguments&, const Block&) {}

using Function = void (*)(const Arguments&, const Block&);

Function function_named(const std::string& name) {
  if (name == "axpy") return axpy;
  if (name == "blocks") return blocks;
  if (name == "wait") return wait;
  if (name == "set") return set;
  return nothing;
}

void rest(unsigned microseconds) {
  if (microseconds == 0) return;
  const timespec time{microseconds / 1000000, long{microseconds % 1000000} * 1000};
  nanosleep(&time, nullptr);
}

size_t size_of(const std::string& type) {
  return strtoul(type.c_str() + type.find_first_of("0123456789"), nullptr, 10) / 8;
}

std::vector<Param> read_params(const std::string& text, size_t* total) {
  static const std::regex one(R"(\.param\s+(?:\.align\s+(\d+)\s+)?(?:\.ptr\s+|\.global\s+)?\.([a-z]+\d+)\s*(?:\.ptr[^,\]\[]*\s)?[\w$%]+(?:\[(\d+)\])?)");
  std::vector<Param> params;
  size_t end = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), one), last; at != last; ++at) {
    const size_t element = size_of((*at)[2]);
    const size_t align = (*at)[1].matched ? std::stoul((*at)[1]) : element;
    const size_t size = (*at)[3].matched ? element * std::stoul((*at)[3]) : element;
    end = (end + align - 1) / align * align;
    params.push_back({end, size});
    end += size;
  }
  *total = end;
  return params;
}

class Device {
 public:
  explicit Device(int number) {
    if (const char* path = getenv("SHOAL_FAKE_DEVICE")) {
      const std::string name = path + (number == 0 ? "" : "." + std::to_string(number));
      file_ = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    if (const char* path = getenv("SHOAL_FAKE_LOG")) log_ = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }
  void lock() {
    within_.lock();
    while (file_ >= 0 && flock(file_, LOCK_EX) != 0) {
    }
  }
  void unlock() {
    if (file_ >= 0) flock(file_, LOCK_UN);
    within_.unlock();
    if (file_ >= 0) usleep(20);  // who waits for the device gets it before this process asks again
  }
  void note(const Kernel& kernel, uint64_t count, uint32_t base) const {
    if (log_ < 0) return;
    char line[256];
    const int size = snprintf(line, sizeof line, "%d %s %llu %u\n", getpid(), kernel.name.c_str(),
                              static_cast<unsigned long long>(count), base);
    if (write(log_, line, static_cast<size_t>(size)) != size) abort();
  }

 private:
  std::mutex within_;
  int file_ = -1, log_ = -1;
};

Device& device(int number) {
  static std::mutex lock;
  static std::map<int, Device*> all;
  const std::lock_guard<std::mutex> held(lock);
  Device*& one = all[number];
  if (one == nullptr) one = new Device(number);
  return *one;
}

std::vector<void*>& unloaded() {
  static auto* all = new std::vector<void*>;
  return *all;
}

}  // namespace

void* Kernel::operator new(size_t size) {
  if (unloaded().empty()) return ::operator new(size);
  void* at = unloaded().back();
  unloaded().pop_back();
  return at;
}
void Kernel::operator delete(void* at) { unloaded().push_back(at); }

std::unique_ptr<Module> parse(const std::string& ptx) {
  static const std::regex entry(R"(\.entry\s+([\w$]+)\s*(\(([^)]*)\))?)");
  static const std::regex parts(R"((.*?)(?:_us(\d+))?(?:__shoal_(slice|ticket))?)");
  auto module = std::make_unique<Module>();
  for (std::sregex_iterator at(ptx.begin(), ptx.end(), entry), last; at != last; ++at) {
    auto kernel = std::make_unique<Kernel>();
    kernel->name = (*at)[1];
    kernel->module = module.get();
    kernel->params = read_params((*at)[3], &kernel->params_size);
    std::smatch found;
    std::regex_match(kernel->name, found, parts);
    kernel->function = found[1];
    kernel->block_us = found[2].matched ? static_cast<unsigned>(std::stoul(found[2])) : 0;
    kernel->slice = found[3] == "slice";
    kernel->ticket = found[3] == "ticket";
    kernel->attributes = {{0, 1024}, {kAttrSharedBytes, 0}, {kAttrRegisters, 16}, {kAttrBinaryVersion, 90}};
    const std::string name = kernel->name;
    module->kernels[name] = std::move(kernel);
  }
  return module->kernels.empty() ? nullptr : std::move(module);
}

void run_blocks(const Launch& launch) {
  const Kernel& kernel = *launch.kernel;
  const Function body = function_named(kernel.function);
  const Arguments args{launch};
  // Of the transformation: the original grid, the first block, and the control words of `ticket`.
  struct {
    uint32_t grid[3], base;
    uint64_t control, unused;
  } extra{};
  const bool transformed = (kernel.slice || kernel.ticket) && !kernel.params.empty();
  if (transformed) memcpy(&extra, launch.params.data() + kernel.params.back().offset, sizeof extra);
  const Dim grid = transformed ? Dim{extra.grid[0], extra.grid[1], extra.grid[2]} : launch.grid;
  device(launch.device).note(kernel, launch.grid.count(), extra.base);
  auto* control = reinterpret_cast<std::atomic<uint32_t>*>(extra.control);
  for (uint64_t index = 0; index < launch.grid.count(); index++) {
    uint64_t linear = index + extra.base;
    if (kernel.ticket) {
      if (control[0].load() != 0) continue;
      linear = control[1].fetch_add(1);
    }
    if (linear >= grid.count()) continue;
    const auto x = static_cast<unsigned>(linear % grid.x), y = static_cast<unsigned>(linear / grid.x % grid.y),
               z = static_cast<unsigned>(linear / grid.x / grid.y);
    body(args, {grid, launch.block, {x, y, z}});
    if (kernel.ticket) rest(kernel.block_us);
  }
  if (!kernel.ticket) rest(static_cast<unsigned>(kernel.block_us * launch.grid.count()));
}

void execute(const Launch& launch) {
  const std::lock_guard<Device> held(device(launch.device));
  run_blocks(launch);
}

void execute(int number, const std::vector<std::function<void()>>& parts) {
  const std::lock_guard<Device> held(device(number));
  for (const auto& part : parts) part();
}

void fill(const CUDA_MEMSET_NODE_PARAMS& what) {
  for (size_t row = 0; row < what.height; row++) {
    char* at = reinterpret_cast<char*>(what.dst + row * what.pitch);
    for (size_t i = 0; i < what.width; i++) memcpy(at + i * what.elementSize, &what.value, what.elementSize);
  }
}

void copy(const CUDA_MEMCPY3D& what) {
  const auto source = what.srcMemoryType == 1 ? reinterpret_cast<uintptr_t>(what.srcHost) : uintptr_t{what.srcDevice};
  const auto target = what.dstMemoryType == 1 ? reinterpret_cast<uintptr_t>(what.dstHost) : uintptr_t{what.dstDevice};
  const size_t from = what.srcPitch ? what.srcPitch : what.WidthInBytes, to = what.dstPitch ? what.dstPitch : what.WidthInBytes;
  for (size_t z = 0; z < what.Depth; z++) {
    for (size_t y = 0; y < what.Height; y++) {
      const size_t s = (what.srcZ + z) * from * what.srcHeight + (what.srcY + y) * from + what.srcXInBytes;
      const size_t t = (what.dstZ + z) * to * what.dstHeight + (what.dstY + y) * to + what.dstXInBytes;
      memmove(reinterpret_cast<void*>(target + t), reinterpret_cast<const void*>(source + s), what.WidthInBytes);
    }
  }
}

}  // namespace fake
