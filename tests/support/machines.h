// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace strata::test {

// Machines for a test: network namespaces that a bridge in one more namespace connects. They share
// this machine's file systems and processes. They are gone with the object, and the processes in
// them must be gone before.
class Machines {
 public:
  explicit Machines(int count) : count_(count) {
    if (geteuid() != 0) {
      refusal_ = "network namespaces need root";
    } else if (!run("ip -V")) {
      refusal_ = "ip is not installed (Debian's package iproute2)";
    } else if (!build()) {
      refusal_ = "this system makes no network namespaces with a bridge";
    }
  }
  ~Machines() {
    for (int i = -1; i < count_; ++i) run("ip netns del " + name(i));
  }
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;

  // Why there are none; empty when they are there.
  const std::string& refusal() const { return refusal_; }

  static std::string host(int machine) { return "10.77.0." + std::to_string(machine + 1); }
  // Begins a command line that runs on a machine.
  std::vector<std::string> on(int machine) const { return {"ip", "netns", "exec", name(machine)}; }
  // Its bytes get lost from now on, in both directions, and nobody is told.
  bool cut_off(int machine) const {
    return run("ip -n " + name(-1) + " link set " + port(machine) + " nomaster");
  }
  // The end of that.
  bool connect_again(int machine) const {
    return run("ip -n " + name(-1) + " link set " + port(machine) + " master bridge0");
  }
  // Its interface sends at most so many Mbit/s.
  bool limit(int machine, int mbit_per_s) const {
    return run("tc -n " + name(machine) + " qdisc add dev eth0 root tbf rate " +
               std::to_string(mbit_per_s) + "mbit burst 256k latency 100ms");
  }

 private:
  static bool run(const std::string& command) {
    return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
  }
  // The namespace of a machine; -1: of the bridge.
  static std::string name(int machine) {
    return "strata-" + std::to_string(getpid()) + "-" +
           (machine < 0 ? "bridge" : std::to_string(machine));
  }
  static std::string port(int machine) { return "port" + std::to_string(machine); }

  bool build() const {
    const std::string bridge = name(-1);
    std::string all = "ip netns add " + bridge + " && ip -n " + bridge +
                      " link add bridge0 type bridge && ip -n " + bridge + " link set bridge0 up";
    for (int i = 0; i < count_; ++i) {
      const std::string own = "ip -n " + name(i);
      all += " && ip netns add " + name(i) + " && ip -n " + bridge + " link add " + port(i) +
             " type veth peer name eth0 netns " + name(i) + " && ip -n " + bridge + " link set " +
             port(i) + " master bridge0 up && " + own + " addr add " + host(i) +
             "/24 dev eth0 && " + own + " link set eth0 up && " + own + " link set lo up";
    }
    return run("{ " + all + "; }");
  }

  const int count_;
  std::string refusal_;
};

}  // namespace strata::test
