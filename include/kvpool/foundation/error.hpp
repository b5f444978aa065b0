// Errors of the environment and of the configuration: a code, a sentence with the numbers, a rank.
//
// kvpool has three tiers of failure. A *shortage* is no error: the call answers an empty optional or
// false and nothing has changed. A *broken contract* (double free, foreign id) goes to the failure
// handler of contract.hpp. Everything else, in this file, is a value: Status or Result<T>.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace kvpool {

enum class ErrorCode {
  invalid_argument,   ///< a parameter is outside its range
  invalid_config,     ///< a configuration contradicts itself or a rule of the library
  unsupported,        ///< valid, but not built or not available here
  not_enough_blocks,  ///< more blocks asked for than the pool can ever or now give
  unknown_request,
  duplicate_request,
  unknown_block,      ///< a block id outside the pool
  double_free,        ///< more references given back than taken
  bad_input,          ///< a file or message that cannot be read; the message names the position
  out_of_memory,      ///< the host or device has not enough bytes
  environment,        ///< no device, no launcher, a system call failed
  deadline_exceeded,  ///< a peer did not answer in time
  rank_failed,        ///< a peer reported an error or died; `rank` names it
  layout_mismatch,    ///< ranks disagree about what a block means; `rank` names the first one
  internal,           ///< a bug in kvpool
};

/// Lower-case name of a code, as used in op scripts and messages ("not_enough_blocks").
[[nodiscard]] std::string_view to_string(ErrorCode code) noexcept;

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;  ///< one sentence, with the offending value and its unit
  int rank = -1;        ///< rank at fault, -1 when no single rank is
};

/// Either success or an Error.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT(google-explicit-constructor)
  Status(ErrorCode code, std::string message, int rank = -1) : error_{code, std::move(message), rank}, ok_(false) {}

  [[nodiscard]] bool ok() const noexcept { return ok_; }
  explicit operator bool() const noexcept { return ok_; }
  /// Precondition: !ok().
  [[nodiscard]] const Error& error() const noexcept { return error_; }

 private:
  Error error_;
  bool ok_ = true;
};

/// Either a T or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  Result(ErrorCode code, std::string message, int rank = -1)
      : state_(std::in_place_index<1>, Error{code, std::move(message), rank}) {}

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  /// Precondition: ok().
  [[nodiscard]] T& value() & { return std::get<0>(state_); }
  [[nodiscard]] const T& value() const& { return std::get<0>(state_); }
  [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  /// Precondition: !ok().
  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }
  [[nodiscard]] Status status() const { return ok() ? Status{} : Status{error()}; }

 private:
  std::variant<T, Error> state_;
};

}  // namespace kvpool
