// SPDX-License-Identifier: BSD-3-Clause
// The factory functions of all terms by their Python names. Each is defined at the end of the file of its term.
#include <memory>
#include <stdexcept>
#include <string>

#include "score_term.h"

namespace headspan {

template <class T>
std::unique_ptr<ScoreTerm<T>> make_block_gates(const TermArrays<T>&);
template <class T>
std::unique_ptr<ScoreTerm<T>> make_distance_bias(const TermArrays<T>&);
template <class T>
std::unique_ptr<ScoreTerm<T>> make_pair_bias(const TermArrays<T>&);

template <class T>
std::unique_ptr<ScoreTerm<T>> make_score_term(const std::string& name, const TermArrays<T>& arrays) {
  static constexpr struct {
    const char* name;
    std::unique_ptr<ScoreTerm<T>> (*make)(const TermArrays<T>&);
  } table[] = {
      {"block_gates", make_block_gates<T>},
      {"distance_bias", make_distance_bias<T>},
      {"pair_bias", make_pair_bias<T>},
  };
  for (auto const& row : table)
    if (name == row.name) return row.make(arrays);
  throw std::invalid_argument("there is no score term named " + name);
}

template std::unique_ptr<ScoreTerm<float>> make_score_term(const std::string&, const TermArrays<float>&);
template std::unique_ptr<ScoreTerm<double>> make_score_term(const std::string&, const TermArrays<double>&);

}  // namespace headspan
