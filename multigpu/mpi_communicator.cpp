// The MPI adapter: messages in host memory, nothing but calls that return at once.
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <list>
#include <thread>
#include <utility>

#include "kvpool/multigpu/mpi_communicator.hpp"
#include "multigpu/message_communicator.hpp"
#include "multigpu/transport.hpp"

namespace kvpool {

namespace {

using multigpu::Arrival;
using multigpu::Duration;
using multigpu::TimePoint;

constexpr int kTag = 0x4b50;

/// Polling without keeping a core from the ranks that share it: yields at first, then sleeps.
class Patience {
 public:
  void wait(TimePoint now, TimePoint until) {
    if (++polls_ < kYields) {
      std::this_thread::yield();
      return;
    }
    const Duration nap = std::min<Duration>(std::chrono::microseconds(polls_ < kShortNaps ? 20 : 200), until - now);
    if (nap > Duration::zero()) std::this_thread::sleep_for(nap);
  }

 private:
  static constexpr int kYields = 500;
  static constexpr int kShortNaps = 2000;
  int polls_ = 0;
};

class MpiTransport final : public multigpu::Transport {
 public:
  MpiTransport(MPI_Comm comm, int rank, int world_size, bool owns_mpi, Timeout timeout)
      : comm_(comm), rank_(rank), world_(world_size), owns_mpi_(owns_mpi), timeout_(timeout) {}

  ~MpiTransport() override {
    if (given_up_) return;
    const TimePoint until = now() + timeout_;
    flush(until);
    MPI_Request goodbye = MPI_REQUEST_NULL;
    if (MPI_Ibarrier(comm_, &goodbye) != MPI_SUCCESS || !wait_for(goodbye, until)) return;
    MPI_Comm_free(&comm_);
    if (owns_mpi_) MPI_Finalize();
  }

  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return world_; }
  TimePoint now() const override { return std::chrono::steady_clock::now(); }

  void send(int to, Bytes message) override {
    if (message.size() > INT_MAX) return;  // refused above this layer; here it counts as lost
    Pending& pending = sends_.emplace_back(Pending{MPI_REQUEST_NULL, to, std::move(message)});
    const int error = MPI_Isend(pending.bytes.data(), static_cast<int>(pending.bytes.size()), MPI_BYTE, to, kTag, comm_,
                                &pending.request);
    if (error != MPI_SUCCESS) sends_.pop_back();
    finish(sends_);
  }

  std::optional<Arrival> receive(TimePoint until) override {
    Patience patience;
    while (true) {
      start_receives();
      finish(sends_);
      for (auto it = receives_.begin(); it != receives_.end(); ++it) {
        if (!is_done(*it)) continue;
        Arrival arrival{it->peer, std::move(it->bytes)};
        receives_.erase(it);
        return arrival;
      }
      const TimePoint time = now();
      if (time >= until) return std::nullopt;
      patience.wait(time, until);
    }
  }

  void flush(TimePoint until) override {
    Patience patience;
    while (true) {
      finish(sends_);
      const TimePoint time = now();
      if (sends_.empty() || time >= until) return;
      start_receives();
      patience.wait(time, until);
    }
  }

  void give_up() noexcept override { given_up_ = true; }

  /// Polls a request; false when `until` comes first.
  static bool wait_for(MPI_Request& request, TimePoint until) {
    Patience patience;
    while (true) {
      int done = 0;
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
      if (done != 0) return true;
      const TimePoint time = std::chrono::steady_clock::now();
      if (time >= until) return false;
      patience.wait(time, until);
    }
  }

 private:
  struct Pending {
    MPI_Request request;
    int peer;
    Bytes bytes;
  };

  static bool is_done(Pending& pending) {
    int done = 0;
    return MPI_Test(&pending.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
  }

  static void finish(std::list<Pending>& list) { list.remove_if(is_done); }

  void start_receives() {
    while (true) {
      int found = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status{};
      if (MPI_Improbe(MPI_ANY_SOURCE, kTag, comm_, &found, &message, &status) != MPI_SUCCESS || found == 0) return;
      int size = 0;
      MPI_Get_count(&status, MPI_BYTE, &size);
      Pending& pending = receives_.emplace_back(
          Pending{MPI_REQUEST_NULL, status.MPI_SOURCE, Bytes(static_cast<std::size_t>(std::max(size, 0)))});
      if (MPI_Imrecv(pending.bytes.data(), size, MPI_BYTE, &message, &pending.request) != MPI_SUCCESS) {
        receives_.pop_back();
      }
    }
  }

  MPI_Comm comm_;
  int rank_;
  int world_;
  bool owns_mpi_;
  bool given_up_ = false;
  Timeout timeout_;
  std::list<Pending> sends_;     ///< list: MPI keeps the addresses until a request is done
  std::list<Pending> receives_;  ///< large messages take several polls
};

std::string text_of(int mpi_error) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(mpi_error, text, &length) != MPI_SUCCESS) return "MPI error " + std::to_string(mpi_error);
  return {text, static_cast<std::size_t>(length)};
}

/// True when this call initialised MPI.
Result<bool> ensure_initialised() {
  int flag = 0;
  MPI_Finalized(&flag);
  if (flag != 0) return Error{ErrorCode::environment, "MPI is already finalised in this process"};
  MPI_Initialized(&flag);
  if (flag != 0) return false;
  int provided = 0;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided); error != MPI_SUCCESS) {
    return Error{ErrorCode::environment, "MPI_Init_thread failed: " + text_of(error)};
  }
  return true;
}

}  // namespace

bool built_with_mpi() noexcept { return true; }

Result<std::unique_ptr<Communicator>> make_mpi_communicator(const std::optional<LauncherPlace>& place,
                                                            Timeout timeout) {
  const auto owns_mpi = ensure_initialised();
  if (!owns_mpi) return owns_mpi.error();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0;
  int world_size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (auto status = check_launcher(place, world_size); !status) return status.error();

  // A communicator of our own: no message of the program's can be taken for one of ours.
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  if (const int error = MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request); error != MPI_SUCCESS) {
    return Error{ErrorCode::environment, "MPI_Comm_idup failed: " + text_of(error), rank};
  }
  if (!MpiTransport::wait_for(request, std::chrono::steady_clock::now() + timeout)) {
    return Error{ErrorCode::deadline_exceeded, "not all of " + std::to_string(world_size) +
                                                   " ranks joined the communicator within " +
                                                   std::to_string(timeout.count()) + " ms"};
  }
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return std::unique_ptr<Communicator>(std::make_unique<multigpu::MessageCommunicator>(
      std::make_unique<MpiTransport>(comm, rank, world_size, *owns_mpi, timeout)));
}

}  // namespace kvpool
