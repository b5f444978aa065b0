#include "tools/bench/interleave.hpp"

#include "tools/bench/quiet_run.hpp"
#include "tools/cli/interrupt.hpp"

namespace kvpool::tools {
namespace {

/// Median of the samples that have the figure; empty when none has.
template <class Get>
std::optional<double> median_of(const std::vector<Sample>& samples, Get&& get) {
  std::vector<double> values;
  for (const Sample& sample : samples) {
    if (const std::optional<double> value = get(sample)) {
      values.push_back(*value);
    }
  }
  return values.empty() ? std::nullopt : std::optional(median(std::move(values)));
}

BenchRow row_of(const std::vector<Sample>& samples) {
  BenchRow row;
  row.ns_per_block = median_of(samples, [](const Sample& sample) { return sample.ns_per_block; });
  row.ops_per_second = median_of(samples, [](const Sample& sample) { return sample.ops_per_second; });
  std::vector<Percentiles> latencies;
  for (const Sample& sample : samples) {
    if (sample.latency_us) {
      latencies.push_back(*sample.latency_us);
    }
  }
  if (!latencies.empty()) {
    row.latency_us = median(latencies);
  }
  for (const auto& entry : samples.front().more) {
    const std::string& name = entry.first;
    row.more[name] = *median_of(samples, [&](const Sample& sample) { return std::optional(sample.more.at(name)); });
  }
  return row;
}

}  // namespace

std::vector<BenchRow> interleave(const BenchPlan& plan, const std::vector<Contender>& contenders) {
  struct Collected {
    std::vector<std::vector<Sample>> samples;  // by name, then by repetition
    bool reliable = true;
  };
  std::vector<Collected> collected(contenders.size());
  for (std::size_t c = 0; c < contenders.size(); ++c) {
    collected[c].samples.resize(contenders[c].names.size());
  }
  for (int repetition = 0; repetition < (plan.smoke ? 1 : plan.repetitions); ++repetition) {
    for (std::size_t c = 0; c < contenders.size() && !interrupt_requested(); ++c) {
      std::vector<Sample> samples;
      const auto run = [&] { samples = contenders[c].run(); };
      if (plan.smoke) {
        run();
      } else if (!run_quietly(run)) {
        collected[c].reliable = false;
      }
      for (std::size_t i = 0; i < samples.size(); ++i) {
        collected[c].samples[i].push_back(std::move(samples[i]));
      }
      if (plan.progress != nullptr) {
        plan.progress->advance();
      }
    }
  }
  std::vector<BenchRow> rows;
  for (std::size_t c = 0; c < contenders.size(); ++c) {
    for (std::size_t i = 0; i < contenders[c].names.size(); ++i) {
      if (collected[c].samples[i].empty()) {
        continue;
      }
      BenchRow row = row_of(collected[c].samples[i]);
      row.name = contenders[c].names[i];
      row.pool = contenders[c].pool;
      row.threads = contenders[c].threads;
      row.reliable = collected[c].reliable;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

const BenchRow* find_row(const std::vector<BenchRow>& rows, const std::string& name, const std::string& pool) {
  for (const BenchRow& row : rows) {
    if (row.name == name && row.pool == pool) {
      return &row;
    }
  }
  return nullptr;
}

void report_against_kvpool(const BenchPlan& plan, std::vector<BenchRow> rows) {
  for (BenchRow& row : rows) {
    if (row.pool == "kvpool" || !row.ns_per_block) {
      continue;
    }
    for (const BenchRow& other : rows) {
      if (other.pool == "kvpool" && other.name == row.name && other.threads == row.threads &&
          other.ns_per_block.value_or(0) > 0) {
        row.more["over_kvpool"] = *row.ns_per_block / *other.ns_per_block;
      }
    }
  }
  for (BenchRow& row : rows) {
    plan.report->add(std::move(row));
  }
}

}  // namespace kvpool::tools
