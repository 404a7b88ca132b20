// SPDX-License-Identifier: Apache-2.0
// In place of config_parse.cc where Pando is built without PANDO_CONFIG_FILES.
#include "base/check.h"
#include "pando/config.h"

namespace pando {

Result<Config> Config::parse(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return Config();
  return make_error(ErrorCode::unavailable,
                    "options: this Pando was built without PANDO_CONFIG_FILES and reads none from "
                    "text or files");
}

}  // namespace pando
