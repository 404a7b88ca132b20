// SPDX-License-Identifier: Apache-2.0
// A copier that does nothing until it is told to: the test decides when a transfer ends, and
// whether it fails or is refused. So everything that happens depends on the test alone.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "copy/transfer_plan.h"
#include "copy/transfer_task.h"
#include "pando/copier.h"

namespace pando::testing {

class StepCopier final : public Copier {
 public:
  Result<Transfer> backup(const PagePairs& pages, std::size_t stream) override {
    return submit(pages, stream, Direction::backup);
  }
  Result<Transfer> load(const PagePairs& pages, std::size_t stream, LoadOrder) override {
    return submit(pages, stream, Direction::load);
  }
  Result<Transfer> move(KvPool& pool, std::span<const SlotId> dst, std::span<const SlotId> src,
                        std::size_t stream) override {
    return inner_->move(pool, dst, src, stream);
  }
  Status wait_for_stream(void*, std::size_t) override {
    return Error{ErrorCode::unavailable, "no CUDA streams here"};
  }
  std::size_t num_streams() const override { return inner_->num_streams(); }

  /// The next so many calls are refused.
  void refuse(std::size_t n) { refused_ = n; }
  /// From now on transfers run when they are submitted, and fail if so told.
  void at_once(bool yes) { at_once_ = yes; }
  void fail_at_once(bool yes) { fail_at_once_ = yes; }

  std::size_t num_queued(std::size_t stream) const { return queues_[stream].size(); }
  /// Ends the oldest transfer of a stream, if there is one: its bytes arrive, or it fails halfway.
  void step(std::size_t stream, bool succeed = true) {
    if (queues_[stream].empty()) return;
    Job job = std::move(queues_[stream].front());
    queues_[stream].pop_front();
    run(job, succeed);
  }
  void run_all() {
    for (std::size_t stream = 0; stream < 3; ++stream) {
      while (num_queued(stream) > 0) step(stream);
    }
  }

 private:
  struct Job {
    std::shared_ptr<TransferTask> task;
    Direction direction;
    KvPool* device;
    HostPool* host;
    std::vector<PageId> device_pages;
    std::vector<HostPageId> host_pages;
  };

  Result<Transfer> submit(const PagePairs& pages, std::size_t stream, Direction direction) {
    if (refused_ > 0) {
      --refused_;
      return Error{ErrorCode::io_error, "the copier refuses"};
    }
    Result<CopyPlan> plan = plan_pages(pages, direction);
    if (!plan) return plan.error();
    Job job{std::make_shared<TransferTask>(std::move(*plan), hold(pages.device, pages.host)),
            direction,
            &pages.device,
            &pages.host,
            {pages.device_pages.begin(), pages.device_pages.end()},
            {pages.host_pages.begin(), pages.host_pages.end()}};
    Transfer transfer(job.task);
    if (at_once_) {
      run(job, !fail_at_once_);
    } else {
      queues_[stream].push_back(std::move(job));
    }
    return transfer;
  }

  void run(Job& job, bool succeed) {
    if (!job.task->begin()) return;  // cancelled
    const std::size_t n = succeed ? job.device_pages.size() : job.device_pages.size() / 2;
    const PagePairs pairs{*job.device, *job.host, std::span(job.device_pages).first(n),
                          std::span(job.host_pages).first(n)};
    const Result<Transfer> inner = job.direction == Direction::backup
                                       ? inner_->backup(pairs, 0)
                                       : inner_->load(pairs, 0, LoadOrder::by_page);
    inner->wait().value();
    if (!succeed) {
      job.task->fail({ErrorCode::io_error, "the copier fails"});
      return;
    }
    job.task->set_layers_ready(job.task->num_layers());
    job.task->finish();
  }

  /// One for all: threads take longer to start than a test to run.
  static Copier& shared() {
    static const std::unique_ptr<Copier> copier = *make_cpu_copier({.num_threads = 1});
    return *copier;
  }

  Copier* const inner_ = &shared();
  std::deque<Job> queues_[3];
  std::size_t refused_ = 0;
  bool at_once_ = false;
  bool fail_at_once_ = false;
};

}  // namespace pando::testing
