#include "tools/trace/input_file.hpp"

#include <gtest/gtest.h>

#include "folder.hpp"
#include "tools/trace/input_error.hpp"
#include "tools/trace/line_reader.hpp"

namespace kvpool::tools {
namespace {

using testing_support::Folder;
using testing_support::read_file;

std::string read_all(InputFile& file) {
  std::string text;
  std::vector<unsigned char> buffer(1000);
  while (const std::size_t got = file.read(buffer)) {
    text.append(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(got));
  }
  return text;
}

std::vector<unsigned char> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string sample() {
  std::string text;
  for (int i = 0; i < 60'000; ++i) {
    text += std::to_string(i * 7919 % 100'003) + "\n";
  }
  return text;
}

TEST(InputFileTest, PlainAndGzipGiveTheSameBytes) {
  const Folder folder;
  const std::string text = sample();
  InputFile plain(folder.write("plain", text));
  InputFile packed(folder.write_gzip("packed.bin", text));
  EXPECT_EQ(read_all(plain), text);
  EXPECT_EQ(read_all(packed), text);
}

TEST(InputFileTest, SeveralMembersAreOneText) {
  const Folder folder;
  const std::string both = read_file(folder.write_gzip("a", "first\n")) + read_file(folder.write_gzip("b", "second\n"));
  InputFile file("two", bytes_of(both));
  EXPECT_EQ(read_all(file), "first\nsecond\n");
}

TEST(InputFileTest, GzipCutAnywhereIsAnError) {
  const Folder folder;
  const std::string packed = read_file(folder.write_gzip("packed", sample().substr(0, 3000)));
  for (std::size_t length = 2; length < packed.size(); ++length) {
    InputFile file("cut", bytes_of(packed.substr(0, length)));
    EXPECT_THROW((void)read_all(file), InputError) << length << " of " << packed.size() << " bytes";
  }
}

TEST(InputFileTest, ChangedGzipIsAnErrorOrTheSameText) {
  const Folder folder;
  const std::string text = sample().substr(0, 3000);
  const std::string packed = read_file(folder.write_gzip("packed", text));
  std::size_t errors = 0;
  for (std::size_t at = 10; at < packed.size(); ++at) {
    std::string changed = packed;
    changed[at] = static_cast<char>(changed[at] ^ 0x5a);
    InputFile file("changed", bytes_of(changed));
    try {
      EXPECT_EQ(read_all(file), text) << "byte " << at;
    } catch (const InputError& error) {
      ++errors;
      EXPECT_NE(std::string(error.what()).find("changed: byte "), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(errors, packed.size() * 9 / 10);
}

TEST(InputFileTest, GarbageBehindGzipIsAnError) {
  const Folder folder;
  InputFile file("garbage", bytes_of(read_file(folder.write_gzip("packed", "text")) + "more"));
  EXPECT_THROW((void)read_all(file), InputError);
}

TEST(InputFileTest, MissingFilesAndFoldersAreErrors) {
  const Folder folder;
  EXPECT_THROW(InputFile{folder.path("nowhere")}, InputError);
  EXPECT_THROW(InputFile{folder.path("")}, InputError);
}

TEST(LineReaderTest, LineEndsAndNumbers) {
  InputFile file("lines", bytes_of("one\n\ntwo\r\nthree"));
  LineReader lines(file);
  std::string_view line;
  std::vector<std::string> read;
  while (lines.next(line)) {
    read.emplace_back(line);
    EXPECT_EQ(lines.number(), read.size());
  }
  EXPECT_EQ(read, (std::vector<std::string>{"one", "", "two", "three"}));
}

TEST(LineReaderTest, EndlessLineIsAnErrorInBoundedMemory) {
  const Folder folder;
  // 100 MiB of zeros: less than 1 MiB packed.
  const std::string packed = folder.write_gzip("zeros", std::string(std::size_t{100} << 20, '\0'));
  InputFile file(packed);
  LineReader lines(file);
  std::string_view line;
  EXPECT_THROW((void)lines.next(line), InputError);
}

TEST(LineReaderTest, ManyLinesAcrossBufferBorders) {
  const std::string text = sample();
  InputFile file("sample", bytes_of(text));
  LineReader lines(file);
  std::string_view line;
  std::string joined;
  while (lines.next(line)) {
    joined += std::string(line) + "\n";
  }
  EXPECT_EQ(joined, text);
}

}  // namespace
}  // namespace kvpool::tools
