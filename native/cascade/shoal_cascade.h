// The C interface of libshoalcascade: what scikit-learn's text features and tree ensembles come to, without the matrices
// between. All functions may be called from several threads at once on one handle. Bound by src/shoal/cascade/native.py.
#pragma once

#include <cstddef>
#include <cstdint>

#define SHOAL_API __attribute__((visibility("default")))

extern "C" {

// Raised with every change of this file.
SHOAL_API uint32_t shoal_cascade_abi();

// ---- text: n-grams, counted, weighted, and multiplied with a matrix of weights ----

enum ShoalAnalyzer : int32_t { kWord = 0, kChar = 1, kCharWb = 2 };
enum ShoalNorm : int32_t { kNone = 0, kL1 = 1, kL2 = 2 };

struct ShoalStrings {  // UTF-32, one after the other; offsets has count + 1 entries
  const uint32_t *characters;
  const int64_t *offsets;
  int64_t count;
};

struct ShoalText {
  int32_t analyzer, lowest, highest;  // the n of n-grams, both included
  int32_t shortest_token;             // characters of a word, for kWord
  int32_t sublinear, binary, norm;
  int32_t hashed, alternate_sign;     // hashed: the vocabulary is empty, a term's column is its hash modulo `width`
  int64_t width;                      // columns
  int64_t outputs;                    // columns of the weights; 0: features only
  const uint8_t *character_kinds;     // of each code point: bit 0 a character of words, bit 1 white space; outlives the handle
  const double *idf;                  // width, or null
  const double *weights;              // width x outputs
  ShoalStrings vocabulary;            // the column of a term is its place
  ShoalStrings stop_words;
};

SHOAL_API void *shoal_text_new(const ShoalText *settings);
SHOAL_API void shoal_text_free(void *text);

// out: rows x outputs. Returns the number of table look-ups made, or -1 when a hashed term has a lone surrogate.
SHOAL_API int64_t shoal_text_project(void *text, const uint32_t *characters, const int64_t *offsets, int64_t rows,
                                     double *out);

// The rows as a sparse matrix: returns a result to be copied and freed, or null for a lone surrogate. row_ends: rows + 1.
SHOAL_API void *shoal_text_features(void *text, const uint32_t *characters, const int64_t *offsets, int64_t rows,
                                    int64_t *row_ends);
SHOAL_API void shoal_features_copy(const void *features, int32_t *columns, double *values);
SHOAL_API void shoal_features_free(void *features);

// ---- trees: flat nodes over the ranks of values among thresholds ----

enum ShoalSplit : uint8_t { kLeaf = 0, kNumber = 1, kCategory = 2 };

struct ShoalForest {
  int32_t features, outputs;
  int32_t strict;                   // 1: x < threshold goes left (XGBoost); 0: x <= threshold
  int32_t single;                   // 1: values are rounded to float before they are compared
  int64_t trees, nodes;
  const int64_t *roots;             // trees + 1: where each tree's nodes begin; children lie within the tree
  const int32_t *output_of;         // trees: which output a tree adds to; -1: its leaves are vectors of all outputs
  const uint8_t *kind;              // nodes: ShoalSplit
  const int32_t *feature;           // nodes
  const double *threshold;          // nodes: of numbers
  const int32_t *left, *right;      // nodes: within the tree
  const uint8_t *missing_left;      // nodes: where NaN goes
  const uint8_t *zero_missing;      // nodes: zero counts as missing
  const int64_t *set_begin;         // nodes: of categories, where its words begin in `sets`
  const int32_t *set_words;         // nodes: how many 32-bit words
  const uint32_t *sets;             // bits of the categories that go left
  int64_t leaf_width;               // 1, or outputs where leaves are vectors
  const double *leaf;               // nodes x leaf_width
};

// null: the trees cannot be made flat (more than 65,000 thresholds of one feature); evaluate them in another way.
SHOAL_API void *shoal_forest_new(const ShoalForest *forest);
SHOAL_API void shoal_forest_free(void *forest);
// values: rows x features; out: rows x outputs, to which the trees are added in their order.
SHOAL_API void shoal_forest_add(const void *forest, const double *values, int64_t rows, double *out);
}
