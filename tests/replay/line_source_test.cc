// SPDX-License-Identifier: Apache-2.0
// Lines out of plain, gzip and zstd files; what is damaged says where.
#include "replay/line_source.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "support/temp_directory.h"
#include "support/trace_fixture.h"

namespace pando::testing {
namespace {

std::string gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

struct Lines {
  std::vector<std::string> lines;
  std::string error;
};

Lines lines_of(const std::string& bytes) {
  TempDirectory directory;
  write_file(directory / "trace", bytes);
  const auto source = *LineSource::open(directory / "trace");
  Lines all;
  while (true) {
    const auto line = source->next();
    if (!line) {
      all.error = line.error().message.substr(directory.path().size());
      return all;
    }
    if (!*line) return all;
    EXPECT_EQ(source->line_number(), all.lines.size() + 1);
    all.lines.emplace_back(**line);
  }
}

using Strings = std::vector<std::string>;

TEST(LineSource, GivesLinesWithoutTheirEnds) {
  EXPECT_EQ(lines_of("").lines, Strings{});
  EXPECT_EQ(lines_of("a\n\nbc\n").lines, (Strings{"a", "", "bc"}));
  EXPECT_EQ(lines_of("a\r\nb").lines, (Strings{"a", "b"}));
}

TEST(LineSource, LinesMayBeLongerThanTheBuffer) {
  const std::string line(3'000'000, 'x');
  EXPECT_EQ(lines_of(line + "\nshort\n" + line).lines, (Strings{line, "short", line}));
}

TEST(LineSource, UnpacksGzipOfSeveralMembersAndZstdOfSeveralFrames) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i * 7919) + "\n";
  const Strings plain = lines_of(text + text).lines;
  EXPECT_EQ(plain.size(), 200'000u);
  EXPECT_EQ(lines_of(gzip(text) + gzip(text)).lines, plain);
  EXPECT_EQ(lines_of(zstd(text) + zstd(text)).lines, plain);
}

TEST(LineSource, TruncatedAndDamagedDataAreErrorsWithTheLine) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i * 7919) + "\n";
  const std::string packed = gzip(text);
  const Lines cut = lines_of(packed.substr(0, packed.size() / 2));
  EXPECT_EQ(cut.error,
            "/trace:" + std::to_string(cut.lines.size() + 1) + ": ends in the middle of gzip data");
  EXPECT_GT(cut.lines.size(), 10'000u);
  std::string damaged = packed;
  for (std::size_t i = 1000; i < 1100; ++i) damaged[i] = 'x';
  EXPECT_NE(lines_of(damaged).error.find("damaged gzip data"), std::string::npos);
  const std::string frame = zstd(text);
  EXPECT_NE(lines_of(frame.substr(0, frame.size() - 5)).error.find("in the middle of zstd data"),
            std::string::npos);
}

TEST(LineSource, ProgressGoesFromNothingToAll) {
  TempDirectory directory;
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "some line\n";
  write_file(directory / "trace", text);
  const auto source = *LineSource::open(directory / "trace");
  (void)*source->next();
  EXPECT_LT(source->progress(), 0.5);
  while (source->next().value()) {
  }
  EXPECT_EQ(source->progress(), 1.0);
}

TEST(LineSource, AFileThatIsNotThereSaysSo) {
  const auto source = LineSource::open("/nowhere/trace");
  EXPECT_EQ(source.error().code, ErrorCode::not_found);
  EXPECT_NE(source.error().message.find("/nowhere/trace"), std::string::npos);
}

}  // namespace
}  // namespace pando::testing
