// Word and character n-grams of scikit-learn's vectorisers, fused with a linear model: no sparse vector is made. A hit
// in the hash table is compared with the term's own characters, so results are exact. Short n-grams of few different
// characters are a number each, one for one, and need no comparison.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "shoal_cascade.h"

namespace {

constexpr uint64_t kSeed = 0x243F6A8885A308D3ull;
constexpr uint32_t kMore = 0x80000000u;  // longer terms begin with this one
constexpr int32_t kNoTerm = -1, kStopWord = -2;
constexpr size_t kBlock = 16;  // places whose n-grams are looked up together: some 80 misses of a cache under way
constexpr int kLogs = 256;  // counts whose logarithm is in a table

inline uint64_t mix(uint64_t hash, uint32_t character) {
  hash ^= character;
  hash *= 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

struct Entry {
  uint64_t hash = 0;  // 0: free
  int32_t column = kNoTerm;
  uint32_t at = 0;
  uint32_t size = 0;  // characters, and kMore
};

// Open addressing, at most half full.
class Terms {
 public:
  Terms() : entries_(16), mask_(15) {}

  void add(const uint32_t *term, size_t size, int32_t column, bool more) {
    uint64_t hash = kSeed;
    for (size_t i = 0; i < size; ++i) hash = mix(hash, term[i]);
    hash += hash == 0;
    uint64_t slot = hash & mask_;
    for (; entries_[slot].hash; slot = (slot + 1) & mask_) {
      Entry &entry = entries_[slot];
      if (!same(entry, hash, term, size)) continue;
      if (column != kNoTerm) entry.column = column;
      if (more) entry.size |= kMore;
      return;
    }
    if (++used_ * 2 > entries_.size()) {
      grow();
      for (slot = hash & mask_; entries_[slot].hash;) slot = (slot + 1) & mask_;
    }
    entries_[slot] = {hash, column, static_cast<uint32_t>(characters_.size()),
                      static_cast<uint32_t>(size) | (more ? kMore : 0u)};
    characters_.insert(characters_.end(), term, term + size);
  }

  const Entry *find(uint64_t hash, const uint32_t *term, size_t size) const {
    hash += hash == 0;
    for (uint64_t slot = hash & mask_; entries_[slot].hash; slot = (slot + 1) & mask_)
      if (same(entries_[slot], hash, term, size)) return &entries_[slot];
    return nullptr;
  }

 private:
  bool same(const Entry &entry, uint64_t hash, const uint32_t *term, size_t size) const {
    return entry.hash == hash && (entry.size & ~kMore) == size &&
           !std::memcmp(&characters_[entry.at], term, size * sizeof(uint32_t));
  }

  void grow() {
    std::vector<Entry> before(entries_.size() * 2);
    before.swap(entries_);
    mask_ = entries_.size() - 1;
    for (const Entry &entry : before) {
      if (!entry.hash) continue;
      uint64_t slot = entry.hash & mask_;
      while (entries_[slot].hash) slot = (slot + 1) & mask_;
      entries_[slot] = entry;
    }
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> characters_{0};  // never empty, so that the address of an empty term is valid
  uint64_t mask_;
  size_t used_ = 0;
};

// Terms of few characters, each a number: bits for each character, which counts from 1 in the vocabulary's alphabet.
class PackedTerms {
 public:
  struct Entry {
    uint64_t key = 0;  // 0: free
    int32_t column = kNoTerm;
    uint32_t more = 0;  // longer terms begin with this one
  };

  // False: the terms of up to `longest` characters do not fit.
  bool build(const ShoalStrings &terms, size_t lowest, size_t longest) {
    const uint32_t *end = terms.characters + terms.offsets[terms.count];
    uint32_t greatest = 0, letters = 0;
    for (const uint32_t *c = terms.characters; c != end; ++c) greatest = std::max(greatest, *c);
    codes_.assign(size_t{greatest} + 1, 0);
    for (const uint32_t *c = terms.characters; c != end && letters < UINT16_MAX; ++c)
      if (!codes_[*c]) codes_[*c] = static_cast<uint16_t>(++letters);
    while (letters >> bits_) ++bits_;
    if (letters == UINT16_MAX || bits_ * longest > 64) return false;
    size_t places = 0;
    for (int64_t i = 0; i < terms.count; ++i) places += prefixes(terms, i, lowest, longest);
    for (shift_ = 60; size_t{1} << (64 - shift_) < places * 2;) --shift_;
    entries_.resize(size_t{1} << (64 - shift_));
    for (int64_t i = 0; i < terms.count; ++i) {
      const uint32_t *term = terms.characters + terms.offsets[i];
      const auto size = static_cast<size_t>(terms.offsets[i + 1] - terms.offsets[i]);
      if (size == 0 || size > longest) continue;  // no n-gram is so long
      uint64_t key = 0;
      for (size_t k = 0; k < size; ++k) {
        key = extend(key, code(term[k]));
        if (k + 1 == size) at(key).column = static_cast<int32_t>(i);
        else if (k + 1 >= lowest) at(key).more = 1;
      }
    }
    return true;
  }

  // 0: the character is in no term.
  uint64_t code(uint32_t character) const { return character < codes_.size() ? codes_[character] : 0; }
  uint64_t extend(uint64_t key, uint64_t code) const { return key << bits_ | code; }
  void fetch(uint64_t key) const { __builtin_prefetch(&entries_[slot(key)]); }

  const Entry *find(uint64_t key) const {
    for (size_t i = slot(key); entries_[i].key; i = (i + 1) & (entries_.size() - 1))
      if (entries_[i].key == key) return &entries_[i];
    return nullptr;
  }

 private:
  static size_t prefixes(const ShoalStrings &terms, int64_t i, size_t lowest, size_t longest) {
    const auto size = static_cast<size_t>(terms.offsets[i + 1] - terms.offsets[i]);
    return size > longest ? 0 : 1 + (size > lowest ? size - lowest : 0);
  }

  size_t slot(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ull) >> shift_; }

  Entry &at(uint64_t key) {
    size_t i = slot(key);
    while (entries_[i].key && entries_[i].key != key) i = (i + 1) & (entries_.size() - 1);
    entries_[i].key = key;
    return entries_[i];
  }

  std::vector<Entry> entries_;
  std::vector<uint16_t> codes_;  // by character
  size_t bits_ = 1;
  int shift_ = 60;
};

// What one text has so far. Kept between texts, so that nothing is allocated for each.
struct Scratch {
  std::vector<int32_t> count;
  std::vector<uint8_t> seen;  // with signed counts a column may be back at zero
  std::vector<int32_t> touched;
  std::vector<uint32_t> buffer;
  std::vector<uint64_t> codes, keys;  // of packed terms: of each character, and of the n-grams of a block
  std::vector<std::pair<size_t, size_t>> tokens;
  int64_t probes = 0;
};

uint32_t murmur3(const std::vector<uint8_t> &bytes) {
  constexpr uint32_t c1 = 0xcc9e2d51, c2 = 0x1b873593;
  auto rotate = [](uint32_t x, int r) { return (x << r) | (x >> (32 - r)); };
  uint32_t hash = 0;
  const size_t blocks = bytes.size() / 4;
  for (size_t i = 0; i < blocks; ++i) {
    uint32_t k;
    std::memcpy(&k, &bytes[i * 4], 4);
    hash = rotate(hash ^ (rotate(k * c1, 15) * c2), 13) * 5 + 0xe6546b64;
  }
  uint32_t rest = 0;
  for (size_t i = bytes.size(); i-- > blocks * 4;) rest = (rest << 8) | bytes[i];
  if (bytes.size() & 3) hash ^= rotate(rest * c1, 15) * c2;
  hash ^= static_cast<uint32_t>(bytes.size());
  hash = (hash ^ (hash >> 16)) * 0x85ebca6b;
  hash = (hash ^ (hash >> 13)) * 0xc2b2ae35;
  return hash ^ (hash >> 16);
}

bool append_utf8(std::vector<uint8_t> &bytes, uint32_t c) {
  auto put = [&](uint32_t value) { bytes.push_back(static_cast<uint8_t>(value)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6)), put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    if (c >= 0xD800 && c < 0xE000) return false;
    put(0xE0 | (c >> 12)), put(0x80 | ((c >> 6) & 63)), put(0x80 | (c & 63));
  } else {
    put(0xF0 | (c >> 18)), put(0x80 | ((c >> 12) & 63)), put(0x80 | ((c >> 6) & 63)), put(0x80 | (c & 63));
  }
  return true;
}

class Text {
 public:
  explicit Text(const ShoalText &s) : s_(s) {
    packed_ = s.analyzer != kWord && !s.hashed && s.vocabulary.count &&
              pack_.build(s.vocabulary, static_cast<size_t>(s.lowest), static_cast<size_t>(s.highest));
    for (int64_t i = 0; i < s.vocabulary.count && !packed_; ++i) add_term(s.vocabulary, i);
    for (int64_t i = 0; i < s.stop_words.count; ++i)
      stops_.add(s.stop_words.characters + s.stop_words.offsets[i],
                 static_cast<size_t>(s.stop_words.offsets[i + 1] - s.stop_words.offsets[i]), kStopWord, false);
    stride_ = static_cast<size_t>(s.outputs) + 1;
    const size_t width = static_cast<size_t>(s.width);
    if (s.outputs) {  // the square of the idf and the weights times the idf lie together: one cache line a hit
      rows_.resize(width * stride_);
      for (size_t i = 0; i < width; ++i) {
        const double idf = s.idf ? s.idf[i] : 1.0;
        rows_[i * stride_] = s.norm == kL1 ? std::abs(idf) : idf * idf;
        for (size_t k = 1; k < stride_; ++k) rows_[i * stride_ + k] = idf * s.weights[i * (stride_ - 1) + k - 1];
      }
    }
    idf_.assign(s.idf ? s.idf : nullptr, s.idf ? s.idf + width : nullptr);
    for (int i = 1; i < kLogs; ++i) logs_[i] = 1.0 + std::log(static_cast<double>(i));
    s_.idf = s_.weights = nullptr;  // the caller's memory, copied above
    s_.vocabulary = s_.stop_words = {};
  }

  // Counts the terms of one text. False: a hashed term has a lone surrogate.
  bool count(Scratch &scratch, const uint32_t *text, size_t size) const {
    switch (s_.analyzer) {
      case kWord: return count_words(scratch, text, size);
      case kChar: return count_characters(scratch, text, size);
      default: return count_within_words(scratch, text, size);
    }
  }

  // Adds what the counted terms come to, and forgets them. `out` has as many values as there are outputs.
  void finish(Scratch &scratch, double *out) const {
    double norm = 0;
    const size_t outputs = stride_ - 1;
    std::fill(out, out + outputs, 0.0);
    for (const int32_t column : scratch.touched) {
      const double tf = frequency(scratch, column);
      const double *row = &rows_[static_cast<size_t>(column) * stride_];
      norm += s_.norm == kL1 ? std::abs(tf) * row[0] : tf * tf * row[0];
      for (size_t k = 0; k < outputs; ++k) out[k] += tf * row[k + 1];
    }
    scratch.touched.clear();
    if (s_.norm == kL2) norm = std::sqrt(norm);
    if (s_.norm != kNone && norm > 0)
      for (size_t k = 0; k < outputs; ++k) out[k] /= norm;
  }

  void finish_sparse(Scratch &scratch, std::vector<int32_t> &columns, std::vector<double> &values) const {
    std::sort(scratch.touched.begin(), scratch.touched.end());
    const size_t begin = values.size();
    double norm = 0;
    for (const int32_t column : scratch.touched) {
      double value = frequency(scratch, column);
      if (!idf_.empty()) value *= idf_[static_cast<size_t>(column)];
      norm += s_.norm == kL1 ? std::abs(value) : value * value;
      columns.push_back(column);
      values.push_back(value);
    }
    scratch.touched.clear();
    if (s_.norm == kL2) norm = std::sqrt(norm);
    if (s_.norm != kNone && norm > 0)
      for (size_t i = begin; i < values.size(); ++i) values[i] /= norm;
  }

  int64_t outputs() const { return s_.outputs; }

  std::unique_ptr<Scratch> borrow() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        auto scratch = std::move(free_.back());
        free_.pop_back();
        scratch->probes = 0;
        return scratch;
      }
    }
    auto scratch = std::make_unique<Scratch>();
    scratch->count.assign(static_cast<size_t>(s_.width), 0);
    if (s_.hashed) scratch->seen.assign(static_cast<size_t>(s_.width), 0);
    return scratch;
  }

  void give_back(std::unique_ptr<Scratch> scratch) {
    for (const int32_t column : scratch->touched) frequency(*scratch, column);
    scratch->touched.clear();
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  void add_term(const ShoalStrings &all, int64_t i) {
    const uint32_t *term = all.characters + all.offsets[i];
    const size_t size = static_cast<size_t>(all.offsets[i + 1] - all.offsets[i]);
    terms_.add(term, size, static_cast<int32_t>(i), false);
    if (s_.analyzer == kWord) {
      for (size_t k = 1; k < size; ++k)
        if (term[k] == ' ') terms_.add(term, k, kNoTerm, true);
    } else if (size <= static_cast<size_t>(s_.highest)) {
      for (size_t k = static_cast<size_t>(s_.lowest); k < size; ++k) terms_.add(term, k, kNoTerm, true);
    }
  }

  // The weighted frequency of a column that was counted; the count is zero again.
  double frequency(Scratch &scratch, int32_t column) const {
    const size_t at = static_cast<size_t>(column);
    const int32_t counted = scratch.count[at];
    scratch.count[at] = 0;
    if (s_.hashed) scratch.seen[at] = 0;
    if (s_.binary) return s_.sublinear ? logs_[1] : 1.0;
    if (!s_.sublinear) return counted;
    return counted < kLogs && counted > 0 ? logs_[counted] : 1.0 + std::log(static_cast<double>(counted));
  }

  void hit(Scratch &scratch, int32_t column) const {
    if (scratch.count[static_cast<size_t>(column)]++) return;
    scratch.touched.push_back(column);
    if (!rows_.empty()) __builtin_prefetch(&rows_[static_cast<size_t>(column) * stride_]);
  }

  bool hit_hash(Scratch &scratch, const uint32_t *term, size_t size) const {
    thread_local std::vector<uint8_t> bytes;
    bytes.clear();
    for (size_t i = 0; i < size; ++i)
      if (!append_utf8(bytes, term[i])) return false;
    const int32_t hash = static_cast<int32_t>(murmur3(bytes));
    const int64_t size_of = s_.width;
    const int64_t column = hash == INT32_MIN ? (INT32_MAX - (size_of - 1)) % size_of : std::abs(int64_t{hash}) % size_of;
    const size_t at = static_cast<size_t>(column);
    if (!scratch.seen[at]) scratch.seen[at] = 1, scratch.touched.push_back(static_cast<int32_t>(column));
    scratch.count[at] += !s_.alternate_sign || hash >= 0 ? 1 : -1;
    ++scratch.probes;
    return true;
  }

  bool count_words(Scratch &scratch, const uint32_t *text, size_t size) const {
    const uint8_t *kinds = s_.character_kinds;
    auto &buffer = scratch.buffer;
    auto &tokens = scratch.tokens;
    const bool joined = s_.highest > 1;
    buffer.clear(), tokens.clear();
    for (size_t i = 0; i < size;) {
      while (i < size && !(kinds[text[i]] & 1)) ++i;
      const size_t begin = i;
      uint64_t hash = kSeed;
      while (i < size && (kinds[text[i]] & 1)) hash = mix(hash, text[i++]);
      const size_t length = i - begin;
      if (length < static_cast<size_t>(s_.shortest_token) || length == 0) continue;
      if (stops_.find(hash, text + begin, length)) continue;
      if (joined) {
        if (!tokens.empty()) buffer.push_back(' ');
        tokens.emplace_back(buffer.size(), buffer.size() + length);
        buffer.insert(buffer.end(), text + begin, text + i);
      } else if (s_.hashed) {
        if (!hit_hash(scratch, text + begin, length)) return false;
      } else {
        ++scratch.probes;
        const Entry *entry = terms_.find(hash, text + begin, length);
        if (entry && entry->column >= 0) hit(scratch, entry->column);
      }
    }
    if (!joined) return true;
    const size_t lowest = static_cast<size_t>(s_.lowest), highest = static_cast<size_t>(s_.highest);
    for (size_t first = 0; first < tokens.size(); ++first) {
      const uint32_t *begin = buffer.data() + tokens[first].first;
      uint64_t hash = kSeed;
      size_t hashed = 0;
      for (size_t n = 1; n <= highest && first + n <= tokens.size(); ++n) {
        const size_t length = tokens[first + n - 1].second - tokens[first].first;
        if (s_.hashed) {
          if (n >= lowest && !hit_hash(scratch, begin, length)) return false;
          continue;
        }
        while (hashed < length) hash = mix(hash, begin[hashed++]);
        ++scratch.probes;
        const Entry *entry = terms_.find(hash, begin, length);
        if (!entry) break;
        if (entry->column >= 0 && n >= lowest) hit(scratch, entry->column);
        if (!(entry->size & kMore)) break;
      }
    }
    return true;
  }

  bool count_characters(Scratch &scratch, const uint32_t *text, size_t size) const {
    auto &buffer = scratch.buffer;
    buffer.clear();
    for (size_t i = 0; i < size;) {  // a run of two or more white spaces is one blank
      if (!(s_.character_kinds[text[i]] & 2)) {
        buffer.push_back(text[i++]);
        continue;
      }
      const size_t begin = i;
      while (i < size && (s_.character_kinds[text[i]] & 2)) ++i;
      buffer.push_back(i - begin > 1 ? ' ' : text[begin]);
    }
    return count_grams(scratch);
  }

  bool count_within_words(Scratch &scratch, const uint32_t *text, size_t size) const {
    auto &buffer = scratch.buffer;
    for (size_t i = 0; i < size;) {
      while (i < size && (s_.character_kinds[text[i]] & 2)) ++i;
      if (i == size) break;
      buffer.assign(1, ' ');
      while (i < size && !(s_.character_kinds[text[i]] & 2)) buffer.push_back(text[i++]);
      buffer.push_back(' ');
      if (buffer.size() < static_cast<size_t>(s_.lowest)) {  // a short word counts once, whole
        if (!count_one(scratch, buffer.data(), buffer.size())) return false;
      } else if (!count_grams(scratch)) {
        return false;
      }
    }
    return true;
  }

  bool count_one(Scratch &scratch, const uint32_t *term, size_t size) const {
    if (s_.hashed) return hit_hash(scratch, term, size);
    if (packed_) {
      scratch.buffer.assign(term, term + size);
      return count_packed(scratch, size, size);
    }
    uint64_t hash = kSeed;
    for (size_t i = 0; i < size; ++i) hash = mix(hash, term[i]);
    ++scratch.probes;
    const Entry *entry = terms_.find(hash, term, size);
    if (entry && entry->column >= 0) hit(scratch, entry->column);
    return true;
  }

  // The n-grams of the buffer as packed terms. The table is larger than the near caches, so the entries of a block of
  // places are fetched together before the first of them is read.
  bool count_packed(Scratch &scratch, size_t lowest, size_t highest) const {
    const size_t size = scratch.buffer.size(), span = highest - lowest + 1;
    auto &codes = scratch.codes;
    auto &keys = scratch.keys;
    codes.resize(size);
    keys.resize(kBlock * span);
    for (size_t i = 0; i < size; ++i) codes[i] = pack_.code(scratch.buffer[i]);
    for (size_t begin = 0; begin + lowest <= size; begin += kBlock) {
      const size_t end = std::min(begin + kBlock, size - lowest + 1);
      std::fill(keys.begin(), keys.end(), 0);
      for (size_t i = begin; i < end; ++i) {
        uint64_t key = 0;
        for (size_t n = 1; n <= highest && i + n <= size && codes[i + n - 1]; ++n) {
          key = pack_.extend(key, codes[i + n - 1]);
          if (n >= lowest) keys[(i - begin) * span + n - lowest] = key, pack_.fetch(key);
        }
      }
      for (size_t i = 0; i < end - begin; ++i)
        for (size_t k = i * span; k < (i + 1) * span && keys[k]; ++k) {
          ++scratch.probes;
          const PackedTerms::Entry *entry = pack_.find(keys[k]);
          if (!entry) break;
          if (entry->column >= 0) hit(scratch, entry->column);
          if (!entry->more) break;
        }
    }
    return true;
  }

  // All n-grams of the buffer. From each place on, lengths grow until no term begins so.
  bool count_grams(Scratch &scratch) const {
    const size_t lowest = static_cast<size_t>(s_.lowest), highest = static_cast<size_t>(s_.highest);
    if (packed_) return count_packed(scratch, lowest, highest);
    const uint32_t *buffer = scratch.buffer.data();
    const size_t size = scratch.buffer.size();
    for (size_t i = 0; i + lowest <= size; ++i) {
      uint64_t hash = kSeed;
      for (size_t k = 0; k + 1 < lowest; ++k) hash = mix(hash, buffer[i + k]);
      for (size_t n = lowest; n <= highest && i + n <= size; ++n) {
        if (s_.hashed) {
          if (!hit_hash(scratch, buffer + i, n)) return false;
          continue;
        }
        hash = mix(hash, buffer[i + n - 1]);
        ++scratch.probes;
        const Entry *entry = terms_.find(hash, buffer + i, n);
        if (!entry) break;
        if (entry->column >= 0) hit(scratch, entry->column);
        if (!(entry->size & kMore)) break;
      }
    }
    return true;
  }

  ShoalText s_;
  Terms terms_, stops_;
  PackedTerms pack_;
  bool packed_ = false;
  std::vector<double> rows_, idf_;
  size_t stride_ = 1;
  double logs_[kLogs] = {};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

struct Features {
  std::vector<int32_t> columns;
  std::vector<double> values;
};

}  // namespace

uint32_t shoal_cascade_abi() { return 1; }

void *shoal_text_new(const ShoalText *settings) { return new Text(*settings); }

void shoal_text_free(void *text) { delete static_cast<Text *>(text); }

int64_t shoal_text_project(void *handle, const uint32_t *characters, const int64_t *offsets, int64_t rows, double *out) {
  Text &text = *static_cast<Text *>(handle);
  auto scratch = text.borrow();
  int64_t found = 0;
  const int64_t outputs = text.outputs();
  for (int64_t i = 0; i < rows && found >= 0; ++i) {
    if (!text.count(*scratch, characters + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]))) found = -1;
    else text.finish(*scratch, out + i * outputs);
  }
  if (found >= 0) found = scratch->probes;
  text.give_back(std::move(scratch));
  return found;
}

void *shoal_text_features(void *handle, const uint32_t *characters, const int64_t *offsets, int64_t rows,
                          int64_t *row_ends) {
  Text &text = *static_cast<Text *>(handle);
  auto scratch = text.borrow();
  auto features = std::make_unique<Features>();
  row_ends[0] = 0;
  for (int64_t i = 0; i < rows && features; ++i) {
    if (text.count(*scratch, characters + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]))) {
      text.finish_sparse(*scratch, features->columns, features->values);
      row_ends[i + 1] = static_cast<int64_t>(features->values.size());
    } else {
      features.reset();
    }
  }
  text.give_back(std::move(scratch));
  return features.release();
}

void shoal_features_copy(const void *handle, int32_t *columns, double *values) {
  const auto &features = *static_cast<const Features *>(handle);
  std::copy(features.columns.begin(), features.columns.end(), columns);
  std::copy(features.values.begin(), features.values.end(), values);
}

void shoal_features_free(void *features) { delete static_cast<Features *>(features); }
