// One visitor out of several lambdas, for std::visit over specs.
#pragma once

namespace kvpool::config {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace kvpool::config
