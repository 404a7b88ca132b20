// SPDX-License-Identifier: Apache-2.0
// Copies between tiers. What a transfer copies between is held until it has ended.
#include "pando/copier.h"

#include <fmt/format.h>

#include <chrono>

#include "arrays.h"
#include "pools.h"
#include "structs.h"

namespace pando::python {

namespace {

/// The pages of both sides, held for the call.
class Pairs {
 public:
  Pairs(const PyKvPool& device, const PyHostPool& host, nb::handle device_pages,
        nb::handle host_pages)
      : device_(device),
        host_(host),
        device_pages_(device_pages, "device_pages"),
        host_pages_(host_pages, "host_pages") {}
  PagePairs view() const {
    const std::span<const PageId> host = host_pages_.view();
    return {*device_.pool, *host_.object, device_pages_.view(),
            std::span(reinterpret_cast<const HostPageId*>(host.data()), host.size())};
  }

 private:
  const PyKvPool& device_;
  const PyHostPool& host_;
  Items<PageId> device_pages_;
  Items<PageId> host_pages_;
};

PyTransfer under_way(PyCopier& copier, Transfer transfer, std::shared_ptr<KvPool> device,
                     std::shared_ptr<HostPool> host, bool is_load) {
  copier.under_way->add({transfer, device, std::move(host)});
  return {std::move(transfer), copier.under_way, std::move(device), is_load};
}

void bind_transfer(nb::module_& m) {
  Enum<TransferState>(m, "TransferState")
      .value("queued", TransferState::queued)
      .value("running", TransferState::running)
      .value("done", TransferState::done)
      .value("cancelled", TransferState::cancelled)
      .value("failed", TransferState::failed);
  Enum<LoadOrder>(m, "LoadOrder")
      .value("by_layer", LoadOrder::by_layer)
      .value("by_page", LoadOrder::by_page);
  Class<PyTransfer>(m, "Transfer")
      .def_prop_ro("state", [](const PyTransfer& self) { return self.transfer.state(); })
      .def_prop_ro("finished", [](const PyTransfer& self) { return self.transfer.finished(); })
      .def("wait",
           [](const PyTransfer& self) {
             const Status status = run(true, [&] { return self.transfer.wait(); });
             self.under_way->drop_finished();
             unwrap(status);
           })
      .def_prop_ro("layers_ready",
                   [](const PyTransfer& self) { return self.transfer.layers_ready(); })
      .def(
          "wait_layer",
          [](const PyTransfer& self, std::size_t layer) {
            unwrap(run(true, [&] { return self.transfer.wait_layer(layer); }));
          },
          nb::arg("layer"))
      .def("cancel", [](PyTransfer& self) { return self.transfer.cancel(); })
      .def_prop_ro("size_bytes", [](const PyTransfer& self) { return self.transfer.size_bytes(); })
      .def_prop_ro("duration", [](const PyTransfer& self) {
        return std::chrono::duration<double>(self.transfer.duration()).count();
      });
}

void bind_copies(Class<PyCopier>& type) {
  type.def(
          "backup",
          [](PyCopier& self, const PyKvPool& device, PyHostPool& host, TokensArg device_pages,
             TokensArg host_pages, std::size_t stream) {
            const Pairs pairs(device, host, device_pages.object, host_pages.object);
            return host.call("backup", [&](HostPool&) {
              return under_way(self, unwrap(self.copier->backup(pairs.view(), stream)), device.pool,
                               host.object, false);
            });
          },
          nb::arg("device"), nb::arg("host"), nb::arg("device_pages"), nb::arg("host_pages"),
          nb::arg("stream") = 0)
      .def(
          "load",
          [](PyCopier& self, const PyKvPool& device, PyHostPool& host, TokensArg device_pages,
             TokensArg host_pages, std::size_t stream, LoadOrder order) {
            const Pairs pairs(device, host, device_pages.object, host_pages.object);
            return host.call("load", [&](HostPool&) {
              return under_way(self, unwrap(self.copier->load(pairs.view(), stream, order)),
                               device.pool, host.object, true);
            });
          },
          nb::arg("device"), nb::arg("host"), nb::arg("device_pages"), nb::arg("host_pages"),
          nb::arg("stream") = 0, nb::arg("order") = LoadOrder::by_layer)
      .def(
          "move",
          [](PyCopier& self, const PyKvPool& pool, SlotsArg dst, SlotsArg src, std::size_t stream) {
            const Items<SlotId> to(dst.object, "dst");
            const Items<SlotId> from(src.object, "src");
            return under_way(self, unwrap(self.copier->move(*pool.pool, to, from, stream)),
                             pool.pool, nullptr, false);
          },
          nb::arg("pool"), nb::arg("dst"), nb::arg("src"), nb::arg("stream") = 0)
      .def(
          "wait_for_stream",
          [](PyCopier& self, std::uintptr_t cuda_stream, std::size_t stream) {
            unwrap(self.copier->wait_for_stream(reinterpret_cast<void*>(cuda_stream), stream));
          },
          nb::arg("cuda_stream"), nb::arg("stream"));
}

}  // namespace

void bind_copier(nb::module_& m) {
  bind_transfer(m);
  Class<PyCopier> type(m, "Copier");
  type.def_prop_ro("num_streams", [](const PyCopier& self) { return self.copier->num_streams(); });
  bind_copies(type);
  def(
      m, "make_cpu_copier",
      [](std::size_t num_threads, std::size_t num_streams) {
        return PyCopier(
            unwrap(make_cpu_copier({.num_threads = num_threads, .num_streams = num_streams})));
      },
      nb::arg("num_threads") = CpuCopierOptions{}.num_threads,
      nb::arg("num_streams") = CpuCopierOptions{}.num_streams);
  const CudaCopierOptions usual;
  def(
      m, "make_cuda_copier",
      [](int device, std::size_t num_streams, std::size_t max_blocks,
         std::size_t engine_backup_bytes, std::size_t engine_load_bytes,
         std::size_t staging_bytes) {
        const CudaCopierOptions options{.device = device,
                                        .num_streams = num_streams,
                                        .max_blocks = max_blocks,
                                        .engine_backup_bytes = engine_backup_bytes,
                                        .engine_load_bytes = engine_load_bytes,
                                        .staging_bytes = staging_bytes};
        return PyCopier(unwrap(run(true, [&] { return make_cuda_copier(options); })));
      },
      nb::arg("device") = usual.device, nb::arg("num_streams") = usual.num_streams,
      nb::arg("max_blocks") = usual.max_blocks,
      nb::arg("engine_backup_bytes") = usual.engine_backup_bytes,
      nb::arg("engine_load_bytes") = usual.engine_load_bytes,
      nb::arg("staging_bytes") = usual.staging_bytes);
}

}  // namespace pando::python
