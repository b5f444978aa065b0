#include <gtest/gtest.h>

#include "tools/cli/exit_status.hpp"
#include "tools/cli/json_output.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/quantity.hpp"
#include "tools/replay/latency.hpp"

namespace kvpool::tools {
namespace {

using namespace std::chrono_literals;

TEST(Size, UnitsAndFractions) {
  EXPECT_EQ(parse_size("0").value(), 0);
  EXPECT_EQ(parse_size("12345").value(), 12345);
  EXPECT_EQ(parse_size("9223372036854775807").value(), INT64_MAX);
  EXPECT_EQ(parse_size("80GiB").value(), 80LL << 30);
  EXPECT_EQ(parse_size("512MiB").value(), 512LL << 20);
  EXPECT_EQ(parse_size("1.5kib").value(), 1536);
  EXPECT_EQ(parse_size("2 TB").value(), 2'000'000'000'000LL);
  EXPECT_EQ(parse_size("7B").value(), 7);
}

TEST(Size, RefusesWhatIsNoSize) {
  for (const char* text : {"", "GiB", "-1", "1.2.3MiB", "1.5", "80XB", "9223372036854775808", "9999999TiB", "0x10",
                           "1e9", "nan", "1GiB "}) {
    const auto parsed = parse_size(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(parsed.error().message.find(text), std::string::npos);
  }
}

TEST(Duration, Units) {
  EXPECT_EQ(parse_duration("60s").value(), 60s);
  EXPECT_EQ(parse_duration("500ms").value(), 500ms);
  EXPECT_EQ(parse_duration("1.5m").value(), 90s);
  EXPECT_EQ(parse_duration("3us").value(), 3us);
  EXPECT_EQ(parse_duration("7ns").value(), 7ns);
  EXPECT_EQ(parse_duration("2h").value(), 2h);
  EXPECT_EQ(parse_duration("0").value(), 0ns);
}

TEST(Duration, RefusesWhatIsNoDuration) {
  for (const char* text : {"", "60", "s", "-1s", "1d", "100000000h", "..s"}) {
    EXPECT_FALSE(parse_duration(text).ok()) << text;
  }
}

TEST(Duration, PlainNumbersAreSecondsWhereAskedFor) {
  EXPECT_EQ(parse_seconds("60").value(), 60s);
  EXPECT_EQ(parse_seconds("0.25").value(), 250ms);
  EXPECT_EQ(parse_seconds("500ms").value(), 500ms);
  for (const char* text : {"", "-1", "1d", "1.2.3", "nan"}) {
    EXPECT_FALSE(parse_seconds(text).ok()) << text;
  }
  CLI::App app;
  std::chrono::nanoseconds duration{};
  add_seconds_option(app, "--seconds", duration, 10ms, 2h, "");
  app.parse("--seconds 40ms", false);
  EXPECT_EQ(duration, 40ms);
  for (const char* text : {"--seconds 9ms", "--seconds 7201", "--seconds x"}) {
    EXPECT_THROW(app.parse(text, false), CLI::ValidationError) << text;
  }
}

TEST(Options, SizesAndDurationsAreUsageErrors) {
  CLI::App app;
  std::int64_t bytes = 0;
  std::chrono::nanoseconds duration{};
  add_size_option(app, "--memory", bytes, "");
  add_duration_option(app, "--deadline", duration, "");
  app.parse("--memory 2KiB --deadline 3ms", false);
  EXPECT_EQ(bytes, 2048);
  EXPECT_EQ(duration, 3ms);
  EXPECT_THROW(app.parse("--memory much", false), CLI::ValidationError);
  EXPECT_THROW(app.parse("--deadline 3", false), CLI::ValidationError);
}

TEST(ProgressLine, ShowsShareRateAndRest) {
  EXPECT_EQ(progress_line("replay", "requests", 50, 100, 2.0),
            "replay [###############...............]  50% 25 requests/s, 2 s left");
  EXPECT_EQ(progress_line("replay", "requests", 0, 100, 0.0),
            "replay [..............................]   0% 0 requests/s");
  EXPECT_EQ(progress_line("exec", "operations", 30, 0, 3.0), "exec 30 operations, 10 operations/s");
}

TEST(Ratio, HasSixDecimals) {
  EXPECT_EQ(ratio(1, 3), 0.333333);
  EXPECT_EQ(ratio(2, 3), 0.666667);
  EXPECT_EQ(ratio(5, 0), 0.0);
}

TEST(ExitStatus, FollowsTheKindOfError) {
  EXPECT_EQ(exit_status_of(ErrorCode::bad_input), kExitBadInput);
  EXPECT_EQ(exit_status_of(ErrorCode::unsupported), kExitBadInput);
  EXPECT_EQ(exit_status_of(ErrorCode::rank_failed), kExitEnvironment);
  EXPECT_EQ(exit_status_of(ErrorCode::deadline_exceeded), kExitEnvironment);
  EXPECT_EQ(exit_status_of(ErrorCode::internal), kExitCheckFailed);
}

TEST(Latency, NearestRankPercentiles) {
  LatencySamples samples;
  for (int i = 1000; i >= 1; --i) {
    samples.add(std::chrono::microseconds(i));
  }
  EXPECT_DOUBLE_EQ(samples.percentile_us(0.5), 500.0);
  EXPECT_DOUBLE_EQ(samples.percentile_us(0.99), 990.0);
  EXPECT_DOUBLE_EQ(samples.percentile_us(0.999), 999.0);
  EXPECT_DOUBLE_EQ(samples.percentile_us(1.0), 1000.0);
  EXPECT_EQ(LatencySamples{}.percentile_us(0.5), 0.0);
}

}  // namespace
}  // namespace kvpool::tools
