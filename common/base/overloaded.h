// Visits a std::variant with one lambda for each alternative:
//
//   std::visit(Overloaded{[](const A&) { ... }, [](const B&) { ... }}, variant);
#ifndef RUBATO_COMMON_BASE_OVERLOADED_H_
#define RUBATO_COMMON_BASE_OVERLOADED_H_

namespace rubato {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_OVERLOADED_H_
