#include "multigpu/nvml_library.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <utility>
#include <vector>

namespace kvpool::multigpu {

namespace {

using Device = void*;

// Binary interface of version 3 of the process list; stable since driver 510.
struct ProcessInfo {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
struct MemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr unsigned long long kNotAvailable = ~0ULL;
constexpr unsigned int kMaxProcesses = 4096;

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct NvmlLibrary::Functions {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_by_uuid)(const char*, Device*) = nullptr;
  int (*memory_info)(Device, MemoryInfo*) = nullptr;
  int (*compute_processes)(Device, unsigned int*, ProcessInfo*) = nullptr;
};

std::unique_ptr<NvmlLibrary> NvmlLibrary::load() {
  auto functions = std::make_unique<Functions>();
  functions->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (functions->library == nullptr) return nullptr;
  void* const library = functions->library;
  const bool complete = find(library, "nvmlInit_v2", functions->init) &&
                        find(library, "nvmlShutdown", functions->shutdown) &&
                        find(library, "nvmlDeviceGetHandleByUUID", functions->device_by_uuid) &&
                        find(library, "nvmlDeviceGetMemoryInfo", functions->memory_info) &&
                        find(library, "nvmlDeviceGetComputeRunningProcesses_v3", functions->compute_processes);
  if (!complete || functions->init() != kSuccess) {
    dlclose(library);
    return nullptr;
  }
  return std::unique_ptr<NvmlLibrary>(new NvmlLibrary(std::move(functions)));
}

NvmlLibrary::NvmlLibrary(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

NvmlLibrary::~NvmlLibrary() {
  functions_->shutdown();
  dlclose(functions_->library);
}

ManagementFigures NvmlLibrary::figures(const std::string& uuid) const {
  ManagementFigures figures;
  Device device = nullptr;
  if (functions_->device_by_uuid(("GPU-" + uuid).c_str(), &device) != kSuccess &&
      functions_->device_by_uuid(("MIG-" + uuid).c_str(), &device) != kSuccess) {
    return figures;
  }
  MemoryInfo memory{};
  if (functions_->memory_info(device, &memory) == kSuccess) figures.total = static_cast<std::int64_t>(memory.total);

  std::vector<ProcessInfo> processes(64);
  auto count = static_cast<unsigned int>(processes.size());
  int result = functions_->compute_processes(device, &count, processes.data());
  if (result == kInsufficientSize && count < kMaxProcesses) {
    processes.resize(count + 16);
    count = static_cast<unsigned int>(processes.size());
    result = functions_->compute_processes(device, &count, processes.data());
  }
  if (result != kSuccess || count > processes.size()) return figures;

  // In a container the list holds ids of another name space: a process that does not find itself knows nothing.
  const auto self = static_cast<unsigned int>(getpid());
  std::int64_t others = 0;
  bool all_known = true;
  for (unsigned int i = 0; i < count; ++i) {
    const ProcessInfo& process = processes[i];
    const bool known = process.used_bytes != kNotAvailable;
    if (process.pid == self) {
      if (known) figures.own_process = static_cast<std::int64_t>(process.used_bytes);
    } else {
      all_known = all_known && known;
      if (known) others += static_cast<std::int64_t>(process.used_bytes);
    }
  }
  if (figures.own_process && all_known) figures.other_processes = others;
  return figures;
}

}  // namespace kvpool::multigpu
