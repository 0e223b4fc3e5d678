#include "profile.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <unistd.h>

#include "file.h"

namespace shoal::device {

namespace {

constexpr uint32_t kProfileMagic = 0x53484450;  // "SHDP"
constexpr uint32_t kProfileVersion = 1;
constexpr uint32_t kWays = 8;  // entries of a bucket
constexpr uint32_t kBuckets = 512;
constexpr uint32_t kSeen = (1u << 24) - 1;  // above it are the counts of first samples
constexpr uint32_t kWritingS = 2;  // a writer that needs longer was killed
constexpr auto relaxed = std::memory_order_relaxed;

enum Word : uint32_t {
  kHash, kGridXY, kGridZ, kBlockXY, kBlockZ,  // the key
  kWhole, kWholeDev, kSlice, kSliceDev, kTicket, kTicketWhole, kBlocksSeen,
  kWords,
};

uint32_t seconds() {
  timespec t;
  clock_gettime(CLOCK_REALTIME_COARSE, &t);
  return static_cast<uint32_t>(t.tv_sec);
}

// An even number, or an odd one in the low half with the second in which the writer began in the high half.
struct Entry {
  std::atomic<uint64_t> lock;
  std::atomic<uint64_t> stamp;  // of the last note, by the file's clock
  std::atomic<uint64_t> word[kWords];
};

using Words = uint64_t[kWords];

void put_key(const Key& key, Words out) {
  out[kHash] = key.hash;
  out[kGridXY] = static_cast<uint64_t>(key.grid[1]) << 32 | key.grid[0];
  out[kGridZ] = key.grid[2];
  out[kBlockXY] = static_cast<uint64_t>(key.block[1]) << 32 | key.block[0];
  out[kBlockZ] = key.block[2];
}

bool same_key(const Words a, const Words b) { return std::memcmp(a, b, kWhole * sizeof(uint64_t)) == 0; }

// False when a writer was there.
bool read_entry(const Entry& entry, Words out) {
  const uint64_t before = entry.lock.load(std::memory_order_acquire);
  if (before & 1) return false;
  for (uint32_t i = 0; i < kWords; ++i) out[i] = entry.word[i].load(relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  return entry.lock.load(relaxed) == before;
}

ShoalProfile read_profile(const Words words) {
  ShoalProfile known{};
  known.whole_ns = words[kWhole];
  known.whole_dev_ns = words[kWholeDev];
  known.slice_ns = words[kSlice];
  known.slice_dev_ns = words[kSliceDev];
  known.ticket_ns = words[kTicket];
  known.ticket_whole_ns = words[kTicketWhole];
  known.slice_blocks = static_cast<uint32_t>(words[kBlocksSeen] >> 32);
  known.seen = static_cast<uint32_t>(words[kBlocksSeen]) & kSeen;
  known.firsts = static_cast<uint32_t>(words[kBlocksSeen]) >> 24;
  return known;
}

void put_profile(const ShoalProfile& known, Words out) {
  out[kWhole] = known.whole_ns;
  out[kWholeDev] = known.whole_dev_ns;
  out[kSlice] = known.slice_ns;
  out[kSliceDev] = known.slice_dev_ns;
  out[kTicket] = known.ticket_ns;
  out[kTicketWhole] = known.ticket_whole_ns;
  out[kBlocksSeen] = static_cast<uint64_t>(known.slice_blocks) << 32 | known.firsts << 24 | (known.seen & kSeen);
}

}  // namespace

struct Profiles::File {
  std::atomic<uint32_t> magic;
  uint32_t version;
  std::atomic<uint64_t> clock;  // counts notes
  alignas(64) Entry entry[kBuckets][kWays];
};

Profiles* Profiles::open(const char* path) {
  if (access(path, F_OK) != 0) {
    const std::unique_ptr<File> file(new File());
    file->magic = kProfileMagic;
    file->version = kProfileVersion;
    if (!make_file(path, file.get(), sizeof(File))) return nullptr;
  }
  auto* file = static_cast<File*>(map_file(path, sizeof(File), kProfileMagic, kProfileVersion));
  return file != nullptr ? new Profiles(file) : nullptr;
}

ShoalProfile Profiles::look(const Key& key) {
  Words wanted{}, found{};
  put_key(key, wanted);
  for (const Entry& entry : file_->entry[hash_bytes(wanted, kWhole * sizeof(uint64_t), 0) % kBuckets]) {
    if (entry.word[kHash].load(relaxed) != key.hash || !read_entry(entry, found) || !same_key(found, wanted)) continue;
    return read_profile(found);
  }
  return {};
}

void Profiles::note(const Key& key, ShoalWay way, uint32_t blocks, uint64_t took) {
  Words wanted{}, found{};
  put_key(key, wanted);
  // Its own entry; else one never used; else the one whose last note is the oldest.
  Entry* place = nullptr;
  bool known = false;
  uint64_t oldest = UINT64_MAX;
  for (Entry& entry : file_->entry[hash_bytes(wanted, kWhole * sizeof(uint64_t), 0) % kBuckets]) {
    const uint64_t stamp = entry.stamp.load(relaxed);
    if (stamp != 0 && read_entry(entry, found) && same_key(found, wanted)) {
      place = &entry;
      known = true;
      break;
    }
    if (stamp < oldest) oldest = stamp, place = &entry;
  }

  uint64_t before = place->lock.load(std::memory_order_acquire);
  const auto sequence = static_cast<uint32_t>(before);
  const uint32_t now = seconds();
  const bool broken = sequence & 1;
  if (broken && now - static_cast<uint32_t>(before >> 32) < kWritingS) return;
  const uint32_t writing = broken ? sequence + 2 : sequence + 1;
  const uint64_t claim = static_cast<uint64_t>(now) << 32 | writing;
  if (!place->lock.compare_exchange_strong(before, claim, std::memory_order_acquire)) return;
  std::atomic_thread_fence(std::memory_order_release);

  Words words{};
  if (known && !broken) {
    for (uint32_t i = 0; i < kWords; ++i) words[i] = place->word[i].load(relaxed);
    known = same_key(words, wanted);  // another writer may have given it away meanwhile
  }
  if (!known || broken) {
    std::memset(words, 0, sizeof words);
    put_key(key, words);
  }
  ShoalProfile profile = read_profile(words);
  shoal_learn(&profile, way, blocks, took);
  put_profile(profile, words);
  for (uint32_t i = 0; i < kWords; ++i) place->word[i].store(words[i], relaxed);
  place->stamp.store(file_->clock.fetch_add(1, relaxed) + 1, relaxed);
  uint64_t mine = claim;  // one that was taken for dead leaves the entry to the one that took it
  place->lock.compare_exchange_strong(mine, static_cast<uint64_t>(writing + 1), std::memory_order_release, relaxed);
}

// FNV-1a over words of eight bytes, with the finaliser of MurmurHash3.
uint64_t hash_bytes(const void* data, uint64_t size, uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t hash = 0xcbf29ce484222325u ^ seed ^ size;
  for (; size >= 8; size -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  for (; size > 0; --size, ++at) hash = (hash ^ *at) * 0x100000001b3u;
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccdu;
  hash ^= hash >> 33;
  hash *= 0xc4ceb9fe1a85ec53u;
  return hash ^ hash >> 33;
}

}  // namespace shoal::device
