// SPDX-License-Identifier: Apache-2.0
// Lanes, and which memory a page is read to or written from.
#include "store/file/lane.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>

#include "base/check.h"

namespace pando {
namespace {

bool is_aligned(const std::span<std::byte>& piece, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(piece.data()) % alignment == 0 &&
         piece.size() % alignment == 0;
}

bool needs_bounce(const StorePage& page, const IoMode& mode) {
  if (page.pieces.size() + 2 > IOV_MAX) return true;
  if (!mode.direct_alignment) return false;
  return !std::all_of(page.pieces.begin(), page.pieces.end(),
                      [&](const auto& piece) { return is_aligned(piece, *mode.direct_alignment); });
}

}  // namespace

void BlockBuffer::Free::operator()(std::byte* memory) const { std::free(memory); }

std::span<std::byte> BlockBuffer::resize(std::size_t size_bytes) {
  size_bytes = static_cast<std::size_t>(whole_blocks(size_bytes));
  if (size_bytes > size_bytes_) {
    memory_.reset();
    size_bytes_ = 0;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, size_bytes)));
    if (memory_ == nullptr) return {};
    size_bytes_ = size_bytes;
  }
  return {memory_.get(), size_bytes};
}

Status PageTransfer::aim(const StorePage& target, const IoMode& mode) {
  const std::size_t page_bytes = target.size_bytes();
  const auto blocks_bytes = static_cast<std::size_t>(whole_blocks(page_bytes));
  const bool bounces = needs_bounce(target, mode);
  const std::span<std::byte> own = own_.resize(2 * kBlockBytes + (bounces ? blocks_bytes : 0));
  if (own.empty())
    return make_error(ErrorCode::out_of_capacity, "no memory for a copy of the page of {} bytes",
                      page_bytes);
  header_ = own.first(kBlockBytes);
  pieces_.clear();
  pieces_.push_back({header_.data(), kBlockBytes});
  if (bounces) {
    bounce_ = own.subspan(kBlockBytes, blocks_bytes);
    pieces_.push_back({bounce_.data(), bounce_.size()});
    return {};
  }
  bounce_ = {};
  for (const std::span<std::byte>& piece : target.pieces)
    if (!piece.empty()) pieces_.push_back({piece.data(), piece.size()});
  if (const std::size_t padding = blocks_bytes - page_bytes; padding > 0) {
    std::fill_n(own.data() + kBlockBytes, padding, std::byte{0});
    pieces_.push_back({own.data() + kBlockBytes, padding});
  }
  return {};
}

void PageTransfer::gather(const StorePage& source) {
  if (bounce_.empty()) return;
  std::byte* at = bounce_.data();
  for (const std::span<std::byte>& piece : source.pieces)
    at = std::copy(piece.begin(), piece.end(), at);
  std::fill(at, bounce_.data() + bounce_.size(), std::byte{0});
}

void PageTransfer::scatter(const StorePage& target) {
  if (bounce_.empty()) return;
  const std::byte* at = bounce_.data();
  for (const std::span<std::byte>& piece : target.pieces) {
    std::copy_n(at, piece.size(), piece.data());
    at += piece.size();
  }
}

Lane::Lane(const IoMode& mode) {
  if (mode.uring) io_ = make_uring_io(mode.depth);
  if (io_ == nullptr) io_ = make_plain_io();
}

PageTransfer& Lane::take() {
  if (free_.empty())
    free_.push_back(
        transfers_.emplace_back(std::make_unique<PageTransfer>(transfers_.size())).get());
  PageTransfer* transfer = free_.back();
  free_.pop_back();
  return *transfer;
}

void Lane::give_back(PageTransfer& transfer) {
  transfer.write = {};
  transfer.read = {};
  transfer.restamp = transfer.retried = false;
  free_.push_back(&transfer);
}

void Lane::submit(PageTransfer& transfer, const Fd& file, bool write) {
  ++under_way_;
  io_->submit({file.get(), write, transfer.pieces(), transfer.number()});
}

std::span<const Lane::Done> Lane::wait() {
  done_.clear();
  for (const FileDone& done : io_->wait())
    done_.push_back({*transfers_[done.number], done.error, done.size_bytes});
  under_way_ -= done_.size();
  return done_;
}

LanePool::Lease LanePool::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return {new Lane(mode_), GiveBack{this}};
  Lane* lane = idle_.back().release();
  idle_.pop_back();
  return {lane, GiveBack{this}};
}

void LanePool::GiveBack::operator()(Lane* lane) const {
  const std::lock_guard lock(pool->mutex_);
  pool->idle_.emplace_back(lane);
}

std::size_t num_threads_for(const StoreBatch& batch, const IoMode& mode) {
  constexpr std::size_t kPagesForTwo = 16;  // starting a thread costs as much as one or two pages
  static const bool has_cores = std::thread::hardware_concurrency() > 1;
  const bool is_worth_it = mode.uring && mode.depth > 1 && batch.size() >= kPagesForTwo &&
                           batch.page(0).size_bytes() < kSmallPageBytes;
  return has_cores && is_worth_it ? 2 : 1;
}

void run_on(std::size_t num_threads, const std::function<void()>& work) {
  if (num_threads == 1) return work();
  struct Second {
    std::thread thread;
    std::exception_ptr thrown;
    ~Second() {
      if (thread.joinable()) thread.join();
    }
  } second;
  try {
    second.thread = std::thread([&] {
      try {
        work();
      } catch (...) {
        second.thrown = std::current_exception();
      }
    });
  } catch (const std::system_error&) {  // no more threads: all of it is done here
  }
  work();
  if (second.thread.joinable()) second.thread.join();
  if (second.thrown) std::rethrow_exception(second.thrown);
}

}  // namespace pando
