#include "tools/launch/rank/rank_log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace kvpool::launch {

Result<RankLog> RankLog::open(const std::string& folder, int rank) {
  std::error_code ignored;  // another rank may have made the folder; opening the file tells
  std::filesystem::create_directories(folder, ignored);
  const std::string path = (std::filesystem::path(folder) / fmt::format("rank-{}.log", rank)).string();
  RankLog log;
  log.file_.open(path, std::ios::trunc);
  if (!log.file_) return {ErrorCode::environment, "cannot write " + path, rank};
  log.write(fmt::format("rank {}, process {}", rank, getpid()));
  return log;
}

void RankLog::write(std::string_view text) {
  if (!file_.is_open()) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    file_ << fmt::format("{:10.3f}  {}\n", elapsed.count(), text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  file_.flush();
}

}  // namespace kvpool::launch
