#include <map>
#include <string>
#include <utility>

#include "kvpool/multigpu/nccl_communicator.hpp"

namespace kvpool {

Status check_devices_differ(std::span<const DevicePlace> places) {
  std::map<std::pair<std::string, std::string>, std::size_t> taken;
  std::string message;
  int first = -1;
  for (std::size_t r = 0; r < places.size(); ++r) {
    const auto [place, is_new] = taken.try_emplace({places[r].host, places[r].uuid}, r);
    if (is_new) continue;
    if (first < 0) first = static_cast<int>(r);
    message += (message.empty() ? "" : "; ") + std::string("ranks ") + std::to_string(place->second) + " and " +
               std::to_string(r) + " share GPU " + places[r].uuid + " on " + places[r].host;
  }
  if (message.empty()) return {};
  return {ErrorCode::invalid_config, message + ": every rank needs a GPU of its own", first};
}

}  // namespace kvpool
