#include "tools/gpu_check/report.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace kvpool::gpu_check {
namespace {

constexpr std::size_t kFields = 8;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\t', ' ');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::vector<Row> read_rows(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".tsv") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Row> rows;
  for (const auto& path : files) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::vector<std::string> fields;
      std::istringstream stream(line);
      for (std::string field; std::getline(stream, field, '\t');) fields.push_back(field);
      fields.resize(kFields);
      rows.push_back({fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6], fields[7]});
    }
  }
  return rows;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + '"';
}

void write_json(const std::vector<Row>& rows, const std::string& path) {
  std::ofstream file(path);
  file << "[\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    file << "  {\"step\": " << quoted(r.step) << ", \"name\": " << quoted(r.name) << ", \"value\": " << quoted(r.value)
         << ", \"unit\": " << quoted(r.unit) << ", \"floor\": " << quoted(r.floor) << ", \"good\": " << quoted(r.good)
         << ", \"verdict\": " << quoted(r.verdict) << ", \"note\": " << quoted(r.note) << "}"
         << (i + 1 < rows.size() ? ",\n" : "\n");
  }
  file << "]\n";
}

}  // namespace

Report::Report(const std::string& folder, std::string step)
    : step_(std::move(step)), file_(std::fopen((folder + "/" + step_ + ".tsv").c_str(), "a")) {}

Report::~Report() {
  if (file_ != nullptr) std::fclose(file_);
}

void Report::write(const Row& row) {
  const std::string* const fields[kFields] = {&row.step,  &row.name, &row.value,   &row.unit,
                                              &row.floor, &row.good, &row.verdict, &row.note};
  std::string line;
  for (const std::string* field : fields) line += (line.empty() ? "" : "\t") + one_line(*field);
  if (file_ != nullptr) {
    std::fprintf(file_, "%s\n", line.c_str());
    std::fflush(file_);
  }
  std::printf("%s: %s %s %s %s %s\n", row.step.c_str(), row.name.c_str(), row.value.c_str(), row.unit.c_str(),
              row.verdict.c_str(), row.note.c_str());
  std::fflush(stdout);
}

void Report::info(const std::string& name, const std::string& value, const std::string& unit, const std::string& note) {
  write({step_, name, value, unit, "", "", "info", note});
}

void Report::info(const std::string& name, double value, const std::string& unit, const std::string& note) {
  info(name, number(value), unit, note);
}

void Report::bar(const std::string& name, double value, const std::string& unit, double floor, double good,
                 Better better, const std::string& note) {
  const auto reaches = [&](double bar) { return better == Better::higher ? value >= bar : value <= bar; };
  const char* verdict = reaches(good) ? "good" : reaches(floor) ? "floor" : "below";
  write({step_, name, number(value), unit, number(floor), number(good), verdict, note});
}

bool Report::check(const std::string& name, bool ok, const std::string& note) {
  if (!ok) ++failures_;
  write({step_, name, "", "", "", "", ok ? "ok" : "FAILED", note});
  return ok;
}

int print_results(const std::string& folder) {
  const std::vector<Row> rows = read_rows(folder);
  write_json(rows, folder + "/results.json");
  int failed = 0;
  std::printf("\n%-12s %-58s %10s %-8s %8s %8s  %s\n", "step", "what", "value", "unit", "floor", "good", "verdict");
  for (const Row& r : rows) {
    failed += r.verdict == "FAILED" ? 1 : 0;
    std::printf("%-12s %-58s %10s %-8s %8s %8s  %s%s%s\n", r.step.c_str(), r.name.c_str(), r.value.c_str(),
                r.unit.c_str(), r.floor.c_str(), r.good.c_str(), r.verdict.c_str(), r.note.empty() ? "" : "  ",
                r.note.c_str());
  }
  std::printf("%zu rows, %d failed\n", rows.size(), failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace kvpool::gpu_check
