// SPDX-License-Identifier: Apache-2.0
// What `strata doctor` says about storage: real directories that work and that do not, and drives
// of a made-up sysfs with links that are too slow and sensors that are too hot.
#include "bindings/cli/doctor_storage.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "bindings/cli/doctor_drive.h"
#include "engine/base/units.h"
#include "io/drives.h"
#include "io/scratch_file.h"
#include "io/volume.h"
#include "tests/support/obey_permissions.h"
#include "tests/support/refuse_io_uring.h"
#include "tests/support/temporary_directory.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using Status = DoctorLine::Status;

class StorageTest : public testing::Test {
 protected:
  StorageTest() {
    fs::create_directory(scratch());
    struct stat info {};
    stat(scratch().c_str(), &info);
    number_ = std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
  }

  std::string scratch() const { return home_ / "scratch"; }
  std::string root() const { return home_ / "root"; }
  std::string sys(const std::string& path) const { return root() + "/sys/" + path; }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(file).parent_path());
    std::ofstream(file) << text << '\n';
  }
  void link(const std::string& from, const std::string& to) const {
    fs::create_directories(fs::path(from).parent_path());
    fs::create_symlink(to, from);
  }

  // An NVMe drive with a partition, as Linux shows one with a single path. Returns its folder.
  std::string make_nvme(const std::string& name) const {
    const std::string pci = sys("devices/pci0000:00/0000:01:00.0-" + name);
    const std::string controller = pci + "/nvme/" + name;
    const std::string drive = controller + "/" + name + "n1";
    write(pci + "/current_link_speed", "16.0 GT/s PCIe");
    write(pci + "/max_link_speed", "16.0 GT/s PCIe");
    write(pci + "/current_link_width", "4");
    write(pci + "/max_link_width", "4");
    link(controller + "/device", pci);
    write(controller + "/model", "Fast Drive 2TB                  ");
    write(controller + "/hwmon3/temp1_input", "41850");
    write(drive + "/queue/rotational", "0");
    link(drive + "/device", controller);
    write(drive + "/" + name + "n1p1/partition", "1");
    return drive;
  }
  void mount_on(const std::string& device) const { link(sys("dev/block/" + number_), device); }

  std::vector<std::string> lines() const {
    std::vector<std::string> texts;
    for (const DoctorLine& line : check_drives(scratch(), root())) {
      texts.push_back((line.status == Status::kOk     ? "OK "
                       : line.status == Status::kWarn ? "WARN "
                                                      : "FAIL ") +
                      line.text);
      EXPECT_EQ(line.fix.empty(), line.status == Status::kOk) << line.text;
    }
    return texts;
  }
  static std::vector<DoctorLine> about(const std::vector<DoctorLine>& lines,
                                       const std::string& part) {
    std::vector<DoctorLine> found;
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(found),
                 [&](const DoctorLine& line) { return line.text.find(part) != std::string::npos; });
    return found;
  }

  const strata::test::TemporaryDirectory home_;
  std::string number_;
};

using Texts = std::vector<std::string>;

TEST_F(StorageTest, AGoodDriveBelowAPartition) {
  mount_on(make_nvme("nvme0") + "/nvme0n1p1");
  EXPECT_EQ(lines(), (Texts{"OK on nvme0n1, Fast Drive 2TB", "OK PCIe 16.0 GT/s PCIe x4",
                            "OK 42 degrees C, below its limit of 70"}));
}

TEST_F(StorageTest, ANarrowOrSlowLinkIsAWarning) {
  const std::string drive = make_nvme("nvme0");
  mount_on(drive);
  const std::string pci = fs::canonical(drive + "/device/device").string();
  write(pci + "/current_link_width", "1");
  EXPECT_EQ(lines()[1], "WARN PCIe 16.0 GT/s PCIe x1, the drive can 16.0 GT/s PCIe x4");
  write(pci + "/current_link_width", "4");
  write(pci + "/current_link_speed", "2.5 GT/s PCIe");
  EXPECT_EQ(lines()[1], "WARN PCIe 2.5 GT/s PCIe x4, the drive can 16.0 GT/s PCIe x4");
}

TEST_F(StorageTest, ADriveOnAnotherNodeThanTheGpuIsAWarning) {
  const std::string drive = make_nvme("nvme0");
  mount_on(drive);
  write(fs::canonical(drive + "/device/device").string() + "/numa_node", "1");
  EXPECT_EQ(lines()[2], "OK NUMA node 1");
  const auto add_gpu = [&](const std::string& name, const char* node) {
    const std::string pci = sys("bus/pci/devices/" + name);
    write(pci + "/class", "0x030200");
    write(pci + "/vendor", "0x10de");
    write(pci + "/numa_node", node);
  };
  add_gpu("0000:19:00.0", "0");
  EXPECT_EQ(lines()[2], "WARN NUMA node 1, and GPUs are on node 0");
  add_gpu("0000:99:00.0", "1");
  EXPECT_EQ(lines()[2], "OK NUMA node 1");
}

TEST_F(StorageTest, AHotDriveIsAWarningByItsOwnLimit) {
  const std::string drive = make_nvme("nvme0");
  mount_on(drive);
  const std::string sensor = fs::canonical(drive + "/device/hwmon3").string();
  write(sensor + "/temp1_input", "78000");
  EXPECT_EQ(lines()[2], "WARN 78 degrees C, above its limit of 70");
  write(sensor + "/temp1_max", "81850");
  EXPECT_EQ(lines()[2], "OK 78 degrees C, below its limit of 82");
  write(sensor + "/temp1_input", "nonsense");
  EXPECT_EQ(lines().size(), 2u);
}

TEST_F(StorageTest, SeveralDrivesBelowDeviceMapperAreAllLookedAt) {
  const std::string mapper = sys("devices/virtual/block/dm-0");
  link(mapper + "/slaves/nvme0n1p1", make_nvme("nvme0") + "/nvme0n1p1");
  link(mapper + "/slaves/nvme1n1", make_nvme("nvme1"));
  mount_on(mapper);
  const Texts texts = lines();
  ASSERT_EQ(texts.size(), 6u);
  EXPECT_EQ(texts[0], "OK on nvme0n1, Fast Drive 2TB");
  EXPECT_EQ(texts[3], "OK on nvme1n1, Fast Drive 2TB");
}

// Partitions of one drive are one, and a RAID of two is two.
TEST_F(StorageTest, DrivesAreCountedNotFileSystems) {
  EXPECT_EQ(io::drives_below({scratch(), home_.path()}, root()),
            (std::vector<std::string>{number_}));
  const std::string mapper = sys("devices/virtual/block/dm-0");
  link(mapper + "/slaves/nvme0n1p1", make_nvme("nvme0") + "/nvme0n1p1");
  link(mapper + "/slaves/nvme1n1", make_nvme("nvme1"));
  mount_on(mapper);
  const std::vector<std::string> both = {"nvme0n1", "nvme1n1"};
  EXPECT_EQ(io::drives_below({scratch()}, root()), both);
  EXPECT_EQ(io::drives_below({scratch(), home_.path()}, root()), both);
  EXPECT_EQ(io::drives_below({scratch(), "/proc"}, root()).size(), 3u)
      << "of its own, and not known";
}

// A second file system of a made-up device: /proc has one number everywhere.
TEST_F(StorageTest, PartitionsOfOneDriveShareItAndADriveOfTheirOwnDoesNot) {
  struct stat info {};
  ASSERT_EQ(stat("/proc", &info), 0);
  const std::string other = sys("dev/block/" + std::to_string(major(info.st_dev)) + ":" +
                                std::to_string(minor(info.st_dev)));
  mount_on(make_nvme("nvme0") + "/nvme0n1p1");
  EXPECT_FALSE(io::share_a_drive({scratch()}, root()));
  EXPECT_TRUE(io::share_a_drive({scratch(), home_.path()}, root())) << "one file system";
  EXPECT_FALSE(io::share_a_drive({scratch(), "/proc"}, root())) << "it is not known";
  link(other, make_nvme("nvme1"));
  EXPECT_FALSE(io::share_a_drive({scratch(), "/proc"}, root()));
  fs::remove(other);
  write(sys("devices/pci0000:00/0000:01:00.0-nvme0/nvme/nvme0/nvme0n1/nvme0n1p2/partition"), "2");
  link(other, sys("devices/pci0000:00/0000:01:00.0-nvme0/nvme/nvme0/nvme0n1/nvme0n1p2"));
  EXPECT_TRUE(io::share_a_drive({scratch(), "/proc"}, root())) << "two partitions";
}

TEST_F(StorageTest, ADriveWithSeveralPathsHasItsControllerInTheSubsystem) {
  const std::string single = make_nvme("nvme0");
  const std::string subsystem = sys("devices/virtual/nvme-subsystem/nvme-subsys0");
  const std::string drive = subsystem + "/nvme0n1";
  write(drive + "/queue/rotational", "0");
  link(drive + "/device", subsystem);
  link(subsystem + "/nvme0", fs::path(single).parent_path().string());
  mount_on(drive);
  EXPECT_EQ(lines(), (Texts{"OK on nvme0n1", "OK PCIe 16.0 GT/s PCIe x4",
                            "OK 42 degrees C, below its limit of 70"}));
}

TEST_F(StorageTest, AFileSystemWithANumberOfItsOwnIsFoundInTheMountTable) {
  const std::string drive = make_nvme("nvme0");
  link(sys("class/block/nvme0n1p1"), drive + "/nvme0n1p1");
  write(root() + "/proc/self/mountinfo",
        "22 1 0:5 / /proc rw - proc proc rw\n30 1 " + number_ +
            " / /scratch rw,relatime shared:1 - btrfs /dev/nvme0n1p1 rw");
  EXPECT_EQ(lines()[0], "OK on nvme0n1, Fast Drive 2TB");
}

TEST_F(StorageTest, RotatingDisksAndUnknownDrives) {
  EXPECT_EQ(lines(), Texts{"OK no block device of its own, so nothing is known about the drive"});
  const std::string disk = sys("devices/virtio/block/vda");
  write(disk + "/queue/rotational", "1");
  mount_on(disk);
  EXPECT_EQ(lines(), Texts{"WARN on vda: reports rotating disks"});
}

TEST_F(StorageTest, DeviceMapperThatRefersToItselfEnds) {
  const std::string mapper = sys("devices/virtual/block/dm-0");
  link(mapper + "/slaves/dm-0", mapper);
  mount_on(mapper);
  EXPECT_EQ(lines(), Texts{"OK no block device of its own, so nothing is known about the drive"});
}

TEST_F(StorageTest, ADirectoryThatWorksHasNoFailureAndIsLeftEmpty) {
  const auto all = check_storage({scratch()}, root());
  EXPECT_TRUE(std::none_of(all.begin(), all.end(),
                           [](const DoctorLine& line) { return line.status == Status::kFail; }));
  const auto works = about(all, "scratch works: a block was written and read back by ");
  ASSERT_EQ(works.size(), 1u);
  const bool uring = about(all, "available")[0].status == Status::kOk;
  EXPECT_NE(works[0].text.find(uring ? " by io_uring" : " by threads"), std::string::npos)
      << works[0].text;
  EXPECT_EQ(about(all, " free").size(), 1u);
  EXPECT_TRUE(fs::is_empty(scratch()));
}

// What this user may take, as a volume sees it.
TEST_F(StorageTest, FreeSpaceIsWhatAVolumeMayTake) {
  bool same = false;  // others may write there between the two looks
  for (int i = 0; i < 50 && !same; ++i) {
    const auto free = static_cast<int64_t>(io::free_space(scratch()).bytes);
    same =
        about(check_storage({scratch()}, root()), " free")[0].text == format_bytes(free) + " free";
  }
  EXPECT_TRUE(same);
}

TEST_F(StorageTest, EveryTroubleHasAFix) {
  std::ofstream(home_ / "file") << "x";
  const auto all = check_storage({home_ / "missing", home_ / "file", "/dev/shm", "/proc"}, root());
  EXPECT_EQ(about(all, "No such file").size(), 1u);
  EXPECT_GE(about(all, "holds no files of its users").size(), 1u) << "in /proc";
  EXPECT_EQ(about(all, "Not a directory").size(), 1u);
  EXPECT_EQ(about(all, "file system tmpfs")[0].status, Status::kFail);
  for (const DoctorLine& line : all) {
    EXPECT_EQ(line.fix.empty(), line.status == Status::kOk) << line.subject << ": " << line.text;
  }
}

TEST_F(StorageTest, AReadOnlyDirectoryFailsWithAFix) {
  chmod(scratch().c_str(), 0555);
  const pid_t child = fork();
  if (child == 0) {
    if (!strata::test::obey_permissions()) _exit(9);
    const auto denied = about(check_storage({scratch()}, root()), "Permission denied");
    _exit(denied.size() == 1 && denied[0].status == Status::kFail &&
                  denied[0].fix == "name a directory of a drive that this user may write"
              ? 7
              : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(StorageTest, ARefusedIoUringHasTheFixOfItsReason) {
  struct Case {
    uint16_t error;
    const char* disabled;  // what sysctl says
    const char* fix;
  };
  const Case cases[] = {{EPERM, "", "in the seccomp profile"},
                        {EPERM, "2", "sysctl kernel.io_uring_disabled=0"},
                        {ENOMEM, "0", "ulimit -l unlimited"},
                        {ENOSYS, "", "run a kernel of 5.11 or later"}};
  for (const Case& each : cases) {
    fs::remove(root() + "/proc/sys/kernel/io_uring_disabled");
    if (*each.disabled != 0) write(root() + "/proc/sys/kernel/io_uring_disabled", each.disabled);
    const pid_t child = fork();
    if (child == 0) {
      if (!strata::test::refuse_io_uring(each.error)) _exit(9);
      const auto all = check_storage({scratch()}, root());
      const auto line = about(all, "io_uring is not available");
      const bool works = about(all, "written and read back by threads").size() == 1;
      if (line.size() == 1) std::fprintf(stderr, "%s\n", line[0].fix.c_str());
      const bool named = line.size() == 1 && line[0].fix.find(each.fix) != std::string::npos;
      _exit(works && named ? 7 : 3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 7) << each.fix;
  }
}

TEST_F(StorageTest, AnotherRunThatHoldsItIsNamed) {
  const io::Volume run({.directories = {scratch()}, .bytes = 1 << 20, .owner = "the run"});
  const auto held = about(check_storage({scratch()}, root()), "in use by pid");
  ASSERT_EQ(held.size(), 1u);
  EXPECT_NE(held[0].text.find("the run"), std::string::npos) << held[0].text;
  EXPECT_EQ(held[0].fix,
            "close the store that has it, or name another directory: each needs its own");
}

}  // namespace
}  // namespace strata::cli
