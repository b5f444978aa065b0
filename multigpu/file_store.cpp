#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "kvpool/multigpu/rendezvous.hpp"

namespace kvpool {

Status share_through_file(const std::string& path, Bytes& bytes, int rank, Timeout timeout) {
  if (rank == 0) {
    const std::string part = path + ".part";
    {
      std::ofstream file(part, std::ios::binary);
      file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      if (!file.flush()) return {ErrorCode::environment, "cannot write " + part, 0};
    }
    if (std::rename(part.c_str(), path.c_str()) != 0) return {ErrorCode::environment, "cannot create " + path, 0};
    return {};
  }
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (true) {
    if (std::ifstream file(path, std::ios::binary); file) {
      std::ostringstream text;
      text << file.rdbuf();
      const std::string content = std::move(text).str();
      const auto* data = reinterpret_cast<const std::byte*>(content.data());
      bytes.assign(data, data + content.size());
      return {};
    }
    if (std::chrono::steady_clock::now() >= until) {
      return {ErrorCode::deadline_exceeded,
              "rank 0 did not write " + path + " within " + std::to_string(timeout.count()) + " ms", 0};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace kvpool
