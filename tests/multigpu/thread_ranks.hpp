// Runs a test's body on every rank of a world of threads.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kvpool/multigpu/thread_communicator.hpp"

namespace kvpool::testing {

inline Bytes to_bytes(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

inline std::string to_text(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

inline std::string to_text(const Error& error) {
  return std::string(to_string(error.code)) + " " + std::to_string(error.rank) + " " + error.message;
}

/// Answers per rank how its communicator ended: "ok", or code, rank and message of its failure.
inline std::vector<std::string> on_thread_ranks(int world_size, const std::function<void(Communicator&)>& body) {
  auto communicators = make_thread_communicators(world_size);
  std::vector<std::string> outcomes(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < communicators.size(); ++r) {
    threads.emplace_back([&, r] {
      body(*communicators[r]);
      const auto& failure = communicators[r]->failure();
      outcomes[r] = failure ? to_text(*failure) : "ok";
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

}  // namespace kvpool::testing
