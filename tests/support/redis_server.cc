// SPDX-License-Identifier: Apache-2.0
// Processes: fork, exec, kill and reap by id. A port is tried by binding it; should another process
// take it in between, the server ends at once and another port is tried.
#include "support/redis_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <thread>

namespace pando::testing {
namespace {

constexpr const char* kServer = "/usr/bin/redis-server";
constexpr const char* kClient = "/usr/bin/redis-cli";

pid_t spawn(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.data()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  execv(argv[0], argv.data());
  _exit(127);
}

bool is_free(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return free;
}

// Below the ports that the kernel gives to clients; a cluster also listens 10000 above.
std::uint16_t free_port() {
  static std::mt19937 random(std::random_device{}());
  for (;;) {
    const int port = std::uniform_int_distribution<int>(10000, 22000)(random);
    if (is_free(port) && is_free(port + 10000)) return static_cast<std::uint16_t>(port);
  }
}

std::string text_of(const redisReply& reply) {
  if (reply.type == REDIS_REPLY_INTEGER) return std::to_string(reply.integer);
  if (reply.type == REDIS_REPLY_NIL) return "(nil)";
  if (reply.type == REDIS_REPLY_ARRAY) {
    std::string text;
    for (std::size_t i = 0; i < reply.elements; ++i) text += text_of(*reply.element[i]) + "\n";
    return text;
  }
  const std::string text(reply.str, reply.len);
  return reply.type == REDIS_REPLY_ERROR ? fmt::format("-{}", text) : text;
}

}  // namespace

bool have_redis() { return access(kServer, X_OK) == 0 && access(kClient, X_OK) == 0; }

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool run_program(const std::vector<std::string>& arguments) {
  const pid_t pid = spawn(arguments);
  int status = 0;
  return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

// ---- One server.

RedisServer::RedisServer(std::vector<std::string> options) : options_(std::move(options)) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    port_ = free_port();
    if (start()) return;
  }
  throw std::runtime_error("redis-server does not start");
}

RedisServer::~RedisServer() { kill(); }

bool RedisServer::start() {
  std::vector<std::string> arguments = {kServer,
                                        "--port",
                                        std::to_string(port_),
                                        "--bind",
                                        "127.0.0.1",
                                        "--dir",
                                        folder_.path(),
                                        "--unixsocket",
                                        unix_path(),
                                        "--save",
                                        "",
                                        "--appendonly",
                                        "no",
                                        "--daemonize",
                                        "no",
                                        "--protected-mode",
                                        "no"};
  arguments.insert(arguments.end(), options_.begin(), options_.end());
  pid_ = spawn(arguments);
  const auto runs = [&] {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
    pid_ = 0;
    return false;
  };
  return eventually([&] {
           if (!runs()) return true;
           const std::string answer = command({"PING"});
           return answer == "PONG" || answer.rfind("-NOAUTH", 0) == 0;
         }) &&
         pid_ != 0;
}

void RedisServer::kill() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void RedisServer::restart() {
  kill();
  if (!start()) throw std::runtime_error("redis-server does not start again");
}
void RedisServer::freeze() { ::kill(pid_, SIGSTOP); }
void RedisServer::thaw() { ::kill(pid_, SIGCONT); }

std::string RedisServer::address() const { return fmt::format("127.0.0.1:{}", port_); }
std::string RedisServer::unix_path() const { return fmt::format("{}/socket", folder_.path()); }

std::string RedisServer::command(const std::vector<std::string>& arguments,
                                 const std::string& password) const {
  const auto free_context = [](redisContext* c) { redisFree(c); };
  const std::unique_ptr<redisContext, decltype(free_context)> context(
      redisConnectWithTimeout("127.0.0.1", port_, {5, 0}), free_context);
  if (context == nullptr || context->err != 0) return "-not connected";
  redisSetTimeout(context.get(), {5, 0});
  const auto run = [&](const std::vector<std::string>& parts) {
    std::vector<const char*> argv;
    std::vector<std::size_t> sizes;
    for (const std::string& part : parts) {
      argv.push_back(part.data());
      sizes.push_back(part.size());
    }
    auto* reply = static_cast<redisReply*>(
        redisCommandArgv(context.get(), static_cast<int>(argv.size()), argv.data(), sizes.data()));
    const std::string text = reply == nullptr ? "-no answer" : text_of(*reply);
    if (reply != nullptr) freeReplyObject(reply);
    return text;
  };
  if (!password.empty()) run({"AUTH", password});
  return run(arguments);
}

std::uint64_t RedisServer::info(const std::string& field) const {
  const std::string text = command({"INFO"});
  const std::size_t at = text.find(fmt::format("\n{}:", field));
  if (at == std::string::npos) throw std::runtime_error(fmt::format("INFO has no {}", field));
  return std::stoull(text.substr(at + field.size() + 2));
}

// ---- Clusters.

RedisCluster::RedisCluster(std::size_t num_masters, std::size_t replicas_per_master) {
  const std::vector<std::string> options = {"--cluster-enabled",
                                            "yes",
                                            "--cluster-node-timeout",
                                            "1000",
                                            "--repl-diskless-sync-delay",
                                            "0",
                                            "--repl-ping-replica-period",
                                            "1",
                                            "--cluster-replica-validity-factor",
                                            "0"};
  std::vector<std::string> create = {kClient, "--cluster", "create"};
  for (std::size_t i = 0; i < num_masters * (1 + replicas_per_master); ++i) {
    servers_.push_back(std::make_unique<RedisServer>(options));
    create.push_back(servers_.back()->address());
  }
  running_.assign(servers_.size(), true);
  create.insert(create.end(),
                {"--cluster-replicas", std::to_string(replicas_per_master), "--cluster-yes"});
  const bool replicas_linked =
      run_program(create) && eventually([&] {
        for (std::size_t i = num_masters; i < size(); ++i)
          if (server(i).command({"INFO", "replication"}).find("master_link_status:up") ==
              std::string::npos)
            return false;
        return is_up();
      });
  if (!replicas_linked) throw std::runtime_error("the cluster does not come up");
}

std::vector<std::string> RedisCluster::addresses() const {
  std::vector<std::string> addresses;
  for (const auto& server : servers_) addresses.push_back(server->address());
  return addresses;
}

std::string RedisCluster::id(std::size_t i) const {
  return servers_[i]->command({"CLUSTER", "MYID"});
}

bool RedisCluster::is_up() const {
  for (std::size_t i = 0; i < size(); ++i)
    if (running_[i] &&
        servers_[i]->command({"CLUSTER", "INFO"}).find("cluster_state:ok") == std::string::npos)
      return false;
  return true;
}

bool RedisCluster::is_master(std::size_t i) const {
  return running_[i] && servers_[i]->command({"ROLE"}).rfind("master", 0) == 0;
}

std::size_t RedisCluster::owner(const std::string& key) const {
  for (std::size_t i = 0; i < size(); ++i)
    if (is_master(i) && servers_[i]->command({"EXISTS", key}).front() != '-') return i;
  throw std::runtime_error(fmt::format("no master has the slot of {}", key));
}

void RedisCluster::kill(std::size_t i) {
  running_[i] = false;
  servers_[i]->kill();
}

}  // namespace pando::testing
