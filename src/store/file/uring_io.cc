// SPDX-License-Identifier: Apache-2.0
// Requests through an io_uring. Each is handed to the kernel at once, so that the device works
// while the caller hashes the next page. Setting the ring up may be refused (an old kernel, a
// container's rules, no memory to lock): the caller then does without.
#include <liburing.h>

#include <cerrno>
#include <vector>

#include "base/check.h"
#include "store/file/file_io.h"

namespace pando {
namespace {

class UringIo final : public FileIo {
 public:
  explicit UringIo(std::size_t depth) : depth_(depth) {}
  ~UringIo() override {
    PANDO_CHECK(!ready_ || num_under_way_ == 0, "{} requests under way in a ring that goes",
                num_under_way_);
    if (ready_) ::io_uring_queue_exit(&ring_);
  }
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;

  bool init() {
    ready_ = ::io_uring_queue_init(static_cast<unsigned>(2 * depth_), &ring_, 0) == 0;
    return ready_;
  }

  std::size_t depth() const override { return depth_; }

  void submit(const FileRequest& request) override {
    if (request.number >= requests_.size()) requests_.resize(request.number + 1);
    requests_[request.number] = request;
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    PANDO_CHECK(entry != nullptr, "a ring for {} requests is full with {}", 2 * depth_,
                num_under_way_);
    const auto count = static_cast<unsigned>(request.pieces.size());
    if (request.write) {
      ::io_uring_prep_writev(entry, request.fd, request.pieces.data(), count, 0);
    } else {
      ::io_uring_prep_readv(entry, request.fd, request.pieces.data(), count, 0);
    }
    ::io_uring_sqe_set_data64(entry, request.number);
    ++num_under_way_;
    ::io_uring_submit(&ring_);  // what it does not take now stays in the ring; wait() submits again
  }

  std::span<const FileDone> wait() override {
    PANDO_CHECK(num_under_way_ > 0, "a wait for no request");
    done_.clear();
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(&ring_, &entry) != 0) ::io_uring_submit_and_wait(&ring_, 1);
    do done_.push_back(take(entry));
    while (::io_uring_peek_cqe(&ring_, &entry) == 0);
    return done_;
  }

 private:
  FileDone take(io_uring_cqe* entry) {
    const auto number = static_cast<std::size_t>(::io_uring_cqe_get_data64(entry));
    const int result = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    --num_under_way_;
    if (result == -EINTR || result == -EAGAIN) return transfer_rest(requests_[number], 0);
    if (result < 0) return {.number = number, .error = -result};
    return transfer_rest(requests_[number], static_cast<std::size_t>(result));
  }

  const std::size_t depth_;
  io_uring ring_{};
  bool ready_ = false;
  std::vector<FileRequest> requests_;  // by number
  std::vector<FileDone> done_;         // at the last wait()
  std::size_t num_under_way_ = 0;
};

}  // namespace

std::unique_ptr<FileIo> make_uring_io(std::size_t depth) {
  auto io = std::make_unique<UringIo>(depth);
  if (!io->init()) return nullptr;
  return io;
}

}  // namespace pando
