#include "file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace shoal::device {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) {
      const int error = errno;
      close(fd_);
      errno = error;
    }
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Who may cut the file short may crash all that map it.
bool is_trusted(const char* path, const struct stat& file) {
  if (file.st_mode & S_IWOTH) return false;
  if (file.st_uid == 0 || file.st_uid == geteuid()) return true;
  struct stat directory {};
  if (stat(directory_of(path).c_str(), &directory) != 0) return false;
  return file.st_uid == directory.st_uid && !(directory.st_mode & S_IWOTH);
}

}  // namespace

void* map_file(const char* path, size_t size, uint32_t magic, uint32_t version) {
  const Descriptor file(open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) return nullptr;
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return nullptr;
  uint32_t head[2];
  if (!S_ISREG(status.st_mode) || pread(file.get(), head, sizeof head, 0) != sizeof head || head[0] != magic) {
    errno = EINVAL;
    return nullptr;
  }
  if (head[1] != version) {
    errno = EPROTO;
    return nullptr;
  }
  if (static_cast<uint64_t>(status.st_size) != size) {
    errno = EINVAL;
    return nullptr;
  }
  if (!is_trusted(path, status)) {
    errno = EPERM;
    return nullptr;
  }
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

bool make_file(const char* path, const void* contents, size_t size) {
  static std::atomic<uint32_t> made{0};
  const std::string draft =
      std::string(path) + "." + std::to_string(getpid()) + "." + std::to_string(made.fetch_add(1)) + ".new";
  unlink(draft.c_str());  // of a process of that pid that was killed here
  const Descriptor file(open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0660));
  if (file.get() < 0) return false;
  bool good = fchmod(file.get(), 0660) == 0;
  const char* from = static_cast<const char*>(contents);
  for (size_t left = size; good && left > 0;) {
    const ssize_t wrote = write(file.get(), from, left);
    if (wrote < 0 && errno == EINTR) continue;
    good = wrote > 0;
    if (good) from += wrote, left -= static_cast<size_t>(wrote);
  }
  good = good && (link(draft.c_str(), path) == 0 || errno == EEXIST);
  const int error = errno;
  unlink(draft.c_str());
  errno = error;
  return good;
}

}  // namespace shoal::device
