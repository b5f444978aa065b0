// The agreement without network faults: what ranks bring, and what all of them return.
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

#include "fake_storage.hpp"
#include "multigpu/agreement_messages.hpp"
#include "multigpu/byte_order.hpp"
#include "thread_ranks.hpp"

namespace kvpool {
namespace {

using namespace std::chrono_literals;
using testing::FakeStorage;
using testing::on_thread_ranks;
using testing::small_layout;
using testing::view_of;

AgreementOptions options_with(Timeout deadline = 10s) {
  AgreementOptions options;
  options.deadline = deadline;
  return options;
}

/// Every rank's result as text; they must all be equal.
std::string common_outcome(int world, const std::function<Result<Agreement>(Communicator&)>& rank_body) {
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  on_thread_ranks(world, [&](Communicator& comm) {
    const auto agreement = rank_body(comm);
    auto& text = texts[static_cast<std::size_t>(comm.rank())];
    if (agreement) {
      text = "ok";
      for (const auto blocks : agreement->num_blocks) text += " " + std::to_string(blocks);
      text += " rounds " + std::to_string(agreement->commit_rounds);
    } else {
      text = testing::to_text(agreement.error());
    }
  });
  for (const auto& text : texts) EXPECT_EQ(text, texts[0]);
  return texts[0];
}

TEST(RankCoordinator, ManyPoolsTakeTheirOwnMinimum) {
  const auto text = common_outcome(3, [](Communicator& comm) {
    RankView view = view_of(0);
    view.limits = {100 + comm.rank(), 200 - comm.rank(), 50};
    FakeStorage storage;
    return RankCoordinator(comm, options_with()).agree(view, storage);
  });
  EXPECT_EQ(text, "ok 100 198 50 rounds 1");
}

TEST(RankCoordinator, AnswersTheTableOfAllRanks) {
  on_thread_ranks(2, [](Communicator& comm) {
    FakeStorage storage;
    const auto agreement = RankCoordinator(comm, options_with()).agree(view_of(10 + comm.rank()), storage);
    ASSERT_TRUE(agreement.ok());
    EXPECT_EQ(agreement->rank_limits, (std::vector<std::vector<std::int64_t>>{{10}, {11}}));
    EXPECT_EQ(agreement->layout_digest.size(), 64U);
  });
}

TEST(RankCoordinator, AnOverrideMustFitEverywhereAndIsTheSameEverywhere) {
  const auto with_override = [](std::int64_t blocks) {
    return common_outcome(3, [&](Communicator& comm) {
      AgreementOptions options = options_with();
      options.num_blocks_override = {blocks};
      FakeStorage storage;
      return RankCoordinator(comm, options).agree(view_of(comm.rank() == 1 ? 400 : 1000), storage);
    });
  };
  EXPECT_EQ(with_override(300), "ok 300 rounds 1");
  EXPECT_EQ(with_override(500), "out_of_memory 1 rank 1 can hold 400 blocks in pool 0, the override asks for 500");
  const auto different = common_outcome(2, [](Communicator& comm) {
    AgreementOptions options = options_with();
    options.num_blocks_override = {10 + comm.rank()};
    FakeStorage storage;
    return RankCoordinator(comm, options).agree(view_of(100), storage);
  });
  EXPECT_EQ(different, "layout_mismatch 1 rank 1: agreement num_blocks_override 0 11, rank 0: 10");
}

TEST(RankCoordinator, TheLeastUsefulCountIsChecked) {
  const auto text = common_outcome(2, [](Communicator& comm) {
    AgreementOptions options = options_with();
    options.min_blocks = {64};
    FakeStorage storage;
    return RankCoordinator(comm, options).agree(view_of(comm.rank() == 1 ? 63 : 100), storage);
  });
  EXPECT_EQ(text, "out_of_memory 1 rank 1 can hold 63 blocks in pool 0, at least 64 are needed");
}

TEST(RankCoordinator, TheOddOneOutIsNamedEvenWhenItIsRankZero) {
  const auto text = common_outcome(3, [](Communicator& comm) {
    RankView view = view_of(10);
    if (comm.rank() == 0) view.layout = small_layout("512");
    FakeStorage storage;
    return RankCoordinator(comm, options_with()).agree(view, storage);
  });
  EXPECT_EQ(text, "layout_mismatch 0 rank 0: group 1 sliding_window 512, rank 1: 1024");
}

TEST(RankCoordinator, EveryFailedProfileIsQuoted) {
  const auto text = common_outcome(4, [](Communicator& comm) {
    RankView view = view_of(10);
    if (comm.rank() % 2 == 1) {
      view.profiling = {ErrorCode::environment, "no device " + std::to_string(comm.rank())};
      view.limits.clear();
    }
    FakeStorage storage;
    return RankCoordinator(comm, options_with()).agree(view, storage);
  });
  EXPECT_EQ(text, "rank_failed 1 rank 1: profiling failed: no device 1; rank 3: profiling failed: no device 3");
}

TEST(RankCoordinator, FailedAllocationsGoIntoAnotherRoundAndThenEnd) {
  const auto shrinking = [](int max_rounds, std::int64_t step) {
    return common_outcome(3, [&](Communicator& comm) {
      AgreementOptions options = options_with();
      options.max_commit_rounds = max_rounds;
      FakeStorage storage(comm.rank() == 2 ? 100 - step : 1000);
      auto agreement = RankCoordinator(comm, options).agree(view_of(100), storage);
      EXPECT_EQ(storage.held.empty(), !agreement.ok());
      return agreement;
    });
  };
  EXPECT_EQ(shrinking(2, 40), "ok 60 rounds 2");
  EXPECT_EQ(shrinking(1, 40), "out_of_memory 2 rank 2 could not allocate 100 blocks in round 1: only 60 blocks fit");
  const auto failing_verify = common_outcome(2, [](Communicator& comm) {
    AgreementOptions options = options_with();
    options.max_commit_rounds = 3;
    FakeStorage storage(1000);
    storage.on_verify = [&] {
      return comm.rank() == 1 ? Status{ErrorCode::out_of_memory, "the profile run does not fit"} : Status{};
    };
    auto agreement = RankCoordinator(comm, options).agree(view_of(160), storage);
    EXPECT_EQ(storage.attempts, 3) << "each round asks for less, also when the storage claims the same";
    EXPECT_TRUE(storage.held.empty());
    return agreement;
  });
  EXPECT_NE(failing_verify.find("rank 1 could not allocate 141 blocks in round 3"), std::string::npos)
      << failing_verify;
}

TEST(RankCoordinator, AnExceptionOfTheStorageIsThatRanksError) {
  const auto text = common_outcome(2, [](Communicator& comm) {
    AgreementOptions options = options_with();
    options.max_commit_rounds = 1;
    FakeStorage storage;
    if (comm.rank() == 1) storage.on_allocate = [] { throw std::runtime_error("driver fell over"); };
    return RankCoordinator(comm, options).agree(view_of(5), storage);
  });
  EXPECT_EQ(text, "out_of_memory 1 rank 1 could not allocate 5 blocks in round 1: exception: driver fell over");
}

TEST(RankCoordinator, AgreesAgainWithOtherLimits) {
  on_thread_ranks(3, [](Communicator& comm) {
    FakeStorage storage;
    RankCoordinator coordinator(comm, options_with());
    ASSERT_EQ(coordinator.agree(view_of(100), storage)->num_blocks.front(), 100);
    EXPECT_EQ(coordinator.agree(view_of(comm.rank() == 2 ? 80 : 200), storage)->num_blocks.front(), 80);
    EXPECT_EQ(coordinator.agree(view_of(300), storage)->num_blocks.front(), 300);
    EXPECT_EQ(storage.held, std::vector<std::int64_t>{300});
  });
}

TEST(RankCoordinator, ForeignHellosAreNamed) {
  const auto with_rank_1_sending = [](const Bytes& message) {
    std::string text;
    on_thread_ranks(2, [&](Communicator& comm) {
      if (comm.rank() == 1) {
        (void)comm.agree("hello", message, 10s);
        return;
      }
      FakeStorage storage;
      const auto agreement = RankCoordinator(comm, options_with()).agree(view_of(5), storage);
      text = agreement ? "ok" : testing::to_text(agreement.error());
    });
    return text;
  };
  multigpu::HelloMessage hello{2, 2, 1, {}, {}, std::string(64, 'a')};
  EXPECT_EQ(with_rank_1_sending(encode(hello)),
            "layout_mismatch 1 rank 1 speaks version 2 of the agreement, others version 1");
  hello.protocol_version = 1;
  hello.rank = 0;
  EXPECT_EQ(with_rank_1_sending(encode(hello)),
            "layout_mismatch 1 rank 1 takes itself for rank 0 of 2, in a world of 2");
  EXPECT_EQ(with_rank_1_sending(Bytes(7, std::byte{1})),
            "bad_input 1 rank 1 sent 7 bytes in step 'hello' that cannot be read");
  Bytes longer = encode(multigpu::HelloMessage{1, 2, 1, {}, {}, std::string(64, 'a')});
  longer.push_back(std::byte{0});
  EXPECT_EQ(with_rank_1_sending(longer).substr(0, 11), "bad_input 1");
}

TEST(RankCoordinator, NoPrefixOfAMessageIsTakenForTheWhole) {
  const Bytes hello = encode(multigpu::HelloMessage{1, 4, 2, {ErrorCode::internal, "why"}, {}, std::string(64, 'f')});
  const Bytes commit = encode(multigpu::CommitMessage{{ErrorCode::out_of_memory, "full"}, {1, -2, 3}});
  EXPECT_TRUE(multigpu::decode_hello(hello).has_value());
  EXPECT_TRUE(multigpu::decode_commit(commit, 3).has_value());
  EXPECT_FALSE(multigpu::decode_commit(commit, 2).has_value());
  for (std::size_t length = 0; length < hello.size(); ++length) {
    EXPECT_FALSE(multigpu::decode_hello(std::span(hello).first(length)).has_value()) << length;
  }
  for (std::size_t length = 0; length < commit.size(); ++length) {
    EXPECT_FALSE(multigpu::decode_commit(std::span(commit).first(length), 3).has_value()) << length;
  }
}

TEST(RankCoordinator, EightThreadRanksAgreeAgainAndAgain) {
  // How long it takes is measured by the benchmark (`ranks_agreement`).
  for (std::int64_t run = 0; run < 15; ++run) {
    on_thread_ranks(8, [run](Communicator& comm) {
      FakeStorage storage;
      const auto agreement = RankCoordinator(comm, options_with()).agree(view_of(100 + run + comm.rank()), storage);
      ASSERT_TRUE(agreement.ok()) << agreement.error().message;
      EXPECT_EQ(agreement->num_blocks, std::vector<std::int64_t>{100 + run});
      EXPECT_EQ(storage.held, agreement->num_blocks);
    });
  }
}

}  // namespace
}  // namespace kvpool
