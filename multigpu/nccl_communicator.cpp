// The NCCL adapter: no call that waits, a deadline for every collective, one outcome on all ranks.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "kvpool/multigpu/nccl_communicator.hpp"
#include "multigpu/byte_order.hpp"
#include "multigpu/cuda_device.hpp"

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0), "kvpool needs the headers of NCCL 2.18 or newer");

namespace kvpool {

namespace {

using multigpu::ByteReader;
using multigpu::put;
using multigpu::put_text;
using Clock = std::chrono::steady_clock;

constexpr int kOldestVersion = NCCL_VERSION(2, 18, 0);
constexpr std::size_t kMaxText = 1000;

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "unknown host";
}

/// What a rank says before NCCL is set up, or about a failure.
struct Presence {
  std::string problem;  ///< empty: none
  std::int32_t version = 0;
  DevicePlace place;
};

Bytes encode(const Presence& presence) {
  Bytes out;
  put_text(out, std::string_view(presence.problem).substr(0, kMaxText));
  put(out, presence.version);
  put_text(out, std::string_view(presence.place.host).substr(0, kMaxText));
  put_text(out, std::string_view(presence.place.uuid).substr(0, kMaxText));
  return out;
}

/// All ranks' presence, or the first problem in the words of its rank.
Result<std::vector<Presence>> exchange(Communicator& control, std::string_view step, const Presence& mine,
                                       Timeout timeout) {
  const auto all = control.agree(step, encode(mine), timeout);
  if (!all) return all.error();
  std::vector<Presence> presences;
  for (std::size_t r = 0; r < all->size(); ++r) {
    const std::string who = "rank " + std::to_string(r);
    ByteReader reader((*all)[r]);
    Presence presence;
    if (!reader.get_text(presence.problem, kMaxText) || !reader.get(presence.version) ||
        !reader.get_text(presence.place.host, kMaxText) || !reader.get_text(presence.place.uuid, kMaxText)) {
      return Error{ErrorCode::bad_input, who + " sent a message in '" + std::string(step) + "' that cannot be read",
                   static_cast<int>(r)};
    }
    presences.push_back(std::move(presence));
  }
  for (std::size_t r = 0; r < presences.size(); ++r) {
    if (presences[r].problem.empty()) continue;
    return Error{ErrorCode::environment, "rank " + std::to_string(r) + ": " + presences[r].problem,
                 static_cast<int>(r)};
  }
  return presences;
}

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(Communicator& control) : control_(control) {}

  ~NcclCommunicator() override {
    if (comm_ != nullptr && !failure_) {
      const ncclResult_t result = ncclCommFinalize(comm_);
      const bool finalised = wait_for_setup(result, Clock::now() + std::chrono::seconds(5)).empty();
      if (finalised) {
        (void)ncclCommDestroy(comm_);
        comm_ = nullptr;
      }
    }
    abandon();
    // After a failure the stream may still hold work of dead peers, and freeing would wait for it.
    if (failure_) return;
    if (staging_ != nullptr) (void)cudaFree(staging_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  Status set_up(int device, Timeout timeout);

  int rank() const noexcept override { return control_.rank(); }
  int world_size() const noexcept override { return control_.world_size(); }
  MemoryKind sum_memory() const noexcept override { return MemoryKind::device; }
  const std::optional<Error>& failure() const noexcept override { return failure_ ? failure_ : control_.failure(); }

  Result<std::vector<Bytes>> agree(std::string_view step, std::span<const std::byte> mine, Timeout timeout) override {
    if (failure_) return *failure_;
    return control_.agree(step, mine, timeout);
  }
  Result<std::vector<Bytes>> gather(std::span<const std::byte> mine, int root, Timeout timeout) override {
    if (failure_) return *failure_;
    return control_.gather(mine, root, timeout);
  }
  Status broadcast(Bytes& bytes, int root, Timeout timeout) override {
    if (failure_) return *failure_;
    return control_.broadcast(bytes, root, timeout);
  }
  Status barrier(Timeout timeout) override {
    if (failure_) return *failure_;
    return control_.barrier(timeout);
  }
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine, Timeout timeout) override;
  Status all_reduce_min(std::span<std::int64_t> values, Timeout timeout) override;
  Status all_reduce_sum(std::span<float> values, SumOrder order, Timeout timeout) override {
    return sum(values.data(), values.size(), ncclFloat32, order, timeout);
  }
  Status all_reduce_sum_bf16(std::span<std::uint16_t> values, SumOrder order, Timeout timeout) override {
    return sum(values.data(), values.size(), ncclBfloat16, order, timeout);
  }

  void abort(const Error& reason) noexcept override {
    if (failure_) return;
    abandon();
    control_.abort(reason);
    failure_ = control_.failure();
  }

 private:
  /// Aborts NCCL's communicator. No thread is inside NCCL then: calls are made by the rank's one thread only.
  void abandon() noexcept {
    if (comm_ != nullptr) (void)ncclCommAbort(comm_);
    comm_ = nullptr;
  }

  Status sum(void* values, std::size_t count, ncclDataType_t type, SumOrder order, Timeout timeout) {
    if (failure_) return *failure_;
    if (order == SumOrder::fixed_tree) {
      return {ErrorCode::unsupported, "NCCL chooses the order of a sum itself; ask for SumOrder::any"};
    }
    return run("all-reduce", timeout,
               [&] { return ncclAllReduce(values, values, count, type, ncclSum, comm_, stream_); });
  }

  /// Polls until NCCL has done what it answered "in progress" to. The problem in words, empty when done.
  std::string wait_for_setup(ncclResult_t result, Clock::time_point until) {
    while (result == ncclSuccess || result == ncclInProgress) {
      ncclResult_t state = ncclSuccess;
      result = ncclCommGetAsyncError(comm_, &state);
      if (result != ncclSuccess) break;
      if (state == ncclSuccess) return {};
      result = state;
      if (result != ncclInProgress) break;
      if (Clock::now() >= until) return "NCCL is not done within its time";
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return std::string("NCCL: ") + ncclGetErrorString(result);
  }

  template <class Launch>
  Status run(const std::string& what, Timeout timeout, Launch&& launch) {
    if (failure_) return *failure_;
    const auto until = Clock::now() + timeout / 2;  // the other half belongs to the search for the culprit
    std::string problem = wait_for_setup(launch(), until);
    while (problem.empty()) {
      const cudaError_t state = cudaStreamQuery(stream_);
      if (state == cudaSuccess) return {};
      if (state != cudaErrorNotReady) {
        problem = std::string("CUDA: ") + cudaGetErrorString(state);
        break;
      }
      ncclResult_t async = ncclSuccess;
      if (ncclCommGetAsyncError(comm_, &async) != ncclSuccess || (async != ncclSuccess && async != ncclInProgress)) {
        problem = std::string("NCCL: ") + ncclGetErrorString(async);
      } else if (Clock::now() >= until) {
        problem = "not done within " + std::to_string(timeout.count() / 2) + " ms";
      } else {
        std::this_thread::yield();
      }
    }
    return fail(what + ": " + problem, timeout / 2);
  }

  /// Ends the communicator here and finds out through `control` who does not answer any more.
  Error fail(const std::string& problem, Timeout timeout) {
    abandon();
    Presence mine;
    mine.problem = problem;
    const auto others = exchange(control_, "after an NCCL failure", mine, timeout);
    failure_ = others ? Error{ErrorCode::rank_failed, problem, rank()} : others.error();
    if (!control_.failure()) control_.abort(*failure_);
    return *failure_;
  }

  Status copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const cudaError_t result = cudaMemcpyAsync(to, from, bytes, kind, stream_);
    if (result == cudaSuccess) return {};
    return fail(std::string("copy: ") + cudaGetErrorString(result), std::chrono::seconds(5));
  }

  Status reserve_staging(std::size_t bytes) {
    if (bytes <= staging_bytes_) return {};
    if (staging_ != nullptr) (void)cudaFree(staging_);
    staging_ = nullptr;
    staging_bytes_ = 0;
    if (const cudaError_t result = cudaMalloc(&staging_, bytes); result != cudaSuccess) {
      return fail("staging buffer of " + std::to_string(bytes) + " bytes: " + cudaGetErrorString(result),
                  std::chrono::seconds(5));
    }
    staging_bytes_ = bytes;
    return {};
  }

  /// Gathers equal shares: `mine` from every rank into `all`, through the staging buffer.
  Status gather_equal(std::span<const std::byte> mine, std::span<std::byte> all, Timeout timeout);

  Communicator& control_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* staging_ = nullptr;
  std::size_t staging_bytes_ = 0;
  std::optional<Error> failure_;
};

Status NcclCommunicator::set_up(int device, Timeout timeout) {
  Presence mine;
  int version = 0;
  const auto opened = multigpu::open_cuda_device(device);
  if (!opened) {
    mine.problem = opened.error().message;
  } else if (ncclGetVersion(&version) != ncclSuccess || version < kOldestVersion) {
    mine.problem = "NCCL " + std::to_string(version) + " is older than " + std::to_string(kOldestVersion);
  } else {
    mine.place = {host_name(), opened->uuid};
  }
  mine.version = version;
  const auto all = exchange(control_, "nccl devices", mine, timeout);
  if (!all) return all.error();
  std::vector<DevicePlace> places;
  for (std::size_t r = 0; r < all->size(); ++r) {
    places.push_back((*all)[r].place);
    if ((*all)[r].version == (*all)[0].version) continue;
    return {ErrorCode::environment,
            "rank " + std::to_string(r) + " has NCCL " + std::to_string((*all)[r].version) + ", rank 0 has " +
                std::to_string((*all)[0].version),
            static_cast<int>(r)};
  }
  if (auto status = check_devices_differ(places); !status) return status;

  // The unique id comes from rank 0; a failure to make one must reach everybody.
  ncclUniqueId id{};
  Bytes id_bytes;
  if (rank() == 0 && ncclGetUniqueId(&id) == ncclSuccess) {
    const auto bytes = std::as_bytes(std::span(id.internal));
    id_bytes.assign(bytes.begin(), bytes.end());
  }
  const auto ids = control_.agree("nccl unique id", id_bytes, timeout);
  if (!ids) return ids.error();
  if (ids->front().size() != sizeof(id.internal)) {
    return {ErrorCode::environment, "rank 0: NCCL gives no unique id", 0};
  }
  std::memcpy(id.internal, ids->front().data(), sizeof(id.internal));

  Presence ready;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const auto until = Clock::now() + timeout;
  if (cudaSetDevice(device) != cudaSuccess ||
      cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess) {
    ready.problem = "no stream on CUDA device " + std::to_string(device);
  } else {
    const ncclResult_t result = ncclCommInitRankConfig(&comm_, world_size(), id, rank(), &config);
    ready.problem =
        comm_ == nullptr ? std::string("NCCL: ") + ncclGetErrorString(result) : wait_for_setup(result, until);
  }
  const auto set_up = exchange(control_, "nccl set-up", ready, timeout);
  if (set_up) return {};
  abandon();
  failure_ = set_up.error();
  return *failure_;
}

Status NcclCommunicator::gather_equal(std::span<const std::byte> mine, std::span<std::byte> all, Timeout timeout) {
  if (auto status = reserve_staging(mine.size() + all.size()); !status) return status;
  auto* const to = static_cast<std::byte*>(staging_) + mine.size();
  if (auto status = copy(staging_, mine.data(), mine.size(), cudaMemcpyHostToDevice); !status) return status;
  auto status =
      run("all-gather", timeout, [&] { return ncclAllGather(staging_, to, mine.size(), ncclUint8, comm_, stream_); });
  if (!status) return status;
  if (auto copied = copy(all.data(), to, all.size(), cudaMemcpyDeviceToHost); !copied) return copied;
  if (cudaStreamSynchronize(stream_) == cudaSuccess) return {};  // a copy of our own: no peer is involved
  return fail("copy from the device", timeout);
}

Result<std::vector<Bytes>> NcclCommunicator::all_gather(std::span<const std::byte> mine, Timeout timeout) {
  if (failure_) return *failure_;
  const auto world = static_cast<std::size_t>(world_size());
  const auto size = static_cast<std::uint64_t>(mine.size());
  std::vector<std::uint64_t> sizes(world);
  auto status = gather_equal(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)), timeout);
  if (!status) return status.error();
  const std::size_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<Bytes> out(world);
  if (longest == 0) return out;
  Bytes padded(mine.begin(), mine.end());
  padded.resize(longest);
  Bytes all(longest * world);
  if (status = gather_equal(padded, all, timeout); !status) return status.error();
  for (std::size_t r = 0; r < world; ++r) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(r * longest);
    out[r].assign(from, from + static_cast<std::ptrdiff_t>(sizes[r]));
  }
  return out;
}

Status NcclCommunicator::all_reduce_min(std::span<std::int64_t> values, Timeout timeout) {
  if (failure_) return *failure_;
  const std::size_t bytes = values.size_bytes();
  if (bytes == 0) return {};
  if (auto status = reserve_staging(bytes); !status) return status;
  if (auto status = copy(staging_, values.data(), bytes, cudaMemcpyHostToDevice); !status) return status;
  auto status = run("minimum", timeout, [&] {
    return ncclAllReduce(staging_, staging_, values.size(), ncclInt64, ncclMin, comm_, stream_);
  });
  if (!status) return status;
  if (auto copied = copy(values.data(), staging_, bytes, cudaMemcpyDeviceToHost); !copied) return copied;
  if (cudaStreamSynchronize(stream_) == cudaSuccess) return {};
  return fail("copy from the device", timeout);
}

}  // namespace

bool built_with_nccl() noexcept { return true; }

Result<std::unique_ptr<Communicator>> make_nccl_communicator(Communicator& control, int device, Timeout timeout) {
  auto communicator = std::make_unique<NcclCommunicator>(control);
  if (auto status = communicator->set_up(device, timeout); !status) return status.error();
  return std::unique_ptr<Communicator>(std::move(communicator));
}

}  // namespace kvpool
