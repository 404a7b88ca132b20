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
  nb::enum_<TransferState>(m, "TransferState", "How far a transfer is.")
      .value("queued", TransferState::queued)
      .value("running", TransferState::running)
      .value("done", TransferState::done)
      .value("cancelled", TransferState::cancelled)
      .value("failed", TransferState::failed);
  nb::enum_<LoadOrder>(m, "LoadOrder", "In which order a load brings its bytes.")
      .value("by_layer", LoadOrder::by_layer, "The first layers arrive first.")
      .value("by_page", LoadOrder::by_page, "Whatever is fastest.");
  nb::class_<PyTransfer>(m, "Transfer",
                         "A copy under way, see Copier. Dropping it does not stop it.")
      .def_prop_ro("state", [](const PyTransfer& self) { return self.transfer.state(); })
      .def_prop_ro(
          "finished", [](const PyTransfer& self) { return self.transfer.finished(); },
          "Done, cancelled or failed.")
      .def(
          "wait",
          [](const PyTransfer& self) {
            const Status status = run(true, [&] { return self.transfer.wait(); });
            self.under_way->drop_finished();
            unwrap(status);
          },
          "Blocks until finished; raises if it failed or was cancelled.")
      .def_prop_ro(
          "layers_ready", [](const PyTransfer& self) { return self.transfer.layers_ready(); },
          "Of a load, the layers in place so far, counted from the first.")
      .def(
          "wait_layer",
          [](const PyTransfer& self, std::size_t layer) {
            unwrap(run(true, [&] { return self.transfer.wait_layer(layer); }));
          },
          nb::arg("layer"), "Blocks until this layer, counted from 0, is in place.")
      .def(
          "cancel", [](PyTransfer& self) { return self.transfer.cancel(); },
          "True: it had not begun and never will. False: it has begun or ended.")
      .def_prop_ro("size_bytes", [](const PyTransfer& self) { return self.transfer.size_bytes(); })
      .def_prop_ro(
          "duration",
          [](const PyTransfer& self) {
            return std::chrono::duration<double>(self.transfer.duration()).count();
          },
          "Seconds that it ran; 0 until it has ended.");
}

void bind_copies(nb::class_<PyCopier>& type) {
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
          nb::arg("stream") = 0,
          "Device to host, all layers. The host pages must be protected for writing.")
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
          nb::arg("stream") = 0, nb::arg("order") = LoadOrder::by_layer,
          "Host to device. The host pages must be protected for loading.")
      .def(
          "move",
          [](PyCopier& self, const PyKvPool& pool, SlotsArg dst, SlotsArg src, std::size_t stream) {
            const Items<SlotId> to(dst.object, "dst");
            const Items<SlotId> from(src.object, "src");
            return under_way(self, unwrap(self.copier->move(*pool.pool, to, from, stream)),
                             pool.pool, nullptr, false);
          },
          nb::arg("pool"), nb::arg("dst"), nb::arg("src"), nb::arg("stream") = 0,
          "As KvPool.move(), but slots may not be both read and written.")
      .def(
          "wait_for_stream",
          [](PyCopier& self, std::uintptr_t cuda_stream, std::size_t stream) {
            unwrap(self.copier->wait_for_stream(reinterpret_cast<void*>(cuda_stream), stream));
          },
          nb::arg("cuda_stream"), nb::arg("stream"),
          "Transfers asked of `stream` from now on begin after everything that has been queued on "
          "the caller's CUDA stream so far (`torch.cuda.current_stream().cuda_stream`).");
}

}  // namespace

void bind_copier(nb::module_& m) {
  bind_transfer(m);
  nb::class_<PyCopier> type(
      m, "Copier",
      "Moves pages between a KvPool and its HostPool while the caller goes on.\n\n"
      ">>> geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4, page_size=4)\n"
      ">>> device = pando.KvPool(geometry, capacity_tokens=64)\n"
      ">>> host = pando.HostPool(device, ratio=2.0, keep_free_bytes=0)\n"
      ">>> copier = pando.make_cpu_copier()\n"
      ">>> pages = host.alloc(2)\n"
      ">>> host.protect_write(pages)\n"
      ">>> transfer = copier.backup(device, host, [5, 7], pages)\n"
      ">>> transfer.wait()\n"
      ">>> host.complete_write(pages)\n"
      ">>> transfer.size_bytes\n"
      "512\n");
  type.def_prop_ro("num_streams", [](const PyCopier& self) { return self.copier->num_streams(); });
  bind_copies(type);
  m.def(
      "make_cpu_copier",
      [](std::size_t num_threads, std::size_t num_streams) {
        return PyCopier(
            unwrap(make_cpu_copier({.num_threads = num_threads, .num_streams = num_streams})));
      },
      nb::arg("num_threads") = CpuCopierOptions{}.num_threads,
      nb::arg("num_streams") = CpuCopierOptions{}.num_streams,
      "For pools in host memory.\n\n>>> pando.make_cpu_copier(num_streams=2).num_streams\n2\n");
  const CudaCopierOptions usual;
  m.def(
      "make_cuda_copier",
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
      nb::arg("staging_bytes") = usual.staging_bytes,
      "For pools in a GPU's memory and pinned host pools. Unavailable without CUDA or a GPU. "
      "`max_blocks`: thread blocks of a copy that crosses the bus. From `engine_…_bytes` "
      "contiguous bytes of a host page on, copy engines take over from kernels, through "
      "`staging_bytes` of device memory per stream.");
}

}  // namespace pando::python
