// Runs the kvpool program as a user would.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "folder.hpp"

extern char** environ;

namespace kvpool::tools::testing_support {

/// A program that has been started with its output going to files.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), KVPOOL_PROGRAM);
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, folder_.path("out").c_str(), kFlags, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, folder_.path("err").c_str(), kFlags, 0600);
    const int error = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      throw std::runtime_error("cannot start " KVPOOL_PROGRAM);
    }
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Where its output goes meanwhile.
  [[nodiscard]] std::string out_path() const { return folder_.path("out"); }

  /// Waits for the end; answers the exit status, or 1000 + the signal that ended it.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    out = read_file(folder_.path("out"));
    err = read_file(folder_.path("err"));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  std::string out;
  std::string err;

 private:
  Folder folder_;
  pid_t pid_ = 0;
};

struct Finished {
  int status = 0;
  std::string out;
  std::string err;
};

inline Finished run_program(const std::vector<std::string>& arguments) {
  Program program(arguments);
  const int status = program.wait();
  return {status, program.out, program.err};
}

}  // namespace kvpool::tools::testing_support
