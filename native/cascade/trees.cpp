// Tree ensembles without comparisons of doubles: each value becomes its rank among its feature's thresholds once, nodes
// are eight bytes, and eight walks go on side by side without a branch. Missing values need none either: a node reads one
// of up to four copies of a rank, which differ in where NaN (and zero, where it counts as missing) stands.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "shoal_cascade.h"

namespace {

constexpr uint16_t kAlwaysRight = 65535;  // the rank of a missing value that goes right
constexpr size_t kMostRanks = 65000;
constexpr int kSide = 8;     // walks side by side
constexpr int64_t kBlock = 64;  // rows whose ranks stay in the first cache
constexpr double kZero = 1e-35f;  // LightGBM's kZeroThreshold

struct Node {
  uint16_t feature, rank;  // right when the row's rank of `feature` is above `rank`
  uint32_t child;          // the left one; the right one is next. A leaf is its own child, and none is above its rank
};

struct Copy {  // of a feature's rank
  int32_t feature;
  bool missing_left, zero_missing;
};

struct Category {
  int32_t feature;
  int64_t begin;
  int32_t words;
  bool missing_left;
};

struct Tree {
  uint32_t root;
  int32_t depth, output;
  bool categories;
};

class Forest {
 public:
  // False: too many thresholds.
  bool build(const ShoalForest &f) {
    features_ = f.features, outputs_ = f.outputs, strict_ = f.strict, single_ = f.single, leaf_width_ = f.leaf_width;
    thresholds_.resize(static_cast<size_t>(features_));
    for (int64_t i = 0; i < f.nodes; ++i)
      if (f.kind[i] == kNumber) thresholds_[static_cast<size_t>(f.feature[i])].push_back(f.threshold[i]);
    for (auto &of : thresholds_) {
      std::sort(of.begin(), of.end());
      of.erase(std::unique(of.begin(), of.end()), of.end());
      if (of.size() > kMostRanks) return false;
    }
    int64_t words = 0;
    for (int64_t i = 0; i < f.nodes; ++i)
      if (f.kind[i] == kCategory) words = std::max(words, f.set_begin[i] + f.set_words[i]);
    if (words) sets_.assign(f.sets, f.sets + words);
    for (int64_t t = 0; t < f.trees; ++t) add_tree(f, t);
    return copies_.size() < 65000;
  }

  void add(const double *values, int64_t rows, double *out) const {
    if (rows == 1) {
      add_one(values, out);
      return;
    }
    const size_t width = copies_.size() + 1;
    thread_local std::vector<uint16_t> ranks;
    ranks.resize(width * kBlock);
    for (int64_t from = 0; from < rows; from += kBlock) {
      const int64_t size = std::min(kBlock, rows - from);
      const double *block = values + from * features_;
      for (int64_t i = 0; i < size; ++i) rank(block + i * features_, &ranks[static_cast<size_t>(i) * width]);
      for (const Tree &tree : trees_) {
        int64_t i = 0;
        for (; !tree.categories && i + kSide <= size; i += kSide) {
          uint32_t at[kSide];
          const uint16_t *rank_of[kSide];
          for (int k = 0; k < kSide; ++k) at[k] = tree.root, rank_of[k] = &ranks[static_cast<size_t>(i + k) * width];
          for (int32_t level = 0; level < tree.depth; ++level)
#pragma GCC unroll 8
            for (int k = 0; k < kSide; ++k) at[k] = next(at[k], rank_of[k]);
          for (int k = 0; k < kSide; ++k) add_leaf(tree, at[k], out + (from + i + k) * outputs_);
        }
        for (; i < size; ++i) {
          const uint16_t *rank_of = &ranks[static_cast<size_t>(i) * width];
          add_leaf(tree, walk(tree, rank_of, block + i * features_), out + (from + i) * outputs_);
        }
      }
    }
  }

 private:
  // All trees go down two levels at a time. Those that are at a leaf leave the list, without a branch to mispredict, and
  // walks do not wait for each other: the deepest path of a tree is often twice as long as the usual one.
  void add_one(const double *row, double *out) const {
    thread_local std::vector<uint16_t> ranks;
    thread_local std::vector<uint32_t> at, walking;
    ranks.resize(copies_.size() + 1), at.resize(trees_.size()), walking.resize(trees_.size());
    rank(row, ranks.data());
    const uint16_t *rank_of = ranks.data();
    uint32_t *place = at.data(), *list = walking.data();
    size_t left = 0;
    const auto trees = static_cast<uint32_t>(trees_.size());
    for (uint32_t t = 0; t < trees; ++t) {
      const Tree &tree = trees_[t];
      const uint32_t now =
          tree.categories ? walk(tree, rank_of, row) : next(next(next(next(tree.root, rank_of), rank_of), rank_of), rank_of);
      place[t] = now, list[left] = t, left += nodes_[now].child != now;
    }
    while (left > 0) {
      size_t kept = 0;
      for (size_t i = 0; i < left; ++i) {
        const uint32_t t = list[i], now = next(next(place[t], rank_of), rank_of);
        place[t] = now, list[kept] = t, kept += nodes_[now].child != now;
      }
      left = kept;
    }
    for (uint32_t t = 0; t < trees; ++t) add_leaf(trees_[t], place[t], out);
  }

  uint32_t next(uint32_t at, const uint16_t *ranks) const {
    const Node node = nodes_[at];
    return node.child + (ranks[node.feature] > node.rank);
  }

  uint32_t walk(const Tree &tree, const uint16_t *ranks, const double *row) const {
    uint32_t at = tree.root;
    if (!tree.categories) {
      for (int32_t level = 0; level < tree.depth; ++level) at = next(at, ranks);
      return at;
    }
    while (nodes_[at].child != at) {
      const int32_t category = category_of_[at];
      at = category < 0 ? next(at, ranks) : nodes_[at].child + !in_set(categories_[static_cast<size_t>(category)], row);
    }
    return at;
  }

  bool in_set(const Category &category, const double *row) const {
    const double value = row[category.feature];
    if (std::isnan(value)) return category.missing_left;
    if (value <= -1.0 || value >= 32.0 * category.words) return false;
    const auto bit = static_cast<uint32_t>(value);
    return sets_[static_cast<size_t>(category.begin) + bit / 32] >> (bit % 32) & 1;
  }

  void add_leaf(const Tree &tree, uint32_t at, double *out) const {
    const double *leaf = &leaves_[static_cast<size_t>(at) * static_cast<size_t>(leaf_width_)];
    if (tree.output >= 0) out[tree.output] += *leaf;
    else
      for (int64_t k = 0; k < leaf_width_; ++k) out[k] += leaf[k];
  }

  // The ranks of one row, a copy for each way in which its nodes treat what is missing.
  void rank(const double *row, uint16_t *out) const {
    int32_t of = -1;
    uint16_t found = 0;
    bool missing = false, zero = false;
    for (size_t c = 0; c < copies_.size(); ++c) {  // copies of one feature stand together
      const Copy &copy = copies_[c];
      if (copy.feature != of) {
        of = copy.feature;
        const double value = single_ ? static_cast<double>(static_cast<float>(row[of])) : row[of];
        missing = std::isnan(value);
        zero = std::abs(value) <= kZero;
        found = missing ? 0 : rank_of(thresholds_[static_cast<size_t>(of)], value);
      }
      const bool away = missing || (copy.zero_missing && zero);
      out[place_[c]] = away ? (copy.missing_left ? uint16_t{0} : kAlwaysRight) : found;
    }
  }

  // x <= threshold[i] exactly when the rank is at most i: thresholds below x are counted (with `strict`, up to x).
  uint16_t rank_of(const std::vector<double> &thresholds, double value) const {
    const double *at = thresholds.data();
    size_t size = thresholds.size();
    while (size > 0) {
      const size_t half = size / 2;
      const bool above = strict_ ? at[half] <= value : at[half] < value;
      at = above ? at + half + 1 : at;
      size = above ? size - half - 1 : half;
    }
    return static_cast<uint16_t>(at - thresholds.data());
  }

  uint16_t copy_of(int32_t feature, bool missing_left, bool zero_missing) {
    size_t at = copies_.size();
    for (size_t c = 0; c < copies_.size(); ++c) {
      if (copies_[c].feature != feature) continue;
      if (copies_[c].missing_left == missing_left && copies_[c].zero_missing == zero_missing) return place_[c];
      at = c + 1;
    }
    const auto place = static_cast<uint16_t>(copies_.size());
    copies_.insert(copies_.begin() + static_cast<std::ptrdiff_t>(at), {feature, missing_left, zero_missing});
    place_.insert(place_.begin() + static_cast<std::ptrdiff_t>(at), place);
    return place;
  }

  void add_tree(const ShoalForest &f, int64_t tree) {
    const int64_t base = f.roots[tree];
    Tree made{static_cast<uint32_t>(nodes_.size()), 0, f.output_of[tree], false};
    std::vector<std::pair<int64_t, int32_t>> order{{base, 0}};  // breadth first: both children stand together
    const size_t first = nodes_.size();
    for (size_t i = 0; i < order.size(); ++i) {
      const auto [node, level] = order[i];
      made.depth = std::max(made.depth, level);
      const auto self = static_cast<uint32_t>(first + i);
      int32_t category = -1;
      if (f.kind[node] == kLeaf) {
        nodes_.push_back({0, kAlwaysRight, self});
      } else {
        const auto child = static_cast<uint32_t>(first + order.size());
        uint16_t feature = 0, rank = 0;
        if (f.kind[node] == kCategory) {
          category = static_cast<int32_t>(categories_.size());
          categories_.push_back({f.feature[node], f.set_begin[node], f.set_words[node], f.missing_left[node] != 0});
          made.categories = true;
        } else {
          const auto &of = thresholds_[static_cast<size_t>(f.feature[node])];
          rank = static_cast<uint16_t>(std::lower_bound(of.begin(), of.end(), f.threshold[node]) - of.begin());
          feature = copy_of(f.feature[node], f.missing_left[node], f.zero_missing[node]);
        }
        nodes_.push_back({feature, rank, child});
        order.emplace_back(base + f.left[node], level + 1);
        order.emplace_back(base + f.right[node], level + 1);
      }
      category_of_.push_back(category);
      const double *leaf = f.leaf + node * f.leaf_width;
      leaves_.insert(leaves_.end(), leaf, leaf + f.leaf_width);
    }
    trees_.push_back(made);
  }

  int32_t features_ = 0, outputs_ = 0, strict_ = 0, single_ = 0;
  int64_t leaf_width_ = 1;
  std::vector<std::vector<double>> thresholds_;
  std::vector<Node> nodes_;
  std::vector<int32_t> category_of_;
  std::vector<double> leaves_;
  std::vector<Category> categories_;
  std::vector<uint32_t> sets_;
  std::vector<Tree> trees_;
  std::vector<Copy> copies_;
  std::vector<uint16_t> place_;  // of each copy among the ranks of a row
};

}  // namespace

void *shoal_forest_new(const ShoalForest *forest) {
  auto made = std::make_unique<Forest>();
  return made->build(*forest) ? made.release() : nullptr;
}

void shoal_forest_free(void *forest) { delete static_cast<Forest *>(forest); }

void shoal_forest_add(const void *forest, const double *values, int64_t rows, double *out) {
  static_cast<const Forest *>(forest)->add(values, rows, out);
}
