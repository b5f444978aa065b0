// Refusals by name, the caller's current device, and captured graphs.
#include "tools/gpu_check/correctness.hpp"
#include "tools/gpu_check/device_case.hpp"
#include "tools/gpu_check/steps.hpp"

namespace kvpool::gpu_check {
namespace {

using namespace kernels;
using test::AttentionCase;
using test::CaseSpec;
using test::kReference;
using test::Output;

CaseSpec plain_spec() {
  CaseSpec spec;
  spec.cache = DType::bfloat16;
  spec.query = DType::bfloat16;
  spec.dim = 128;
  spec.seq_lens = {40, 900, 1};
  return spec;
}

void check_refusals(Report& report) {
  CaseSpec spec = plain_spec();
  spec.dim = 46;
  const Output odd = DeviceCase(AttentionCase(spec)).run();
  report.check("head size 46 is refused by name",
               !odd.status && odd.status.error().message.find("46") != std::string::npos);
  spec = plain_spec();
  spec.cache = DType::float32;
  report.check("an fp32 cache is refused", !DeviceCase(AttentionCase(spec)).run().status);
  spec.cache = DType::bfloat16;
  spec.seq_lens.clear();
  report.check("an empty batch launches nothing", DeviceCase(AttentionCase(spec)).run().status.ok());
}

void check_device_kept(Report& report) {
  int count = 0;
  must(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (count < 2) {
    report.info("a pool on device 1 while device 0 is current", "not run", "", "one device");
    return;
  }
  must(cudaSetDevice(1), "cudaSetDevice");
  const AttentionCase c(plain_spec());
  DeviceCase device(c);
  device.poison();
  must(cudaSetDevice(0), "cudaSetDevice");
  ExecOptions exec;
  exec.backend = Backend::cuda;
  exec.device = 1;
  const bool ran = paged_attention(c.problem(), c.spec.seq_lens, {}, device.args(), exec).ok();
  int current = -1;
  must(cudaGetDevice(&current), "cudaGetDevice");
  must(cudaSetDevice(1), "cudaSetDevice");
  const Output got = device.results();
  must(cudaSetDevice(0), "cudaSetDevice");
  const Output want = run_case(c, kReference);
  report.check("a pool on device 1 while device 0 is current",
               ran && current == 0 && difference(c, got, want).rel_l2 <= 1e-5);
}

bool same_bits(const Output& a, const Output& b) { return a.bytes == b.bytes && a.lse == b.lse; }

/// Captures a step of a plan of fixed size; replays it for this batch and for another one.
void check_replay(Report& report, std::int64_t group) {
  cudaStream_t stream = nullptr;
  must(cudaStreamCreate(&stream), "cudaStreamCreate");
  CaseSpec spec = plain_spec();
  spec.group = group;
  const AttentionCase c(spec);
  DeviceCase device(c);
  ExecOptions exec;
  exec.backend = Backend::cuda;
  exec.stream = stream;
  const std::string label = ", group " + std::to_string(group);
  auto plan = AttentionPlan::reserve(c.problem(), {8, 16, 1024}, exec);
  if (!report.check("a plan of fixed size" + label, plan.ok(), plan ? "" : plan.error().message)) return;
  device.poison();
  bool ok = plan->replan(c.spec.seq_lens, {}).ok() && plan->run(device.args()).ok();
  const Output launched = device.results();
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  ok = plan->run(device.args()).ok() && ok;
  cudaGraph_t graph = nullptr;
  must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t replay = nullptr;
  must(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  const auto replayed = [&] {
    device.poison();
    must(cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
    return device.results();
  };
  report.check("graph replay: same bits as a stream launch" + label, ok && same_bits(launched, replayed()));

  std::vector<std::int32_t> shorter = c.spec.seq_lens;  // another batch in the same memory
  for (std::int32_t& len : shorter) len = 1 + len / 2;
  ok = plan->replan(shorter, {}).ok();
  const Output other = replayed();
  device.poison();
  ok = plan->run(device.args()).ok() && ok;
  report.check("graph replay of another batch: same bits as a stream launch" + label,
               ok && same_bits(other, device.results()) && !same_bits(other, launched));
  must(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
  must(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

}  // namespace

void check_launches(Report& report) {
  check_refusals(report);
  check_device_kept(report);
  check_replay(report, 4);
  check_replay(report, 8);
}

void check_correctness(Report& report, bool few) {
  check_attention(report, few);
  if (few) return;
  check_cache_ops(report);
  check_launches(report);
}

}  // namespace kvpool::gpu_check
