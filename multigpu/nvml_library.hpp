// The management library, found at run time: neither its header nor the library is needed to build.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace kvpool::multigpu {

struct ManagementFigures {
  std::optional<std::int64_t> total;            ///< bytes; may describe the card behind a slice
  std::optional<std::int64_t> own_process;      ///< bytes; empty when this process is not listed
  std::optional<std::int64_t> other_processes;  ///< bytes; only when this process is listed and all figures are there
};

class NvmlLibrary {
 public:
  /// Empty when the library is missing or refuses to start.
  [[nodiscard]] static std::unique_ptr<NvmlLibrary> load();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;
  ~NvmlLibrary();

  /// `uuid` without prefix, as the runtime tells it. Whatever cannot be had is empty.
  [[nodiscard]] ManagementFigures figures(const std::string& uuid) const;

 private:
  struct Functions;
  explicit NvmlLibrary(std::unique_ptr<Functions> functions);
  std::unique_ptr<Functions> functions_;
};

}  // namespace kvpool::multigpu
