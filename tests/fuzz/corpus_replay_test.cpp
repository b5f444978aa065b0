// Every file of the corpora, and changed copies of them: cut short, with bytes replaced, with pieces repeated. The
// changes come from a fixed seed, so that a failure comes back; libFuzzer goes on where this ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "targets.hpp"

namespace kvpool::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Target = void (*)(std::span<const std::uint8_t>);

std::vector<Bytes> read_corpus(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(std::string(KVPOOL_TEST_DATA) + "/" + folder)) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

std::size_t mutants_per_file() {
  const char* scale = std::getenv("KVPOOL_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "long" ? 20'000 : 300;
}

/// One to four changes. Replacement bytes are often ones that mean something to a parser.
Bytes mutant(const Bytes& original, const std::vector<Bytes>& corpus, std::mt19937_64& random) {
  const std::string telling = "0123456789-+.eE\"{}[]:,\\ \n\tnull#=q";
  const auto below = [&](std::size_t limit) {
    return static_cast<std::size_t>(random() % std::max<std::size_t>(limit, 1));
  };
  const auto at = [](Bytes& bytes, std::size_t index) { return bytes.begin() + static_cast<std::ptrdiff_t>(index); };
  Bytes bytes = original;
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t place = below(bytes.size());
    const std::size_t length = std::min(below(24), bytes.size() - place);
    switch (below(6)) {
      case 0: bytes.resize(place); break;
      case 1:
        if (!bytes.empty()) bytes[place] = static_cast<std::uint8_t>(telling[below(telling.size())]);
        break;
      case 2:
        if (!bytes.empty()) bytes[place] = static_cast<std::uint8_t>(random());
        break;
      case 3: bytes.erase(at(bytes, place), at(bytes, place + length)); break;
      case 4: {
        const Bytes piece(at(bytes, place), at(bytes, place + length));
        const std::size_t target = below(bytes.size());
        bytes.insert(at(bytes, target), piece.begin(), piece.end());
        break;
      }
      default: {
        Bytes other = corpus[below(corpus.size())];
        const std::size_t from = below(other.size());
        const std::size_t count = std::min(below(200), other.size() - from);
        bytes.insert(at(bytes, place), at(other, from), at(other, from + count));
        break;
      }
    }
  }
  return bytes;
}

// A target aborts when a promise is broken, so that nothing needs to be returned.
void replay(Target target, const std::vector<Bytes>& corpus) {
  ASSERT_FALSE(corpus.empty());
  std::mt19937_64 random(20'260'820);
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_NO_THROW(target(corpus[i]));
    for (std::size_t k = 0; k < mutants_per_file(); ++k) {
      const Bytes changed = mutant(corpus[i], corpus, random);
      EXPECT_NO_THROW(target(changed)) << "mutant " << k << ": " << std::string(changed.begin(), changed.end());
    }
  }
}

TEST(FuzzReplay, Scripts) { replay(fuzz_script, read_corpus({"fuzz/script"})); }
TEST(FuzzReplay, Traces) { replay(fuzz_trace, read_corpus({"fuzz/trace"})); }
TEST(FuzzReplay, ModelConfigs) { replay(fuzz_model_config, read_corpus({"models", "fuzz/model"})); }

}  // namespace
}  // namespace kvpool::fuzz
