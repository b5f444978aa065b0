// Runs shell commands with a time-out and keeps what they said.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace kvpool::launch {

struct CommandResult {
  int status = -1;  ///< exit status; 128 + signal when killed by one
  bool timed_out = false;
  std::string out;
  std::string err;
  double seconds = 0;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A command in its own process group; the destructor ends what is left of it.
class RunningCommand {
 public:
  RunningCommand(const std::string& command, const std::filesystem::path& folder)
      : out_(folder / "stdout"), err_(folder / "stderr"), start_(std::chrono::steady_clock::now()) {
    child_ = fork();
    if (child_ != 0) return;
    setpgid(0, 0);
    redirect(out_, STDOUT_FILENO);
    redirect(err_, STDERR_FILENO);
    execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;
  ~RunningCommand() {
    if (!waited_) (void)wait(std::chrono::seconds(0));
  }

  [[nodiscard]] pid_t pid() const noexcept { return child_; }

  [[nodiscard]] CommandResult wait(std::chrono::seconds limit) {
    CommandResult result;
    int status = 0;
    while (waitpid(child_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() - start_ > limit) {
        result.timed_out = true;
        kill(-child_, SIGKILL);
        waitpid(child_, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    waited_ = true;
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.out = read_file(out_);
    result.err = read_file(err_);
    return result;
  }

 private:
  static void redirect(const std::filesystem::path& path, int descriptor) {
    const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
  }

  std::filesystem::path out_;
  std::filesystem::path err_;
  std::chrono::steady_clock::time_point start_;
  pid_t child_ = -1;
  bool waited_ = false;
};

/// A folder of its own for each test.
class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("kvpool-program-" + std::to_string(getpid()) + "-" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] CommandResult run(const std::string& command,
                                  std::chrono::seconds limit = std::chrono::seconds(120)) const {
    RunningCommand running(command, folder_);
    CommandResult result = running.wait(limit);
    EXPECT_FALSE(result.timed_out) << command << "\n" << result.err;
    return result;
  }

  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  /// A model whose heads three ranks can share.
  [[nodiscard]] std::string six_heads() const {
    return write("six.json",
                 R"({"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16})");
  }

  /// `requests` prompts of 3 to 8 ids with 512 tokens each; every third starts like the one before.
  [[nodiscard]] std::string trace(int requests) const {
    std::string text = "# kvtrace 1\n# kind ids\n# title program\n# block_size 512\n";
    for (int i = 0; i < requests; ++i) {
      const int ids = 3 + i % 6;
      const int shared = i % 3 == 0 ? 2 : 0;
      text += std::to_string(i) + " -1 " + std::to_string(ids * 512 - i % 100) + " " + std::to_string(40 + i % 200) +
              (shared > 0 ? " 2 0 2 " : " 1 ") + std::to_string(100 + i * 10) + " " + std::to_string(ids - shared) +
              "\n";
    }
    return write("program.kvt", text);
  }

  std::filesystem::path folder_;
};

}  // namespace kvpool::launch
