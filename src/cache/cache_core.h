// SPDX-License-Identifier: Apache-2.0
// What every part of a PrefixCache works on: the index decides, the ledgers return slots, the log
// records. PrefixCacheImpl adds the calls; TreeTiers moves bytes for it.
#pragma once

#include "cache/event_log.h"
#include "cache/eviction_record.h"
#include "cache/slot_ledger.h"
#include "cache/state_ledger.h"
#include "index/radix_index.h"
#include "pando/inspect.h"
#include "pando/paths.h"
#include "tiers/agreement.h"

namespace pando {

struct CacheCore {
  const CacheOptions options;
  RadixIndex index;
  SlotLedger ledger;
  StateLedger states;
  Agreement ranks;
  std::optional<EventLog> events = {};
  std::optional<EvictionRecord> record = {};
  CacheStats stats = {};
  CacheObserver* observer = options.observer;
  Released released = {};  // by the operation under way; empty between operations

  /// Passes on what the index let go of on the device.
  void give_back_device(Released& from);
  /// Tells the log that a node is on a tier now.
  void record_stored(Tier tier, NodeIndex node);
  void record_stored(EventLog& to, Tier tier, NodeIndex node) const;
};

/// While it lives, what the index lets go of goes for this reason; for explain().
class CauseScope {
 public:
  CauseScope(CacheCore& core, Pressure pressure, std::size_t num_tokens) : core_(core) {
    if (core.record) before_ = core.record->set_cause({pressure, num_tokens});
  }
  ~CauseScope() {
    if (core_.record) core_.record->set_cause(before_);
  }
  CauseScope(const CauseScope&) = delete;
  CauseScope& operator=(const CauseScope&) = delete;

 private:
  CacheCore& core_;
  EvictionRecord::Cause before_;
};

}  // namespace pando
