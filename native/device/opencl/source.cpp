#include "source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <string_view>
#include <vector>

namespace shoal::device::opencl {
namespace {

using Tokens = std::vector<std::string_view>;

// Functions whose answer depends on the launch. Object-like macros, so that a call, a space before its bracket and a name
// made by ## are all caught.
constexpr std::array<std::string_view, 7> kReplaced = {
    "get_work_dim",      "get_group_id",      "get_num_groups",       "get_global_id",
    "get_global_size",   "get_global_offset", "get_global_linear_id",
};

bool begins(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }
bool contains(std::string_view text, std::string_view what) { return text.find(what) != text.npos; }
bool named(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Identifiers, numbers, and signs one by one but for those that change a variable. Comments and literals are left out.
Tokens tokens(std::string_view text) {
  Tokens found;
  size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    size_t length = 1;
    if (std::isspace(static_cast<unsigned char>(rest[0])) != 0 || rest[0] == '\\') {
    } else if (begins(rest, "//")) {
      // A comment goes on over an escaped end of line.
      do {
        length = std::min(rest.find('\n', length), rest.size() - 1) + 1;
      } while (length < rest.size() && rest[length - 2] == '\\');
    } else if (begins(rest, "/*")) {
      const size_t end = rest.find("*/", 2);
      length = end == rest.npos ? rest.size() : end + 2;
    } else if (rest[0] == '"' || rest[0] == '\'') {
      while (length < rest.size() && rest[length] != rest[0] && rest[length] != '\n') length += rest[length] == '\\' ? 2 : 1;
      length = std::min(length + 1, rest.size());
    } else if (named(rest[0])) {
      while (length < rest.size() && named(rest[length])) ++length;
      found.push_back(rest.substr(0, length));
    } else {
      for (const std::string_view sign : {"==", "!=", "<=", ">=", "++", "--", "##", "<<=", ">>="})
        if (begins(rest, sign)) length = sign.size();
      found.push_back(rest.substr(0, length));
    }
    at += length;
  }
  return found;
}

bool compares(std::string_view name) { return contains(name, "cmpxchg") || contains(name, "compare_exchange"); }
bool atomic(std::string_view name) { return begins(name, "atomic_") || begins(name, "atom_"); }
bool reads_shared(std::string_view name) { return atomic(name) && !compares(name); }

// From an opening bracket to behind the closing one.
size_t behind(const Tokens& all, size_t at, std::string_view open, std::string_view close) {
  int depth = 0;
  for (; at < all.size(); ++at) {
    if (all[at] == open) ++depth;
    if (all[at] == close && --depth == 0) return at + 1;
  }
  return all.size();
}

// A statement, from its first token to behind its last.
size_t behind_statement(const Tokens& all, size_t at) {
  if (at < all.size() && all[at] == "{") return behind(all, at, "{", "}");
  while (at < all.size() && all[at] != ";") {
    if (all[at] == "(" || all[at] == "{") {
      const bool block = all[at] == "{";
      at = behind(all, at, block ? "{" : "(", block ? "}" : ")");
      if (block) return at;
    } else {
      ++at;
    }
  }
  return std::min(at + 1, all.size());
}

template <typename Test>
bool any(const Tokens& all, size_t from, size_t to, Test test) {
  return from < to && std::any_of(all.data() + from, all.data() + to, test);
}

bool changes(std::string_view token) {
  return token == "=" || token == "++" || token == "--" || token == "<<=" || token == ">>=";
}
bool leaves(std::string_view token) { return token == "break" || token == "return" || token == "goto"; }

// A loop that only another group can end: its condition reads an atomic, or nothing in it changes a variable; or it is
// endless and an atomic decides when to leave it. Exchanges by comparison are no waits: they fail when another succeeds.
bool waits(const Tokens& all, size_t condition, size_t condition_end, size_t body, size_t body_end) {
  if (any(all, condition, condition_end, reads_shared)) return true;
  const bool endless = condition == condition_end || (condition + 1 == condition_end && (all[condition] == "1" || all[condition] == "true"));
  if (endless) return any(all, body, body_end, reads_shared) && any(all, body, body_end, leaves);
  const auto acts = [](std::string_view token) { return changes(token) || compares(token) || leaves(token); };
  return !any(all, condition, condition_end, acts) && !any(all, body, body_end, acts);
}

bool waits_for_groups(const Tokens& all) {
  std::set<size_t> of_do;  // where a `while` ends a `do`, whose body was looked at before
  for (size_t at = 0; at + 1 < all.size(); ++at) {
    if (all[at] == "do") {
      const size_t body = at + 1, body_end = behind_statement(all, body);
      if (body_end + 1 >= all.size() || all[body_end] != "while") continue;
      of_do.insert(body_end);
      const size_t end = behind(all, body_end + 1, "(", ")");
      if (waits(all, body_end + 2, std::max(end, body_end + 3) - 1, body, body_end)) return true;
    } else if (all[at] == "while" && all[at + 1] == "(") {
      const size_t end = behind(all, at + 1, "(", ")");
      if (of_do.count(at) == 0 && waits(all, at + 2, end - 1, end, behind_statement(all, end))) return true;
    } else if (all[at] == "for" && all[at + 1] == "(") {
      const size_t end = behind(all, at + 1, "(", ")");
      size_t first = at + 2;
      while (first < end && all[first] != ";") ++first;
      size_t second = std::min(first + 1, end);
      while (second < end && all[second] != ";") ++second;
      const bool steps = any(all, second, end, changes);
      if (any(all, std::min(first + 1, second), second, reads_shared)) return true;
      if (!steps && waits(all, std::min(first + 1, second), second, end, behind_statement(all, end))) return true;
    }
  }
  return false;
}

bool replaced(std::string_view name) { return std::find(kReplaced.begin(), kReplaced.end(), name) != kReplaced.end(); }

bool defined_by_option(const std::string& options) {
  for (size_t at = options.find("-D"); at != options.npos; at = options.find("-D", at + 2)) {
    size_t from = options.find_first_not_of(" \t", at + 2);
    if (from == options.npos) return false;
    size_t to = from;
    while (to < options.size() && named(options[to])) ++to;
    if (replaced(std::string_view(options).substr(from, to - from))) return true;
  }
  return false;
}

}  // namespace

std::string refusal(const std::string& source, const std::string& options) {
  const Tokens all = tokens(source);
  for (size_t at = 0; at < all.size(); ++at) {
    const std::string_view name = all[at];
    if (name == "#" && at + 2 < all.size()) {
      if (all[at + 1] == "include" || begins(all[at + 1], "include_next")) return "it includes files, which the layer does not read";
      if ((all[at + 1] == "define" || all[at + 1] == "undef") && replaced(all[at + 2]))
        return "it defines " + std::string(all[at + 2]) + " itself";
    }
    if (name == "enqueue_kernel" || begins(name, "ndrange_")) return "it launches kernels from the device";
    if (name == "asm" || name == "__asm" || name == "__asm__") return "it holds assembly, which may read group ids";
    if (begins(name, "__nvvm_") || begins(name, "__builtin_amdgcn") || begins(name, "__spirv_") || begins(name, "_Z"))
      return "it calls " + std::string(name) + ", which the layer cannot replace";
    if (contains(name, "sub_group")) return "it uses sub-groups, whose size may differ between builds";
  }
  if (defined_by_option(options)) return "an option defines what the layer replaces";
  if (waits_for_groups(all)) return "a loop seems to wait for other work-groups";
  return {};
}

std::string specialise(const std::string& source, uint32_t dimensions, uint64_t depth) {
  std::string text = "#define SHOAL_DIMENSIONS_ " + std::to_string(dimensions) + "u\n#define SHOAL_DEPTH_ " +
                     std::to_string(depth) + "u\n";
  text += R"(
uint shoal_get_group_(uint d) {
  uint group = (uint)get_global_offset(0) + (uint)get_group_id(0);
#if SHOAL_DIMENSIONS_ == 1
  return d == 0 ? group : 0;
#else
  uint x = (uint)get_global_offset(1);
#if SHOAL_DIMENSIONS_ == 2
  return d == 0 ? group % x : d == 1 ? group / x : 0;
#else
  uint y = (uint)get_global_offset(2);
  return d == 0 ? group % x : d == 1 ? group / x % y : d == 2 ? group / x / y : 0;
#endif
#endif
}
uint shoal_get_work_dim(void) { return SHOAL_DIMENSIONS_; }
size_t shoal_get_group_id(uint d) { return shoal_get_group_(d); }
size_t shoal_get_num_groups(uint d) {
  return d == 0 ? get_global_offset(1) : d == 1 ? get_global_offset(2) : d == 2 ? SHOAL_DEPTH_ : get_num_groups(d);
}
size_t shoal_get_global_id(uint d) {
  return d < SHOAL_DIMENSIONS_ ? (size_t)shoal_get_group_(d) * get_local_size(d) + get_local_id(d) : 0;
}
size_t shoal_get_global_size(uint d) {
  return d < SHOAL_DIMENSIONS_ ? shoal_get_num_groups(d) * get_local_size(d) : d < 3 ? 1 : get_global_size(d);
}
size_t shoal_get_global_offset(uint d) { return 0; }
size_t shoal_get_global_linear_id(void) {
  return (shoal_get_global_id(2) * shoal_get_global_size(1) + shoal_get_global_id(1)) * shoal_get_global_size(0) +
         shoal_get_global_id(0);
}
)";
  for (const std::string_view name : kReplaced) text += "#define " + std::string(name) + " shoal_" + std::string(name) + "\n";
  text += "#line 1\n" + source + "\n";
  // Only a name that still leads to ours is 1 here; any other is 0, an error, or the program's own.
  for (const std::string_view name : kReplaced)
    text += "#define shoal_" + std::string(name) + " 1\n#if " + std::string(name) +
            " != 1\n#error redefined\n#endif\n#undef shoal_" + std::string(name) + "\n";
  return text;
}

}  // namespace shoal::device::opencl
