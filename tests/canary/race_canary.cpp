// Two threads, one plain integer, no order between them: ThreadSanitizer must say so.
#include <cstdio>
#include <thread>

int main() {
  int shared = 0;
  std::thread writer([&shared] {
    for (int i = 0; i < 1000; ++i) shared += i;
  });
  for (int i = 0; i < 1000; ++i) shared -= i;
  writer.join();
  std::printf("%d\n", shared);
  return 0;
}
